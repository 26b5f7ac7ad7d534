//! The block requests of a VM that runs already, or its packets, traced from the host alone.

use super::observer::{Stop, failed, keep_in};
use crate::RunError;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use vmtax_model::{
    Accelerator, DeviceClass, DiskBus, HostDisk, Missing, ObservedVm, Probes, QemuThread, SCHEMA,
    TracedDisk, TracedNic, VmFacts, VmTrace, files,
};
use vmtax_observe::{
    HostDevice, ProbePoint, ProbeSet, Recorded, Tracer, Uprobe, cpu_buffer_kib, function_address,
    thread_names, uprobes,
};
use vmtax_recording::TrialFiles;
use vmtax_vm::MachineError;
use vmtax_vmm::{GuestProgram, Vm, VmmError};

/// Function of KVM's that raises the line of an irqfd, for a thread that may not wait for the interrupt controllers.
const INTERRUPT_BY_WORKER: &str = "irqfd_inject";
/// Room for events in the kernel, of all CPUs together, KiB: of one second of 200,000 requests.
const ROOM_KIB: usize = 512 << 10;
/// Of one CPU, KiB, at least and at most.
const CPU_KIB: std::ops::RangeInclusive<usize> = (4 << 10)..=(32 << 10);
/// Bytes of traces that are kept. A VM with many requests reaches it in a minute; then tracing ends.
const MAX_BYTES: u64 = 2 << 30;

