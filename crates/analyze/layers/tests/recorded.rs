//! Traces of real trials, small: a Linux guest under TCG, the same with eight requests at once, the micro-guest under KVM.

#![allow(clippy::unwrap_used)] // helpers of tests

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use vmtax_findings::State;
use vmtax_layers::{JoinedTrial, LayersError, VmTrial, join, join_vm};
use vmtax_model::{
    Checkpoint, Machine, ObservedGuest, Probes, Series, TraceFacts, TrialRecord, WorkloadName,
    WorkloadSpec,
};
use vmtax_trace::{Entry, Folder};

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/recorded")
        .join(name)
}

fn record(machine: Machine) -> TrialRecord {
    let workload = WorkloadSpec::new(WorkloadName::Disk).with("block-size", "4K");
    TrialRecord {
        probes: Probes::Layers,
        ..vmtax_model::testing::trial(machine, workload)
    }
}

fn joined(name: &str, machine: Machine) -> JoinedTrial {
    let trial = join(&recorded(name), &record(machine)).unwrap();
    closes(&trial);
    trial
}

/// Each request's segments fill its way, and its way lies within its stamps.
fn closes(trial: &JoinedTrial) {
    for request in &trial.requests {
        assert!(request.begin() <= request.first() && request.last() <= request.end());
        assert!(request.segments.iter().all(|p| p.ticks > 0));
        let times: Vec<u64> = request.checkpoints().map(|(_, at)| at).collect();
        assert!(times.windows(2).all(|w| w[0] <= w[1]));
    }
}

fn have(trial: &JoinedTrial, checkpoints: &[Checkpoint]) {
    for request in &trial.requests {
        for checkpoint in checkpoints {
            assert!(
                request.at(*checkpoint).is_some(),
                "{checkpoint:?} of {}",
                request.key
            );
        }
    }
}

/// The device's time, found in another way: by the sectors that the trace itself names.
fn device_ticks(folder: &Path) -> HashMap<u64, u64> {
    let facts: TraceFacts =
        serde_json::from_slice(&fs::read(folder.join("trace.json")).unwrap()).unwrap();
    let trace = Folder::open(&folder.join("host-trace")).unwrap();
    let id = |name| trace.formats().event("block", name).unwrap();
    let (issue, complete) = (id("block_rq_issue"), id("block_rq_complete"));
    let mut issued: HashMap<u64, u64> = HashMap::new();
    let mut took = HashMap::new();
    let mut events = trace.events().unwrap();
    while let Some(entry) = events.next().unwrap() {
        let Entry::Event(event) = entry else { continue };
        if event.id != issue && event.id != complete {
            continue;
        }
        let place = trace
            .formats()
            .field(event.id, "sector")
            .unwrap()
            .unsigned(event.data)
            .unwrap()
            * 512;
        if event.id == issue {
            issued.insert(place, event.ticks);
        } else if let (Some(at), Some(extent)) = (
            issued.remove(&place),
            facts
                .host_disk
                .extents
                .iter()
                .find(|e| (e.device..e.device + e.length).contains(&place)),
        ) {
            took.insert(place - extent.device + extent.file, event.ticks - at);
        }
    }
    took
}

#[test]
fn a_linux_guest() {
    let trial = joined("tcg", Machine::TCG);
    assert_eq!((trial.matched.operations, trial.matched.joined), (40, 40));
    assert_eq!((trial.clock.violations, trial.matched.lost_events), (0, 0));
    assert!(trial.clock.bound_ns < 500.0, "{:?}", trial.clock);
    have(
        &trial,
        &[
            Checkpoint::GuestCall,
            Checkpoint::GuestIssue,
            Checkpoint::QemuPop,
            Checkpoint::QemuSubmit,
            Checkpoint::HostCall,
            Checkpoint::HostIssue,
            Checkpoint::QemuPush,
        ],
    );
    have(
        &trial,
        &[
            Checkpoint::GuestNotify,
            Checkpoint::GuestInterrupt,
            Checkpoint::GuestComplete,
            Checkpoint::GuestReturn,
        ],
    );
    let device = device_ticks(&recorded("tcg"));
    for request in &trial.requests {
        let took = request.at(Checkpoint::HostComplete).unwrap()
            - request.at(Checkpoint::HostIssue).unwrap();
        assert_eq!(device.get(&request.key), Some(&took), "{}", request.key);
        // The main loop takes the request from the ring, and nobody else works for it until the disk does.
        assert_eq!(trial.name(request.who(Checkpoint::QemuPop)), "main loop");
        assert_eq!(
            trial.name(request.who(Checkpoint::HostComplete)),
            "host kernel"
        );
    }
    let unexplained: u64 = trial
        .requests
        .iter()
        .map(|r| r.total() - (r.last() - r.first()))
        .sum();
    let total: u64 = trial.requests.iter().map(|r| r.total()).sum();
    assert!(
        (unexplained as f64) < 0.05 * total as f64,
        "{unexplained} of {total}"
    );
}

