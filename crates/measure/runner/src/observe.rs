//! One trial under probes: the host's side of it.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;
use vmtax_clock::time_of_day;
use vmtax_model::{HostDisk, Machine, Missing, Moment, Ping, Probes, QemuFacts, SCHEMA, TraceFacts, files};
use vmtax_observe::{ProbeError, ProbeSet, Tracer};
use vmtax_recording::TrialFiles;
use vmtax_vm::{Files, MachineError, Observed, QemuOutside, RunningMachine};

/// How long stamps are exchanged at a time, before and after the workload.
pub(crate) const PING: Duration = Duration::from_millis(60);
/// Each processor's trace, on the host: some 200 bytes an event of the ten or so threads of a QEMU, for 100,000 requests.
const BUFFER_KIB: u32 = 64 << 10;

/// What is observed.
pub(crate) struct Observable<'a> {
    /// On which machine.
    pub machine: Machine,
    /// Its QEMU.
    pub qemu: &'a QemuFacts,
    /// The file behind its measured disk.
    pub disk: Option<PathBuf>,
    /// With what.
    pub probes: Probes,
    /// The log of QEMU's own events, where the host's kernel may not be traced.
    pub events: Option<PathBuf>,
}

/// Runs something under the probes of every layer. The traces and what it takes to read them go to the trial's files.
pub(crate) fn observed<T>(
    machine: &mut dyn RunningMachine,
    what: &Observable<'_>,
    mut store: TrialFiles,
    run: impl FnOnce(&mut dyn RunningMachine, &mut Files<'_>) -> Result<(T, Option<Observed>), MachineError>,
) -> Result<T, MachineError> {
    let outside = machine.qemu()?.ok_or(MachineError::NoAgent { machine: what.machine })?;
    let (mut missing, mut pings) = (Vec::new(), Vec::new());
    let mut host_disk = what.disk.as_deref().map_or_else(HostDisk::default, |file| {
        vmtax_observe::host_disk(file).unwrap_or_else(|error| {
            missing.push(no_host_disk(&error));
            HostDisk::default()
        })
    });
    let tracer = host_tracer(&outside, what, &host_disk, &mut missing);
    pings.push(machine.ping(PING));
    if let Some(tracer) = &tracer {
        tracer.on().map_err(failed("starting to trace"))?;
    }
    let mut log = what.events.as_deref().map(|path| EventLog::begin(machine, path)).transpose()?;
    let ran = run(machine, &mut |name, bytes| {
        // The work is done: sending what the guest saw of it is no part of it.
        tracer.as_ref().map_or(Ok(()), Tracer::off).map_err(|e| e.to_string())?;
        let name = if name == files::SERIES { name.to_owned() } else { format!("{}/{name}", files::GUEST) };
        store.append(&name, bytes).map_err(|e| e.to_string())
    });
    if let Some(tracer) = &tracer {
        tracer.off().map_err(failed("ending to trace"))?;
    }
    let (result, observed) = ran?;
    // Where a file had holes, its bytes have a place once they are written.
    if let Some(after) = what.disk.as_deref().and_then(|file| vmtax_observe::host_disk(file).ok()) {
        host_disk = after;
    }
    if let Some(log) = &mut log {
        log.end(machine, &mut store)?;
    }
    pings.push(machine.ping(PING));
    // Asked after the trial: a guest may place its device only when it first uses it.
    let notify = machine.qemu()?.map_or_else(Vec::new, |q| q.regions);
    let threads = vmtax_observe::threads(outside.pid);
    if let Some(tracer) = tracer {
        let mut keep = |name: &str, bytes: &[u8]| {
            store.append(&format!("{}/{name}", files::HOST), bytes).map_err(io::Error::other)
        };
        tracer.save(&mut keep).map_err(failed("storing the host's trace"))?;
    }
    let pings = answered(pings, &mut missing);
    let (guest_disk, missed) = observed.map_or((None, Vec::new()), |o| (o.disk, o.missing));
    missing.extend(missed);
    let facts = TraceFacts {
        schema: SCHEMA,
        tsc_mhz: vmtax_clock::host_mhz(),
        qemu: outside.pid,
        threads,
        pings,
        moments: log.map(|log| log.moments).unwrap_or_default(),
        kvm_offset: vmtax_observe::kvm_offset(outside.pid),
        host_disk,
        guest_disk,
        notify,
        missing,
    };
    let text = serde_json::to_vec_pretty(&facts).map_err(failed("storing the trace's facts"))?;
    store.append(files::FACTS, &text).map_err(failed("storing the trace's facts"))?;
    Ok(result)
}

/// QEMU's own log of block requests, for the time of one trial.
struct EventLog<'a> {
    path: &'a Path,
    /// Where the trial's part begins, bytes.
    from: u64,
    moments: Vec<Moment>,
}