/// Traces the requests of a running VM's disks, or the packets of its network cards, until the duration has passed, it ends, or
/// `stop` says so. The trace goes to `files`. Nothing of the VM is changed.
///
/// # Errors
/// [`RunError`] for a process that is no VM or has none of these devices, where this user may not trace, and when the files cannot
/// be written.
pub(crate) fn vm_layers(
    vm: &Vm,
    spec: &ObservedVm,
    mut files: TrialFiles,
    stop: &Stop<'_>,
) -> Result<(), RunError> {
    let pid = vm.pid();
    let facts = vm.facts_among_all().ok_or(RunError::NoVm { pid })?;
    if spec.no_probes && facts.accelerator == Some(Accelerator::Tcg) {
        return Err(RunError::NoProbesUnderTcg { pid });
    }
    let guest = spec.guest_vmtax.as_deref();
    let guest = guest.map(|vmtax| GuestTrace::start(vm, vmtax, spec.time()));
    let guest = guest.transpose()?;
    let mut devices = Devices::find(vm, spec.device)?;
    let set = probes(vm, &devices, &facts, spec.no_probes);
    let tracer = Tracer::start(&set, cpu_buffer_kib(ROOM_KIB, CPU_KIB))?;
    // A VM that has ended has none.
    let kvm_offset = vmtax_observe::kvm_offset(pid);
    let is_over = || stop() || vm.has_ended();
    let Recorded { begin, end, full } = tracer.record(
        spec.time(),
        MAX_BYTES,
        &is_over,
        &mut keep_in(files::HOST, &mut files),
    )?;
    let ended = vm.has_ended();
    if !ended {
        vm.place_disks(&mut devices.disks);
    }
    let mut missing = [tracer.missing(), &devices.missing].concat();
    // Not while it waits for the guest: other VMs run the same QEMU.
    drop(tracer);
    if let Some(Err(error)) = guest.map(|guest| guest.fetch(&mut files)) {
        missing.push(Missing::for_error("the guest's own layers", &error));
    }
    let threads = if ended { Vec::new() } else { vm.threads() };
    let trace = VmTrace {
        schema: SCHEMA,
        tsc_mhz: vmtax_clock::host_mhz(),
        begin,
        end,
        threads: with_new(&facts.threads, threads),
        vm: facts,
        disks: devices.disks,
        nics: devices.nics,
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
    fn find(vm: &Vm, class: DeviceClass) -> Result<Devices, RunError> {
        let pid = vm.pid();
        let (disks, nics, missing) = match class {
            DeviceClass::Disk => (vm.traced_disks(), Vec::new(), Vec::new()),
            DeviceClass::Net => match vm.traced_nics() {
                (nics, missing) if nics.is_empty() => return Err(RunError::NoTap { pid, missing }),
                (nics, missing) => (Vec::new(), nics, missing),
            },
        };
        Ok(Devices {
            class,
            disks,
            nics,
            missing,
        })
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

/// Returns the probes that trace a VM among others on its host; `of_kernel`: none of them in the VMM's program.
fn probes(vm: &Vm, devices: &Devices, facts: &VmFacts, of_kernel: bool) -> ProbeSet {
    // Threads of the kernel's own that move its packets are none of its process.
    let of_facts = facts.threads.iter().map(|thread| thread.tid);
    let of_process = thread_names(vm.pid()).into_iter().map(|(tid, _)| tid);
    let threads: BTreeSet<i32> = of_process.chain(of_facts).collect();
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
    let (probes, missing) = if of_kernel {
        (Vec::new(), Vec::new())
    } else {
        qemu_probes(vm, &points)
    };
    let checkpoints = of_class.checkpoints();
    let mut set = ProbeSet::host(checkpoints, &threads, behind, is_kvm, probes, missing)
        .among_others(&devices.doorbells());
    if is_kvm && !facts.vmm.is_qemu() && devices.class == DeviceClass::Disk {
        // QEMU's interrupts are messages, which its own threads deliver.
        match function_address(INTERRUPT_BY_WORKER) {
            Some(function) => set.add_interrupts_by_workers(function),
            None => set.missing.push(Missing {
                what: "interrupts that a worker of the kernel delivers".into(),
                why: format!("/proc/kallsyms has no address of {INTERRUPT_BY_WORKER}"),
                fix: "sysctl kernel.kptr_restrict=1".into(),
            }),
        }
    }
    // Where no probe shows packets, the VMM's calls on its taps do.
    if !set.uprobes.iter().any(|probe| probe.event == "receive") {
        let taps = devices.nics.iter().flat_map(|nic| &nic.descriptors);
        set.add_tap_calls(&taps.copied().collect::<Vec<_>>());
    }
    // Each disk reports what is missing of it.
    set.missing
        .retain(|missing| missing.what != vmtax_observe::HOST_DISK);
    set
}

/// The probes on these points of a VM's QEMU, and what is missing of them.
fn qemu_probes(vm: &Vm, points: &[ProbePoint]) -> (Vec<Uprobe>, Vec<Missing>) {
    let binary = vm.binary_file().unwrap_or_default();
    let (probes, mut missing) = uprobes(points, &binary);
    // People know it by its own path.
    if let Some(own) = vm.binary() {
        let (file, own) = (binary.to_string_lossy(), own.to_string_lossy());
        for missing in &mut missing {
            missing.why = missing.why.replace(&*file, &own);
        }
    }
    (probes, missing)
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

/// Timeout for the trace to begin.
const START_TIMEOUT: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// So much longer than the host the guest traces, s: the host begins later.
const LONGER_S: u64 = 5;
/// The agent hands a file out slowly: more is not fetched, bytes.
const MAX_GUEST_BYTES: u64 = 64 << 20;

/// A trace of the guest's side under way: by the vmtax in the guest, which QEMU's guest agent starts.
pub(super) struct GuestTrace {
    program: GuestProgram,
    /// Path of the trace in the guest.
    file: String,
}

impl GuestTrace {
    /// Starts the vmtax at this path of the guest; it traces by now, and for longer than `time`.
    pub fn start(vm: &Vm, vmtax: &str, time: Duration) -> Result<GuestTrace, VmmError> {
        let file = format!("/run/vmtax-{}.trace", std::process::id());
        let duration = format!("{}s", time.as_secs() + 1 + LONGER_S);
        let arguments = [
            "agent",
            "observe",
            "--duration",
            &duration,
            "--output",
            &file,
        ];
        let trace = GuestTrace {
            program: GuestProgram::start(vm, vmtax, &arguments)?,
            file,
        };
        let deadline = Instant::now() + START_TIMEOUT;
        // It makes the file once all is set up.
        while !trace.program.has_file(&trace.file) {
            if let Some(said) = trace.program.failure()? {
                return Err(VmmError::InGuest(format!("{vmtax} in the guest: {said}")));
            }
            if Instant::now() > deadline {
                return Err(VmmError::InGuest(format!(
                    "{vmtax} in the guest does not begin to trace"
                )));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(trace)
    }

    /// Waits for its end, and fetches its file into those of the trial.
    pub fn fetch(self, trial: &mut TrialFiles) -> Result<(), MachineError> {
        let GuestTrace { program, file } = self;
        let fetched = program.wait().map_err(MachineError::from).and_then(|()| {
            let mut take = |bytes: &[u8]| {
                trial
                    .append(files::GUEST_FILE, bytes)
                    .map_err(failed("storing the guest's trace"))
            };
            program.read_file(&file, MAX_GUEST_BYTES, &mut take)
        });
        program.remove_file(&file)?;
        fetched
    }
}
