//! Cases that real trials have, one at a time: no block device, a polling guest, requests that are split or merged,
//! lost events.

use super::{START, alone};
use crate::events::decode::Loss;
use crate::events::{Event, GuestEvent, HostEvent, Mark};
use crate::findings::column_sums::ColumnSums;
use crate::join::{Joined, Reason, View};
use crate::synthetic::deep::Batch;
use crate::synthetic::{
    BLOCK, CALL, MAIN, PPOLL, QUEUE, READER, Times, VCPU, World, found, on_device,
};
use crate::trial::TrialData;
use crate::trial::joined_trial::JoinedTrial;
use std::collections::BTreeMap;
use vmtax_findings::{ClockFinding, RequestKind, State};
use vmtax_model::{Checkpoint, EventKind, Layer, Role, Side, Stamped};

pub fn made_up() -> ClockFinding {
    ClockFinding {
        bound_ns: 0.0,
        source: "made up".into(),
        drift_ns: 0.0,
        violations: 0,
    }
}

pub fn trial(world: &World, losses: &[Loss]) -> JoinedTrial {
    let data = TrialData {
        losses: losses.to_vec(),
        costs: world.costs.iter().map(|cost| (Side::Host, *cost)).collect(),
        ..data(world.join(View::Kernel, 0, |t| t))
    };
    JoinedTrial::new(data)
}

/// Of a trial whose tick is a nanosecond.
pub fn data(joined: Joined) -> TrialData {
    TrialData {
        joined,
        losses: Vec::new(),
        clock: made_up(),
        mhz: 1000.0,
        missing: Vec::new(),
        first: None,
        costs: Vec::new(),
    }
}

/// Means of the rows, by their ends and state.
fn rows(world: &World) -> BTreeMap<(Checkpoint, Checkpoint, State), f64> {
    let mut sums = ColumnSums::default();
    sums.add(0, &trial(world, &[]));
    let count = sums.total.count();
    sums.rows
        .iter()
        .map(|(k, d)| ((k.from, k.to, k.state), d.summary_of(count).mean_ns))
        .collect()
}

type Change = (fn(&mut Times), Checkpoint, State);

/// Everything that takes time, made longer one by one: that row grows by it, and no other by anything.
#[test]
fn what_is_added_shows_in_its_row_alone() {
    const MORE: u64 = 777;
    let usual = Times {
        interval: [400; vmtax_model::Checkpoint::COUNT],
        kworker_waits: Some(30),
        vcpu_preempted: 40,
        wake_runnable: 50,
        lock: 60,
        lock_runnable: 70,
        reap_waiting: 80,
        reap_runnable: 90,
        push_preempted: 100,
        interrupt_runnable: 110,
        return_runnable: 120,
        kick: true,
    };
    let before = rows(&alone(&[usual; 9]));
    let check = |times: Times, to: Checkpoint, state: State| {
        let after = rows(&alone(&[times; 9]));
        assert_eq!(
            before.keys().collect::<Vec<_>>(),
            after.keys().collect::<Vec<_>>()
        );
        for (key, ns) in &after {
            let more = if (key.1, key.2) == (to, state) {
                MORE as f64
            } else {
                0.0
            };
            assert!(
                (ns - before[key] - more).abs() < 1e-6,
                "{to:?} {state:?}: {key:?} {} {ns}",
                before[key]
            );
        }
    };
    for checkpoint in &Checkpoint::ALL[2..18] {
        let mut times = usual;
        times.interval[*checkpoint as usize] += MORE;
        check(times, *checkpoint, State::Running);
    }
    let waits: [Change; 9] = [
        (
            |t| t.kworker_waits = Some(30 + MORE),
            Checkpoint::GuestIssue,
            State::GuestRunnable,
        ),
        (
            |t| t.vcpu_preempted += MORE,
            Checkpoint::GuestIssue,
            State::Runnable,
        ),
        (
            |t| t.wake_runnable += MORE,
            Checkpoint::QemuWake,
            State::Runnable,
        ),
        (|t| t.lock += MORE, Checkpoint::QemuPop, State::Lock),
        (
            |t| t.lock_runnable += MORE,
            Checkpoint::QemuPop,
            State::Runnable,
        ),
        (
            |t| t.reap_waiting += MORE,
            Checkpoint::QemuReap,
            State::Waiting,
        ),
        (
            |t| t.reap_runnable += MORE,
            Checkpoint::QemuReap,
            State::Runnable,
        ),
        (
            |t| t.push_preempted += MORE,
            Checkpoint::QemuPush,
            State::Runnable,
        ),
        (
            |t| t.interrupt_runnable += MORE,
            Checkpoint::GuestInterrupt,
            State::Runnable,
        ),
    ];
    for (change, checkpoint, state) in waits {
        let mut times = usual;
        change(&mut times);
        check(times, checkpoint, state);
    }
}