/// A host with few of its system calls recorded, and idle between them, whose kernel does not trace every switch.
#[test]
fn a_linux_guest_by_few_system_calls() {
    let trial = joined("tcg-few-calls", Machine::TCG);
    assert_eq!((trial.matched.operations, trial.matched.joined), (40, 40));
    assert_eq!(
        (
            trial.clock.violations,
            trial.matched.lost_events,
            trial.missing.len()
        ),
        (0, 0, 0)
    );
    have(
        &trial,
        &[
            Checkpoint::QemuWake,
            Checkpoint::QemuPop,
            Checkpoint::HostCall,
            Checkpoint::HostIssue,
            Checkpoint::QemuReap,
        ],
    );
    let time = |to: Checkpoint, states: &[State]| -> u64 {
        let segments = trial
            .requests
            .iter()
            .flat_map(|r| &r.segments)
            .filter(|p| p.to == to && states.contains(&p.state));
        segments.map(|p| p.ticks).sum()
    };
    // What QEMU's probes saw, its thread did on a CPU: nothing of that waits for one.
    for to in [
        Checkpoint::QemuPop,
        Checkpoint::QemuSubmit,
        Checkpoint::QemuPush,
        Checkpoint::QemuNotify,
    ] {
        let (runs, not) = (
            time(to, &[State::Running]),
            time(to, &[State::Runnable, State::CpuWakeUp, State::Waiting]),
        );
        assert!(runs > not, "{to:?}: {runs} on a CPU, {not} not");
    }
    assert!(
        time(Checkpoint::QemuWake, &[State::CpuWakeUp]) > 0
            && time(Checkpoint::QemuReap, &[State::CpuWakeUp]) > 0
    );
}

#[test]
fn what_is_gone_or_cannot_be_read_is_said() {
    let missing = |damage: &dyn Fn(&Path)| {
        let folder = copy("tcg-few-calls");
        damage(folder.path());
        join(folder.path(), &record(Machine::TCG)).unwrap().missing
    };
    let says = |missing: &[vmtax_model::Missing], what: &str| {
        missing.iter().any(|m| m.what.contains(what))
    };
    assert!(says(
        &missing(&|p| fs::remove_dir_all(p.join("guest-trace")).unwrap()),
        "guest's kernel"
    ));
    assert!(says(
        &missing(&|p| fs::remove_file(p.join("host-trace/header_page")).unwrap()),
        "host's kernel"
    ));
    let without_sector = missing(&|p| {
        let path = p.join("guest-trace/formats/block.block_rq_issue");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace(" sector;", " place;")).unwrap();
    });
    assert!(
        says(&without_sector, "block:block_rq_issue"),
        "{without_sector:?}"
    );
    let nested = missing(&|p| {
        let path = p.join("host-trace/stats");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(
            &path,
            text.replacen("commit overrun: 0", "commit overrun: 7", 1),
        )
        .unwrap();
    });
    assert!(
        nested.iter().any(|m| m.why.starts_with("7 events")),
        "{nested:?}"
    );
}

#[test]
fn eight_requests_at_once() {
    let trial = joined("tcg-depth-8", Machine::TCG);
    assert_eq!((trial.matched.operations, trial.matched.joined), (24, 24));
    have(
        &trial,
        &[
            Checkpoint::GuestIssue,
            Checkpoint::QemuPop,
            Checkpoint::HostIssue,
            Checkpoint::QemuPush,
            Checkpoint::GuestComplete,
        ],
    );
    let device = device_ticks(&recorded("tcg-depth-8"));
    for request in &trial.requests {
        let took = request.at(Checkpoint::HostComplete).unwrap()
            - request.at(Checkpoint::HostIssue).unwrap();
        assert_eq!(device.get(&request.key), Some(&took), "{}", request.key);
        // Who was not notified of it, found it in the ring.
        let in_ring = request.segments.iter().any(|p| p.state == State::InRing);
        assert_eq!(in_ring, request.at(Checkpoint::GuestNotify).is_none());
    }
    assert!(
        trial
            .requests
            .iter()
            .any(|r| r.at(Checkpoint::GuestNotify).is_none())
    );
}

