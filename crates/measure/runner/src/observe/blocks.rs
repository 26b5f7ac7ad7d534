//! The checkpoints of block requests, of round trips over the network, or QEMU's system calls, in one trial: the host's side of it.

use super::observer::{Observation, Observer, PING, answered, failed, keep_in};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use vmtax_clock::time_of_day;
use vmtax_model::{
    DiskBus, EventCost, HostDisk, Missing, Moment, Ping, Probes, QemuThread, Role, SCHEMA, Side,
    TraceFacts, files,
};
use vmtax_observe::{HostDevice, ProbeError, ProbeSet, Tracer};
use vmtax_recording::TrialFiles;
use vmtax_vm::{DISK_DEVICE, MachineError, NET_DEVICE, Observed, RunningMachine, network_device};
use vmtax_vmm::{Vm, VmmError};

/// Each CPU's trace, on the host: some 200 bytes an event of the ten or so threads of a QEMU, for 100,000 requests.
const BUFFER_KIB: u32 = 64 << 10;

/// Traces the host's side; the guest agent traces the guest's side.
pub(super) struct BlockObserver {
    vm: Vm,
    store: TrialFiles,
    /// The guest's device, as the monitor names it.
    device: &'static str,
    disk: Option<PathBuf>,
    host_disk: HostDisk,
    tracer: Option<Tracer>,
    is_kvm: bool,
    /// Rather than QEMU's system calls.
    follows_requests: bool,
    log: Option<EventLog>,
    pings: Vec<Result<Ping, MachineError>>,
    missing: Vec<Missing>,
}

impl BlockObserver {
    pub fn start(
        vm: Vm,
        machine: &mut dyn RunningMachine,
        what: &Observation<'_>,
        store: TrialFiles,
    ) -> Result<BlockObserver, MachineError> {
        let mut missing = Vec::new();
        let host_disk = what.disk.as_deref().map_or_else(HostDisk::default, |file| {
            vmtax_observe::host_disk(file).unwrap_or_else(|error| {
                missing.push(no_host_disk(&error));
                HostDisk::default()
            })
        });
        let network = machine.network_threads();
        let tracer = host_tracer(&vm, what, &host_disk, &network, &mut missing);
        let pings = vec![machine.ping(PING)];
        if let Some(tracer) = &tracer {
            tracer.on().map_err(failed("starting to trace"))?;
        }
        let log = what
            .events
            .clone()
            .map(|path| EventLog::begin(&vm, path))
            .transpose()?;
        Ok(BlockObserver {
            vm,
            store,
            device: device(what.probes),
            disk: what.disk.clone(),
            host_disk,
            tracer,
            is_kvm: what.machine.is_kvm(),
            follows_requests: !what.probes.checkpoints().is_empty(),
            log,
            pings,
            missing,
        })
    }

    fn store_file(&mut self, name: &str, bytes: &[u8]) -> Result<(), String> {
        // The workload has ended: the transfer of the guest's trace is not part of it.
        self.tracer
            .as_ref()
            .map_or(Ok(()), Tracer::off)
            .map_err(|e| e.to_string())?;
        let name = if name == files::SERIES {
            name.to_owned()
        } else {
            format!("{}/{name}", files::GUEST)
        };
        self.store.append(&name, bytes).map_err(|e| e.to_string())
    }

    /// Stores the host's trace; the costs of its events, where requests are followed.
    fn store_trace(&mut self) -> Result<Vec<EventCost>, MachineError> {
        let Some(tracer) = self.tracer.take() else {
            return Ok(Vec::new());
        };
        tracer
            .save(&mut keep_in(files::HOST, &mut self.store))
            .map_err(failed("storing the host's trace"))?;
        drop(tracer);
        if !self.follows_requests {
            return Ok(Vec::new());
        }
        let costs = vmtax_observe::event_costs(Side::Host).map_err(|error| {
            let missing = Missing::for_error(vmtax_observe::COST_OF_EVENTS, &error);
            self.missing.push(missing);
        });
        Ok(costs.unwrap_or_default())
    }
}

impl Observer for BlockObserver {
    fn file(&mut self, name: &str, bytes: &[u8]) -> Option<Result<(), String>> {
        Some(self.store_file(name, bytes))
    }