#[test]
fn what_lies_outside_of_all_events_is_unexplained() {
    let mut times = Times::default();
    times.interval[Checkpoint::GuestCall as usize] = 5000;
    times.interval[Checkpoint::End as usize] = 700;
    let trial = trial(&alone(&[times; 3]), &[]);
    for request in &trial.requests {
        let explained: u64 = request.segments.iter().map(|p| p.ticks).sum();
        assert_eq!(request.total() - explained, 5700);
    }
}

#[test]
fn requests_that_overlap_a_loss_are_dropped_and_counted() {
    let world = alone(&[Times::default(); 10]);
    let at = world.operations[3].begin + 50;
    let losses = [
        Loss {
            from: at,
            to: at + 1,
            events: 7,
        },
        Loss {
            from: world.operations[9].end,
            to: u64::MAX,
            events: 2,
        },
    ];
    let trial = trial(&world, &losses);
    assert_eq!(
        (
            trial.matched.operations,
            trial.matched.joined,
            trial.matched.lost_events
        ),
        (10, 8, 9)
    );
    assert_eq!(
        trial.matched.rejected,
        [("events were lost while it was in flight".to_owned(), 2)]
    );
}

#[test]
fn a_request_that_lacks_what_the_others_have_is_counted_by_what() {
    let mut world = alone(&[Times::default(); 30]);
    let mut pops = 0;
    world.host.retain(|e| {
        pops += usize::from(matches!(e.what, HostEvent::Passes(Checkpoint::QemuPop, _)));
        !(matches!(e.what, HostEvent::Passes(Checkpoint::QemuPop, _)) && pops == 5)
    });
    let trial = trial(&world, &[]);
    assert_eq!(
        trial.matched.rejected,
        [("missing event: QEMU takes request".to_owned(), 1)]
    );
    // An operation that the page cache answered has no request at all.
    world.operations.push(Stamped {
        begin: world.end() + 1,
        end: world.end() + 9,
        key: 0,
    });
    let joined = world.join(View::Kernel, 0, |t| t);
    assert_eq!(
        joined.rejected.last().map(|r| r.reason),
        Some(Reason::NoRequest)
    );
}

/// A checkpoint that no kernel or QEMU of a trial traces is no checkpoint of the trial: its interval joins the next.
#[test]
fn checkpoints_that_nobody_saw_drop_out_and_sums_close() {
    let whole = alone(&[Times::default(); 5]);
    type Gone = fn(&HostEvent) -> bool;
    let without: [(Gone, Checkpoint, Checkpoint, Layer); 4] = [
        (
            |h| matches!(h, HostEvent::Passes(Checkpoint::QemuPop, _)),
            Checkpoint::QemuWake,
            Checkpoint::QemuSubmit,
            Layer::Qemu,
        ),
        (
            |h| matches!(h, HostEvent::Passes(Checkpoint::QemuSubmit, _)),
            Checkpoint::QemuPop,
            Checkpoint::HostCall,
            Layer::Qemu,
        ),
        (
            |h| matches!(h, HostEvent::Passes(Checkpoint::KvmNotify, _)),
            Checkpoint::GuestNotify,
            Checkpoint::QemuWake,
            Layer::Notify,
        ),
        (
            |h| matches!(h, HostEvent::Passes(Checkpoint::QemuNotify, _)),
            Checkpoint::QemuPush,
            Checkpoint::Inject,
            Layer::Interrupt,
        ),
    ];
    for (gone, from, to, layer) in without {
        let mut world = whole.clone();
        world.host.retain(|e| !gone(&e.what));
        let trial = trial(&world, &[]);
        assert_eq!(trial.matched.joined, 5, "{from:?} {to:?}");
        for (request, truth) in trial.requests.iter().zip(&world.truth) {
            assert_eq!(
                request.last() - request.first(),
                truth.checkpoints[&Checkpoint::GuestReturn]
                    - truth.checkpoints[&Checkpoint::GuestCall]
            );
            let segment = request.segments.iter().find(|p| p.to == to).unwrap();
            let key = trial.common_path.key(segment);
            assert_eq!((key.from, key.to, key.layer()), (from, to, layer));
        }
    }
}