impl<'a> EventLog<'a> {
    fn begin(machine: &mut dyn RunningMachine, path: &'a Path) -> Result<EventLog<'a>, MachineError> {
        let from = path.metadata().map_or(0, |m| m.len());
        machine.log_events(true)?;
        Ok(EventLog { path, from, moments: vec![time_of_day()] })
    }

    fn end(&mut self, machine: &mut dyn RunningMachine, store: &mut TrialFiles) -> Result<(), MachineError> {
        self.moments.push(time_of_day());
        machine.log_events(false)?;
        let say = failed("storing QEMU's own events");
        let mut file = File::open(self.path).map_err(&say)?;
        file.seek(SeekFrom::Start(self.from)).map_err(&say)?;
        let mut piece = vec![0; 1 << 20];
        let name = format!("{}/{}", files::HOST, files::QEMU_LOG);
        loop {
            let read = file.read(&mut piece).map_err(&say)?;
            if read == 0 {
                return Ok(());
            }
            store.append(&name, &piece[..read]).map_err(failed("storing QEMU's own events"))?;
        }
    }
}

/// Whether the host's kernel lets itself be traced: tried, not guessed from who we are.
pub(crate) fn may_trace() -> bool {
    let own = [std::process::id() as i32];
    Tracer::start(&ProbeSet::host(&own, &HostDisk::default(), false, (Vec::new(), Vec::new())), 4).is_ok()
}

/// A tracer over QEMU and the host's kernel; `None`, with the reason in `missing`, where it may not be.
fn host_tracer(
    outside: &QemuOutside,
    what: &Observable<'_>,
    disk: &HostDisk,
    missing: &mut Vec<Missing>,
) -> Option<Tracer> {
    let threads: Vec<i32> = vmtax_observe::threads(outside.pid).iter().map(|t| t.tid).collect();
    let binary = binary(outside.pid).unwrap_or_else(|| what.qemu.path.clone());
    let set = match what.probes {
        Probes::Calls => ProbeSet::calls(&threads),
        _ => {
            let kvm = what.machine.is_kvm();
            ProbeSet::host(&threads, disk, kvm, vmtax_observe::uprobes(&binary))
        }
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
                mend: "run it as root: `sudo vmtax …`".to_owned(),
            });
            None
        }
    }
}

/// The program that runs, as what was named may be a script around it. Through a loader of its own, which then is what the
/// process runs, QEMU is one of the files that it maps.
fn binary(pid: i32) -> Option<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    mapped_qemu(&maps).or_else(|| fs::read_link(format!("/proc/{pid}/exe")).ok())
}

/// The first file in a process's maps whose name begins as QEMU's.
fn mapped_qemu(maps: &str) -> Option<PathBuf> {
    // Five columns, then the path, which may have blanks.
    let paths = maps.lines().filter_map(|line| Some(Path::new(&line[line.find('/')?..])));
    let is_qemu =
        |path: &&Path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"qemu-system"));
    paths.filter(is_qemu).map(Path::to_path_buf).next()
}

fn no_host_disk(error: &ProbeError) -> Missing {
    Missing {
        what: "the host's disk".to_owned(),
        why: error.to_string(),
        mend: "choose a folder on a disk's own file system with --runs".to_owned(),
    }
}

/// The exchanges that took place; what stood in the way of the others is missing.
pub(crate) fn answered(pings: Vec<Result<Ping, MachineError>>, missing: &mut Vec<Missing>) -> Vec<Ping> {
    let mut done = Vec::new();
    for ping in pings {
        match ping {
            Ok(ping) => done.push(ping),
            Err(error) => missing.push(unpinged(&error)),
        }
    }
    done
}

/// Without exchanges, cause and effect among the requests still bound the clocks.
fn unpinged(error: &MachineError) -> Missing {
    Missing {
        what: "exchanges of stamps, which bring both sides' clocks together".to_owned(),
        why: error.to_string(),
        mend: "use a guest kernel with PCI devices in sysfs; without, requests themselves bound the clocks, less well"
            .to_owned(),
    }
}

pub(crate) fn failed<E: std::error::Error + Send + Sync + 'static>(what: &'static str) -> impl Fn(E) -> MachineError {
    move |source| MachineError::System { what: what.to_owned(), source: io::Error::other(source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemu_is_found_behind_its_loader() {
        let maps = "7f00-7f01 r--p 00000000 fe:00 12 /c/root/libc/ld-linux-x86-64.so.2\n\
                    7f02-7f03 rw-p 00000000 00:00 0 \n\
                    7f04-7f05 r-xp 00000000 fe:00 13 /c c/root/bin/qemu-system-x86_64\n";
        assert_eq!(mapped_qemu(maps), Some(PathBuf::from("/c c/root/bin/qemu-system-x86_64")));
        assert_eq!(mapped_qemu("7f00-7f01 r--p 00000000 fe:00 12 /usr/bin/other\n"), None);
        let own = binary(std::process::id() as i32).unwrap();
        assert_eq!(own, std::env::current_exe().unwrap());
    }
}