#[test]
fn the_micro_guest() {
    let trial = joined("micro-kvm", Machine::MICRO_KVM);
    assert_eq!((trial.matched.operations, trial.matched.joined), (12, 12));
    assert!(trial.clock.bound_ns < 100.0, "{:?}", trial.clock);
    have(
        &trial,
        &[
            Checkpoint::QemuPop,
            Checkpoint::HostIssue,
            Checkpoint::QemuPush,
            Checkpoint::QemuNotify,
            Checkpoint::Inject,
        ],
    );
    for request in &trial.requests {
        assert_eq!(request.at(Checkpoint::GuestIssue), None);
        assert_eq!(request.last() - request.first(), request.total());
    }
    // A device that just begins looks into the ring by itself, before it is told.
    for request in &trial.requests[1..] {
        assert!(
            request.at(Checkpoint::KvmNotify).is_some()
                && request.at(Checkpoint::QemuWake).is_some()
        );
        assert_eq!(trial.name(request.who(Checkpoint::KvmNotify)), "vCPU 0");
    }
}

/// A copy of a recorded trial, to be damaged.
fn copy(name: &str) -> tempfile::TempDir {
    fn all(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().flatten() {
            let to = to.join(entry.file_name());
            if entry.path().is_dir() {
                all(&entry.path(), &to)
            } else {
                _ = fs::copy(entry.path(), to).unwrap()
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    all(&recorded(name), folder.path());
    folder
}

#[test]
fn what_is_damaged_is_named() {
    let error = |damage: &dyn Fn(&Path)| {
        let folder = copy("micro-kvm");
        damage(folder.path());
        join(folder.path(), &record(Machine::MICRO_KVM)).unwrap_err()
    };
    let put = |path: &Path, name: &str, bytes: &[u8]| fs::write(path.join(name), bytes).unwrap();
    let missing = error(&|p| fs::remove_file(p.join("ops.series")).unwrap());
    assert!(
        matches!(&missing, LayersError::Read { path, .. } if path.ends_with("ops.series")),
        "{missing}"
    );
    assert!(matches!(
        error(&|p| put(p, "ops.series", b"x")),
        LayersError::Series { .. }
    ));
    assert!(matches!(
        error(&|p| put(p, "trace.json", b"{}")),
        LayersError::Facts { .. }
    ));
    assert!(matches!(
        error(&|p| put(p, "host-trace/header_page", b"\t")),
        LayersError::Trace(_)
    ));
    let clock = error(&|p| put(p, "host-trace/clock", b"local\n"));
    assert!(
        clock.to_string().contains("'local'") && clock.to_string().contains("x86-tsc"),
        "{clock}"
    );
}

#[test]
fn a_cut_trace_drops_requests_and_counts_them() {
    let folder = copy("tcg");
    for name in ["bound.cpu0.raw", "bound.cpu1.raw"] {
        let path = folder.path().join("host-trace").join(name);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    }
    let trial = join(folder.path(), &record(Machine::TCG)).unwrap();
    closes(&trial);
    let rejected: u64 = trial.matched.rejected.iter().map(|(_, count)| count).sum();
    assert_eq!(trial.matched.joined + rejected, 40);
    assert!(trial.matched.joined < 40, "{:?}", trial.matched);
}

#[test]
fn a_wrong_page_and_a_full_buffer_are_losses() {
    let folder = copy("tcg");
    let path = folder.path().join("host-trace/bound.cpu0.raw");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 4096 / 2 * 4096;
    bytes[middle + 8..middle + 16].fill(0xff);
    fs::write(&path, bytes).unwrap();
    let trial = join(folder.path(), &record(Machine::TCG)).unwrap();
    assert!(
        trial.matched.lost_events > 0 && trial.matched.joined < 40,
        "{:?}",
        trial.matched
    );
    // Whatever lay on that page was lost, and nothing else is wrong.
    assert!(
        trial
            .matched
            .rejected
            .iter()
            .all(|(reason, _)| reason.contains("lost")),
        "{:?}",
        trial.matched
    );

    let folder = copy("tcg");
    let path = folder.path().join("host-trace/stats");
    let stats =
        fs::read_to_string(&path)
            .unwrap()
            .replacen("dropped events: 0", "dropped events: 5", 1);
    fs::write(&path, stats).unwrap();
    let trial = join(folder.path(), &record(Machine::TCG)).unwrap();
    assert_eq!(trial.matched.lost_events, 5);
}

/// Without exchanges of stamps, cause and effect among the requests bound the clocks.
#[test]
fn causes_and_effects_bound_the_clocks_too() {
    let folder = copy("tcg");
    let path = folder.path().join("trace.json");
    let mut facts: TraceFacts = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    facts.pings.clear();
    fs::write(&path, serde_json::to_vec(&facts).unwrap()).unwrap();
    let trial = join(folder.path(), &record(Machine::TCG)).unwrap();
    assert_eq!((trial.matched.joined, trial.clock.violations), (40, 0));
    assert_eq!(
        trial.clock.source,
        "estimated from the order of events of a request"
    );
    assert!(trial.clock.bound_ns < 60_000.0, "{:?}", trial.clock);
}

/// A clock that was set meanwhile: every request contradicts cause and effect, and none is joined in silence.
#[test]
fn a_wrong_offset_joins_nothing() {
    let folder = copy("micro-kvm");
    let path = folder.path().join("ops.series");
    let mut series = Series::from_bytes(&fs::read(&path).unwrap()).unwrap();
    for operation in &mut series.operations {
        operation.begin += 200_000;
        operation.end += 200_000;
    }
    fs::write(&path, series.to_bytes()).unwrap();
    let trial = join(folder.path(), &record(Machine::MICRO_KVM)).unwrap();
    assert_eq!(
        (trial.matched.joined, trial.clock.violations),
        (0, 12),
        "{:?}",
        trial.matched
    );
}

/// A KVM guest that somebody else started, traced by its host and, for longer, by `vmtax agent observe` in it: its disk answers
/// after 20 ms.
#[test]
fn a_running_vm_and_its_guest() {
    let folder = recorded("observed");
    let trials = join_vm(&folder).unwrap();
    let [
        VmTrial {
            device: disk,
            joined,
            ..
        },
    ] = trials.as_slice()
    else {
        panic!("{}", trials.len())
    };
    assert_eq!(
        (
            disk.as_str(),
            joined.matched.operations,
            joined.matched.joined
        ),
        ("late0 (vda)", 16, 16)
    );
    assert_eq!(
        (
            joined.clock.bound_ns,
            joined.clock.violations,
            joined.matched.lost_events
        ),
        (0.0, 0, 0)
    );
    assert!(
        joined.clock.source.contains("reads as it is"),
        "{:?}",
        joined.clock
    );
    closes(joined);
    have(
        joined,
        &[
            Checkpoint::GuestIssue,
            Checkpoint::QemuPop,
            Checkpoint::QemuSubmit,
            Checkpoint::QemuPush,
            Checkpoint::QemuNotify,
            Checkpoint::GuestInterrupt,
            Checkpoint::GuestComplete,
        ],
    );
    assert!(
        joined
            .requests
            .iter()
            .all(|request| joined.ns(request.total()) > 20e6)
    );
    // Without the guest's trace the host's part is the same requests, each shorter.
    let host = copy("observed");
    fs::remove_file(host.path().join("guest-facts.json")).unwrap();
    let alone = &join_vm(host.path()).unwrap()[0];
    assert_eq!(alone.device, "late0");
    let mean = |trial: &JoinedTrial| {
        trial
            .requests
            .iter()
            .map(|request| request.total())
            .sum::<u64>()
            / trial.requests.len() as u64
    };
    assert!(alone.joined.matched.joined >= 16 && mean(&alone.joined) < mean(joined));
}

/// A guest whose counter is another: its requests tell by how much. One of another disk has nothing in common with the host.
#[test]
fn a_guests_clock_is_found_by_its_requests() {
    const OFFSET: u64 = 1 << 40;
    let folder = copy("observed");
    let facts = folder.path().join("guest-facts.json");
    let mut guest: ObservedGuest = serde_json::from_slice(&fs::read(&facts).unwrap()).unwrap();
    let path = folder.path().join("guest-trace/free.cpu0.raw");
    let mut pages = fs::read(&path).unwrap();
    for page in pages.chunks_mut(4096) {
        let ticks = u64::from_le_bytes(page[..8].try_into().unwrap());
        page[..8].copy_from_slice(&(ticks - OFFSET).to_le_bytes());
    }
    fs::write(&path, pages).unwrap();
    (guest.begin, guest.end) = (guest.begin - OFFSET, guest.end - OFFSET);
    fs::write(&facts, serde_json::to_vec(&guest).unwrap()).unwrap();
    let joined = &join_vm(folder.path()).unwrap()[0].joined;
    assert_eq!((joined.matched.joined, joined.clock.violations), (16, 0));
    assert_eq!(
        joined.clock.source,
        "estimated from the order of events of a request"
    );
    assert!(
        (1.0..200_000.0).contains(&joined.clock.bound_ns),
        "{:?}",
        joined.clock
    );

    guest.disks[0].disk.device += 16;
    fs::write(&facts, serde_json::to_vec(&guest).unwrap()).unwrap();
    let error = join_vm(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains("had a request") && error.contains("agent observe"),
        "{error}"
    );
}