/// QEMU's own log knows a request by its address alone when it gives it back.
#[test]
fn a_push_without_a_place_is_known_by_its_address() {
    let mut world = alone(&[Times::default(); 5]);
    world.host.retain(|e| {
        matches!(
            e.what,
            HostEvent::Passes(Checkpoint::QemuPop, _)
                | HostEvent::Passes(Checkpoint::QemuPush, _)
                | HostEvent::Passes(Checkpoint::QemuNotify, _)
        )
    });
    for event in &mut world.host {
        if let HostEvent::Passes(Checkpoint::QemuPush, element) = &mut event.what {
            (element.offset, element.queue) = (None, None);
        }
    }
    let joined = world.join(View::Kernel, 0, |t| t);
    for (request, truth) in joined.requests.iter().zip(&world.truth) {
        for checkpoint in [
            Checkpoint::QemuPop,
            Checkpoint::QemuPush,
            Checkpoint::QemuNotify,
            Checkpoint::GuestInterrupt,
        ] {
            assert_eq!(
                request.at(checkpoint),
                Some(truth.checkpoints[&checkpoint]),
                "{checkpoint:?}"
            );
        }
    }
}

/// A guest that does not trace still shows QEMU's side and the host's.
#[test]
fn without_the_guests_trace_the_rest_is_followed() {
    let mut world = alone(&[Times::default(); 5]);
    world.guest.clear();
    let joined = world.join(View::Blind, 0, |t| t);
    assert_eq!(joined.rejected, []);
    for (request, truth) in joined.requests.iter().zip(&world.truth) {
        for checkpoint in [
            Checkpoint::KvmNotify,
            Checkpoint::QemuPop,
            Checkpoint::HostIssue,
            Checkpoint::QemuPush,
            Checkpoint::Inject,
        ] {
            assert_eq!(
                request.at(checkpoint),
                truth.checkpoints.get(&checkpoint).copied(),
                "{checkpoint:?}"
            );
        }
        assert_eq!(request.at(Checkpoint::GuestIssue), None);
        assert_eq!(request.last(), truth.checkpoints[&Checkpoint::Inject]);
    }
}

/// The micro-guest's own stamps lie right before the notification and where its driver sees the completion. One that
/// polls sees it before QEMU notifies.
#[test]
fn a_micro_guest_that_polls() {
    let mut world = alone(&[Times::default(); 5]);
    world.guest.clear();
    for (operation, truth) in world.operations.iter_mut().zip(&world.truth) {
        operation.begin = truth.checkpoints[&Checkpoint::GuestNotify];
        operation.end = truth.checkpoints[&Checkpoint::QemuPush] + 5;
    }
    let joined = world.join(View::Driver, 0, |t| t);
    assert_eq!(joined.rejected, []);
    for (request, truth) in joined.requests.iter().zip(&world.truth) {
        assert_eq!(request.at(Checkpoint::QemuNotify), None);
        assert_eq!(request.at(Checkpoint::Inject), None);
        assert_eq!(request.last(), truth.checkpoints[&Checkpoint::QemuPush] + 5);
        // Nothing is unexplained: the driver's stamps are the workload's.
        assert_eq!(
            request.segments.iter().map(|p| p.ticks).sum::<u64>(),
            request.total()
        );
    }
}