    /// Stores the traces and the facts that decode them in the trial's files.
    fn stop(
        mut self: Box<Self>,
        machine: &mut dyn RunningMachine,
        observed: Option<Observed>,
    ) -> Result<(), MachineError> {
        let is_traced = self.tracer.is_some();
        if let Some(tracer) = &self.tracer {
            tracer.off().map_err(failed("ending to trace"))?;
        }
        // Holes of the file have extents once they are written.
        let disk = self.disk.as_deref();
        if let Some(after) = disk.and_then(|file| vmtax_observe::host_disk(file).ok()) {
            self.host_disk = after;
        }
        let log = self.log.take();
        let moments = log
            .map(|log| log.end(&self.vm, &mut self.store))
            .transpose()?;
        self.pings.push(machine.ping(PING));
        // Asked after the trial: a guest may place its device only when it first uses it.
        let monitor = self.vm.monitor();
        let notify = monitor.map_or(Ok(Vec::new()), |monitor| monitor.regions(self.device))?;
        let qemu_threads = self.vm.threads().into_iter();
        let threads = qemu_threads.chain(machine.network_threads()).collect();
        let host_costs = self.store_trace()?;
        let pings = answered(std::mem::take(&mut self.pings), &mut self.missing);
        let mut facts = TraceFacts {
            schema: SCHEMA,
            tsc_mhz: vmtax_clock::host_mhz(),
            qemu: self.vm.pid(),
            threads,
            pings,
            moments: moments.unwrap_or_default(),
            kvm_offset: vmtax_observe::kvm_offset(self.vm.pid()),
            host_disk: self.host_disk,
            notify,
            host_costs,
            missing: self.missing,
            ..TraceFacts::default()
        };
        if let Some(observed) = observed {
            add_guests_side(&mut facts, observed, self.is_kvm && is_traced);
        }
        self.store
            .store(files::FACTS, &facts)
            .map_err(failed("storing the trace's facts"))
    }
}

/// Adds what the guest's agent says of its own tracing. `shows_doorbells`: whether KVM's events do on the host.
fn add_guests_side(facts: &mut TraceFacts, observed: Observed, shows_doorbells: bool) {
    facts.guest_disk = observed.disk;
    facts.guest_nic = observed.nic.map(|nic| *nic);
    facts.guest_costs = observed.costs;
    // KVM's events show the doorbell itself, right behind the kick.
    let is_shown =
        |missing: &Missing| shows_doorbells && missing.what == vmtax_observe::VIRTQUEUE_KICKS;
    let missing = observed.missing.into_iter();
    facts.missing.extend(missing.filter(|m| !is_shown(m)));
}

/// QEMU's own log of block requests, for the time of one trial.
struct EventLog {
    path: PathBuf,
    /// Where the trial's part begins, bytes.
    from: u64,
    moments: Vec<Moment>,
}

impl EventLog {
    fn begin(vm: &Vm, path: PathBuf) -> Result<EventLog, MachineError> {
        let from = path.metadata().map_or(0, |m| m.len());
        log_events(vm, true)?;
        Ok(EventLog {
            path,
            from,
            moments: vec![time_of_day()],
        })
    }

    /// Stores the trial's part; gives the moments of its begin and its end.
    fn end(mut self, vm: &Vm, store: &mut TrialFiles) -> Result<Vec<Moment>, MachineError> {
        self.moments.push(time_of_day());
        log_events(vm, false)?;
        let say = failed("storing QEMU's own events");
        let mut file = File::open(&self.path).map_err(&say)?;
        file.seek(SeekFrom::Start(self.from)).map_err(&say)?;
        let mut piece = vec![0; 1 << 20];
        let name = format!("{}/{}", files::HOST, files::QEMU_LOG);
        loop {
            let read = file.read(&mut piece).map_err(&say)?;
            if read == 0 {
                return Ok(self.moments);
            }
            store
                .append(&name, &piece[..read])
                .map_err(failed("storing QEMU's own events"))?;
        }
    }
}

fn log_events(vm: &Vm, on: bool) -> Result<(), VmmError> {
    vm.monitor()
        .map_or(Ok(()), |monitor| monitor.log_events(on))
}

/// Returns true if this process can trace the host's kernel: it tries.
pub(crate) fn may_trace() -> bool {
    let (own, behind) = ([std::process::id() as i32], HostDevice::Blocks(&[]));
    let layers = Probes::Layers.checkpoints();
    let set = ProbeSet::host(layers, &own, behind, false, Vec::new(), Vec::new());
    Tracer::start(&set, 4).is_ok()
}

