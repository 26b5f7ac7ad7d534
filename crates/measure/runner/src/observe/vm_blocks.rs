//! The block requests of a VM that runs already, or its packets, traced from the host alone.

use super::guest_trace::GuestTrace;
use crate::RunError;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use vmtax_model::{
    Accelerator, DeviceClass, DiskBus, HostDisk, Missing, ObservedVm, Probes, QemuThread, SCHEMA,
    TracedDisk, TracedNic, VmFacts, VmTrace, files,
};
use vmtax_observe::{
    HostDevice, ProbeSet, Recorded, Tracer, cpu_buffer_kib, has_ended, thread_names, uprobes,
};
use vmtax_recording::TrialFiles;
use vmtax_vm::Vm;

/// Room for events in the kernel, of all CPUs together, KiB: of one second of 200,000 requests.
const ROOM_KIB: usize = 512 << 10;
/// Of one CPU, KiB, at least and at most.
const CPU_KIB: std::ops::RangeInclusive<usize> = (4 << 10)..=(32 << 10);
/// Bytes of traces that are kept. A VM with many requests reaches it in a minute; then tracing ends.
const MAX_BYTES: u64 = 2 << 30;

/// Traces the requests of a running VM's disks, or the packets of its network cards, until the duration has passed, it ends, or `stop` becomes true. The trace goes to `files`. Nothing
/// of the VM is changed.
///
/// # Errors
/// [`RunError`] for a process that is no VM or has none of these devices, where this user may not trace, and when the files cannot be written.
pub fn vm_layers(
    spec: &ObservedVm,
    mut files: TrialFiles,
    stop: &AtomicBool,
) -> Result<(), RunError> {
    let vm = Vm::attach(spec.pid);
    let facts = vm
        .facts_with_state()
        .ok_or(RunError::NoVm { pid: spec.pid })?;
    let guest = spec
        .guest_vmtax
        .as_deref()
        .map(|vmtax| GuestTrace::start(&vm, vmtax, spec.time()))
        .transpose()?;
    let mut devices = Devices::of(&vm, spec.device)?;
    let tracer = Tracer::start(
        &probes(&vm, &devices, &facts),
        cpu_buffer_kib(ROOM_KIB, CPU_KIB),
    )?;
    let mut keep = |name: &str, bytes: &[u8]| {
        files
            .append(&format!("{}/{name}", files::HOST), bytes)
            .map_err(io::Error::other)
    };
    // A VM that has ended has none.
    let kvm_offset = vmtax_observe::kvm_offset(vm.pid());
    let is_over = || stop.load(Ordering::Relaxed) || has_ended(vm.pid());
    let Recorded { begin, end, full } =
        tracer.record(spec.time(), MAX_BYTES, &is_over, &mut keep)?;
    let ended = has_ended(vm.pid());
    if !ended {
        vm.place_disks(&mut devices.disks);
    }
    let mut missing = tracer.missing().to_vec();
    let Devices {
        disks,
        nics,
        missing: less,
        ..
    } = devices;
    missing.extend(less);
    // Not while it waits for the guest: other VMs run the same QEMU.
    drop(tracer);
    if let Some(Err(error)) = guest.map(|guest| guest.fetch(&mut files)) {
        missing.push(Missing::for_error("the guest's own layers", &error));
    }
    let trace = VmTrace {
        schema: SCHEMA,
        tsc_mhz: vmtax_clock::host_mhz(),
        begin,
        end,
        threads: with_new(
            &facts.threads,
            if ended { Vec::new() } else { vm.threads() },
        ),
        vm: facts,
        disks,
        nics,
        ended,
        full,
        missing,
        imported: false,
        guest: None,
        kvm_offset,
    };
    Ok(files.store(files::VM_TRACE, &trace)?)
}