/// The pool's threads call pread themselves; the file lies on no block device.
#[test]
fn a_worker_thread_reads_from_no_block_device() {
    const WORKER: i32 = 777;
    const PREAD: u32 = 17;
    let mut world = World::default();
    let at = START;
    let (offset, bytes) = (8 * BLOCK, BLOCK);
    let element = Mark {
        address: Some(1),
        offset: Some(offset),
        queue: Some(QUEUE),
        ..Mark::default()
    };
    world.in_guest(at + 1, READER, CALL);
    world.in_guest(
        at + 10,
        READER,
        GuestEvent::Issue {
            offset,
            bytes,
            kind: RequestKind::Read,
        },
    );
    world.in_guest(at + 11, READER, GuestEvent::Passes(Checkpoint::GuestNotify));
    world.enter(at - 50, MAIN, PPOLL, [0; 4]);
    world.on_host(at + 20, MAIN, HostEvent::Exit);
    world.on_host(
        at + 22,
        MAIN,
        HostEvent::Passes(Checkpoint::QemuPop, element),
    );
    world.on_host(
        at + 24,
        MAIN,
        HostEvent::Passes(Checkpoint::QemuSubmit, Mark::range(offset, bytes)),
    );
    world.enter(at + 26, MAIN, PPOLL, [0; 4]);
    world.enter(at + 28, WORKER, PREAD, [3, 0, bytes, offset + BLOCK]);
    world.on_host(at + 29, WORKER, HostEvent::Exit);
    world.enter(at + 30, WORKER, PREAD, [3, 0, bytes, offset]);
    world.on_host(at + 60, WORKER, HostEvent::Exit);
    world.on_host(at + 65, MAIN, HostEvent::Exit);
    world.on_host(
        at + 70,
        MAIN,
        HostEvent::Passes(Checkpoint::QemuPush, element),
    );
    world.on_host(
        at + 72,
        MAIN,
        HostEvent::Passes(
            Checkpoint::QemuNotify,
            Mark {
                queue: Some(QUEUE),
                ..Mark::default()
            },
        ),
    );
    world.interrupt_in_guest(at + 80, GuestEvent::Passes(Checkpoint::GuestInterrupt));
    world.interrupt_in_guest(at + 82, GuestEvent::Complete { offset });
    world.in_guest(at + 90, READER, GuestEvent::Exit);
    world.operations.push(Stamped {
        begin: at,
        end: at + 91,
        key: offset,
    });
    let joined = world.join(View::Kernel, 0, |t| t);
    let request = found(&joined.requests[0]);
    assert_eq!(request.checkpoints[&Checkpoint::HostCall], at + 30);
    assert_eq!(request.checkpoints[&Checkpoint::QemuReap], at + 65);
    assert!(!request.checkpoints.contains_key(&Checkpoint::HostIssue));
    // A thread that the facts do not name, because it ended before.
    assert_eq!(
        joined.threads.last().map(|t| (t.tid, t.role.clone())),
        Some((WORKER, Role::Worker))
    );
    assert_eq!(
        crate::trial::joined_trial::layer(Checkpoint::HostCall, Checkpoint::QemuReap),
        Layer::HostKernel
    );
}

/// The guest's block layer makes two requests of one operation: it ends with the one that completes last.
#[test]
fn an_operation_in_two_parts_ends_with_the_later_one() {
    let mut world = alone(&[Times::default()]);
    let (begin, end) = (world.operations[0].begin, world.operations[0].end);
    let (first, whole) = (
        BLOCK / 2,
        world.truth[0].checkpoints[&Checkpoint::GuestComplete],
    );
    // The other half, issued right after the call, done before.
    let extra = [
        Event {
            at: begin + 110,
            cpu: 0,
            tid: READER,
            interrupt: false,
            kind: EventKind::Tracepoint,
            what: GuestEvent::Issue {
                offset: first,
                bytes: first,
                kind: RequestKind::Read,
            },
        },
        Event {
            at: whole - 5,
            interrupt: true,
            what: GuestEvent::Complete { offset: first },
            ..world.guest[0]
        },
    ];
    world.guest.extend(extra);
    let joined = world.join(View::Kernel, 0, |t| t);
    assert_eq!(
        joined.requests[0].at(Checkpoint::GuestComplete),
        Some(whole)
    );
    assert_eq!(
        (joined.requests[0].begin(), joined.requests[0].end()),
        (begin, end)
    );
}

/// The host's block layer may make two of one, and one of them takes longer.
#[test]
fn a_request_that_the_host_splits_is_done_with_its_last_part() {
    let mut world = alone(&[Times::default()]);
    let (issue, complete) = (
        world.truth[0].checkpoints[&Checkpoint::HostIssue],
        world.truth[0].checkpoints[&Checkpoint::HostComplete],
    );
    let half = BLOCK / 2;
    for event in &mut world.host {
        if let HostEvent::OnDevice(_, Mark { bytes, .. }) = &mut event.what {
            *bytes = half;
        }
    }
    world.on_host(
        issue + 1,
        MAIN,
        HostEvent::OnDevice(Checkpoint::HostIssue, Mark::range(on_device(half), half)),
    );
    world.interrupt_on_host(
        complete - 20,
        HostEvent::OnDevice(Checkpoint::HostComplete, Mark::range(on_device(half), half)),
    );
    let joined = world.join(View::Kernel, 0, |t| t);
    assert_eq!(
        joined.requests[0].at(Checkpoint::HostComplete),
        Some(complete)
    );
    // Now the second is the slower.
    world.interrupt_on_host(
        complete + 1,
        HostEvent::OnDevice(Checkpoint::HostComplete, Mark::range(on_device(half), half)),
    );
    let joined = world.join(View::Kernel, 0, |t| t);
    assert_eq!(
        joined.requests[0].at(Checkpoint::HostComplete),
        Some(complete + 1)
    );
}