/// A tracer of QEMU and the host's kernel; `None`, with the reason in `missing`, if it is not permitted.
fn host_tracer(
    vm: &Vm,
    what: &Observation<'_>,
    disk: &HostDisk,
    network: &[QemuThread],
    missing: &mut Vec<Missing>,
) -> Option<Tracer> {
    let of_qemu = vmtax_observe::thread_names(vm.pid())
        .into_iter()
        .map(|(tid, _)| tid);
    let threads: Vec<i32> = of_qemu
        .chain(network.iter().map(|thread| thread.tid))
        .collect();
    let set = match what.probes {
        Probes::Calls => ProbeSet::calls(&threads),
        _ => request_probes(vm, what, disk, network, &threads),
    };
    match Tracer::start(&set, BUFFER_KIB) {
        Ok(tracer) => {
            missing.extend_from_slice(tracer.missing());
            Some(tracer)
        }
        Err(error) => {
            missing.push(Missing {
                what: "KVM, QEMU and the host's kernel".to_owned(),
                why: error.to_string(),
                fix: "run vmtax as root".to_owned(),
            });
            None
        }
    }
}

/// The probes on the host that follow the requests of the guest's device.
fn request_probes(
    vm: &Vm,
    what: &Observation<'_>,
    disk: &HostDisk,
    network: &[QemuThread],
    threads: &[i32],
) -> ProbeSet {
    let binary = vm
        .binary()
        .or_else(|| what.program.map(|program| program.path().to_owned()))
        .unwrap_or_default();
    let (tap, disks) = ([network_device()], [disk]);
    // A command's card is on QEMU's user network, where its packets end in QEMU.
    let interfaces = if network.is_empty() { &[][..] } else { &tap };
    let (points, behind) = match what.probes {
        Probes::Network => (
            vm.network_probe_points(),
            HostDevice::Interfaces(interfaces),
        ),
        _ => (
            vm.disk_probe_points(DiskBus::VirtioBlk),
            HostDevice::Blocks(&disks),
        ),
    };
    let (uprobes, missing) = vmtax_observe::uprobes(points, &binary);
    let (checkpoints, kvm) = (what.probes.checkpoints(), what.machine.is_kvm());
    let mut set = ProbeSet::host(checkpoints, threads, behind, kvm, uprobes, missing);
    let passt = network
        .iter()
        .filter(|thread| thread.role.is_other(Role::PASST));
    set.add_notifications(&passt.map(|thread| thread.tid).collect::<Vec<_>>());
    // The micro-guest places its device only when it first uses it.
    let placed = vm.monitor().filter(|_| what.machine.has_kernel());
    let doorbells = placed.and_then(|monitor| monitor.regions(device(what.probes)).ok());
    set.keep_doorbells(&doorbells.unwrap_or_default());
    set
}

/// The guest's device whose requests are traced, as the monitor names it.
fn device(probes: Probes) -> &'static str {
    if probes == Probes::Network {
        NET_DEVICE
    } else {
        DISK_DEVICE
    }
}

fn no_host_disk(error: &ProbeError) -> Missing {
    Missing {
        what: "the host's disk".to_owned(),
        why: error.to_string(),
        fix: "choose a directory on a file system of a disk with --dir".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use vmtax_model::testing::host;
    use vmtax_model::{KvmClass, Machine, Plan, WorkloadName, WorkloadSpec};
    use vmtax_recording::Writer;

    #[test]
    fn a_trials_part_of_a_long_log_is_stored_whole() {
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan::new(
            "quick",
            1,
            vec![Machine::NATIVE],
            vec![WorkloadSpec::new(WorkloadName::Cpu)],
        );
        let writer = Writer::create_at(
            &folder.path().join("run"),
            &plan,
            &host(KvmClass::Absent),
            &[],
            "1",
        )
        .unwrap();
        let mut store = writer.trial_files(0).unwrap();
        let path = folder.path().join("log");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"before\n").unwrap();
        let vm = Vm::attach(std::process::id() as i32);
        let log = EventLog::begin(&vm, path).unwrap();
        let lines: String = (0..300_000).map(|line| format!("{line}\n")).collect();
        file.write_all(lines.as_bytes()).unwrap();
        assert_eq!(log.end(&vm, &mut store).unwrap().len(), 2);
        let stored =
            std::fs::read_to_string(store.folder().join(files::HOST).join(files::QEMU_LOG))
                .unwrap();
        assert!(stored == lines, "{} bytes of {}", stored.len(), lines.len());
    }
}