/// The devices whose requests are traced.
struct Devices {
    class: DeviceClass,
    disks: Vec<TracedDisk>,
    nics: Vec<TracedNic>,
    /// Devices of which the host shows less.
    missing: Vec<Missing>,
}

impl Devices {
    fn of(vm: &Vm, class: DeviceClass) -> Result<Devices, RunError> {
        let none = Devices {
            class,
            disks: Vec::new(),
            nics: Vec::new(),
            missing: Vec::new(),
        };
        match class {
            DeviceClass::Disk => Ok(Devices {
                disks: vm.traced_disks(),
                ..none
            }),
            DeviceClass::Net => match vm.traced_nics() {
                (nics, missing) if nics.is_empty() => Err(RunError::NoTap {
                    pid: vm.pid(),
                    missing,
                }),
                (nics, missing) => Ok(Devices {
                    nics,
                    missing,
                    ..none
                }),
            },
        }
    }

    /// Where the guest kicks them.
    fn doorbells(&self) -> Vec<(u64, u64)> {
        let of_disks = self.disks.iter().flat_map(|disk| &disk.notify);
        of_disks
            .chain(self.nics.iter().flat_map(|nic| &nic.notify))
            .copied()
            .collect()
    }
}

/// Returns the probes that trace a VM among others on its host.
fn probes(vm: &Vm, devices: &Devices, facts: &VmFacts) -> ProbeSet {
    let binary = vm.binary_file().unwrap_or_default();
    // Threads of the kernel's own that move its packets are none of its process.
    let of_facts = facts.threads.iter().map(|thread| thread.tid);
    let threads: BTreeSet<i32> = thread_names(vm.pid())
        .into_iter()
        .map(|(tid, _)| tid)
        .chain(of_facts)
        .collect();
    let threads: Vec<i32> = threads.into_iter().collect();
    let blocks: Vec<&HostDisk> = devices.disks.iter().map(|disk| &disk.host).collect();
    let taps: Vec<String> = devices.nics.iter().map(|nic| nic.nic.tap.clone()).collect();
    // On what bus a disk is that neither the monitor nor the command line knows is not known either.
    let may_have = |bus: &DiskBus| {
        devices
            .disks
            .iter()
            .any(|disk| disk.bus().is_none_or(|own| own == *bus))
    };
    let buses = DiskBus::ALL
        .into_iter()
        .filter(|bus| *bus == DiskBus::VirtioBlk || may_have(bus));
    let (of_class, points, behind) = match devices.class {
        DeviceClass::Disk => (
            Probes::Layers,
            buses
                .flat_map(|bus| vm.disk_probe_points(bus).to_vec())
                .collect(),
            HostDevice::Blocks(&blocks),
        ),
        DeviceClass::Net => (
            Probes::Network,
            vm.network_probe_points().to_vec(),
            HostDevice::Interfaces(&taps),
        ),
    };
    let is_kvm = facts.accelerator == Some(Accelerator::Kvm);
    let (probes, mut missing) = uprobes(&points, &binary);
    // People know it by its own path.
    if let Some(own) = vm.binary() {
        let named = |missing: &mut Missing| {
            missing.why = missing
                .why
                .replace(&*binary.to_string_lossy(), &own.to_string_lossy())
        };
        missing.iter_mut().for_each(named);
    }
    let mut set = ProbeSet::host(
        of_class.checkpoints(),
        &threads,
        behind,
        is_kvm,
        probes,
        missing,
    )
    .among_others(&devices.doorbells());
    // Each disk reports what is missing of it.
    set.missing
        .retain(|missing| missing.what != vmtax_observe::HOST_DISK);
    set
}

/// The threads of both times; what was known at first stays.
fn with_new(first: &[QemuThread], now: Vec<QemuThread>) -> Vec<QemuThread> {
    let all: BTreeMap<i32, QemuThread> = now
        .into_iter()
        .chain(first.iter().cloned())
        .map(|thread| (thread.tid, thread))
        .collect();
    all.into_values().collect()
}