/// A disk in memory is done before the call that submits returns, and nobody waits: the return tells of it.
#[test]
fn a_disk_that_is_done_within_the_call() {
    let mut world = alone(&[Times::default()]);
    let time_at = |world: &World, s: Checkpoint| world.truth[0].checkpoints[&s];
    let (issue, reap) = (
        time_at(&world, Checkpoint::HostIssue),
        time_at(&world, Checkpoint::QemuReap),
    );
    let submitted =
        |e: &Event<HostEvent>| e.at > issue && e.at < time_at(&world, Checkpoint::QemuPush);
    let mut host: Vec<Event<HostEvent>> = world
        .host
        .iter()
        .filter(|e| !submitted(e))
        .copied()
        .collect();
    std::mem::swap(&mut world.host, &mut host);
    world.interrupt_on_host(
        issue + 5,
        HostEvent::OnDevice(Checkpoint::HostComplete, Mark::range(on_device(0), BLOCK)),
    );
    world.on_host(reap, MAIN, HostEvent::Exit);
    let joined = world.join(View::Kernel, 0, |t| t);
    assert_eq!(joined.requests[0].at(Checkpoint::QemuReap), Some(reap));
}

/// The guest's other tasks make system calls, too.
#[test]
fn the_workloads_call_is_told_from_others() {
    let mut world = alone(
        &[Times {
            kworker_waits: Some(5),
            ..Times::default()
        }; 8],
    );
    for operation in &world.operations.clone()[3..5] {
        world.in_guest(operation.begin + 1, 99, CALL);
        world.in_guest(operation.end - 1, 99, GuestEvent::Exit);
    }
    let joined = world.join(View::Kernel, 0, |t| t);
    for (request, truth) in joined.requests.iter().zip(&world.truth) {
        assert_eq!(found(request).checkpoints, truth.checkpoints);
    }
}

/// One call brings two requests; the workload takes the first, makes another call, then takes the second.
#[test]
fn a_request_that_is_back_waits_for_the_workloads_turn() {
    let batch = Batch {
        issues: vec![(5, true), (5, false)],
        wake: 10,
        merges: vec![2],
        device: vec![0],
        polled: false,
    };
    let mut world = World::new(START - 100);
    world.batch(START, 0, &batch);
    let back = world.truth[1].checkpoints[&Checkpoint::GuestReturn];
    world.in_guest(back + 10, READER, CALL);
    world.in_guest(back + 40, READER, GuestEvent::Exit);
    world.operations[1].end = back + 45;
    let joined = world.join(View::Kernel, 0, |t| t);
    let request_at = |offset: u64| joined.requests.iter().find(|r| r.key == offset).unwrap();
    assert_eq!(request_at(0).last(), back);
    let segment = request_at(BLOCK).segments.last().unwrap();
    assert_eq!(
        (
            segment.to,
            segment.ticks,
            request_at(BLOCK).end() - request_at(BLOCK).last()
        ),
        (Checkpoint::End, 40, 5)
    );
    let trial = trial(&world, &[]);
    assert_eq!(
        trial.common_path.key(segment).layer(),
        Layer::GuestApplication
    );
    // The other was issued after the notification, which makes a row of its own.
    let in_ring = request_at(BLOCK)
        .segments
        .iter()
        .find(|p| p.state == State::InRing)
        .unwrap();
    let key = trial.common_path.key(in_ring);
    assert_eq!(
        (key.from, key.to, key.layer()),
        (Checkpoint::GuestIssue, Checkpoint::QemuPop, Layer::Notify)
    );
}

/// The clock stands so that what KVM saw comes before what the guest did, by less than the bound.
#[test]
fn an_effect_right_before_its_cause_counts_as_at_the_same_time() {
    let world = alone(&[Times {
        interval: [100; vmtax_model::Checkpoint::COUNT],
        ..Times::default()
    }]);
    let joined = world.join(View::Kernel, 250, |t| t + 230);
    let request = &joined.requests[0];
    assert_eq!(
        request.at(Checkpoint::KvmNotify),
        request.at(Checkpoint::GuestNotify)
    );
    assert!(
        request
            .segments
            .iter()
            .all(|p| p.to != Checkpoint::KvmNotify)
    );
}

#[test]
fn threads_are_called_what_they_are() {
    let trial = trial(&alone(&[Times::default()]), &[]);
    let names: Vec<String> = trial.requests[0]
        .checkpoints()
        .map(|(s, _)| trial.name(trial.requests[0].who(s)))
        .collect();
    assert_eq!(
        names[..6],
        ["guest", "guest", "guest", "guest", "vCPU 0", "main loop"]
    );
    assert!(trial.threads.iter().any(|t| t.tid == VCPU));
}
