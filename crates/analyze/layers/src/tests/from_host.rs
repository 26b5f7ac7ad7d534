//! Requests of which the host alone tells, and those that nobody stamped: a command's.

use super::{START, alone, batches, deep, times};
use crate::disk::NOWHERE;
use crate::events::{GuestEvent, HostEvent, Mark};
use crate::join::joiner::Join;
use crate::join::{Joined, Reason};
use crate::synthetic::{
    IO_SUBMIT, MAIN, OTHER, QUEUE, READER, Times, Truth, VCPU, World, facts, found,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use vmtax_findings::RequestKind;
use vmtax_model::Checkpoint;

/// Returns the join's result from the host's events alone.
pub(super) fn join(world: &World) -> Joined {
    let mut join = Join::from_host(&facts());
    World {
        guest: Vec::new(),
        ..world.clone()
    }
    .feed(&mut join, |t| t, |_| {});
    join.finish()
}

/// The part of a request's truth that the host sees.
fn on_host(truth: &Truth, from: Checkpoint) -> BTreeMap<Checkpoint, u64> {
    truth
        .checkpoints
        .range(from..=Checkpoint::Inject)
        .map(|(checkpoint, at)| (*checkpoint, *at))
        .collect()
}

proptest! {
    #[test]
    fn each_request_alone_comes_out_from_its_kick_to_its_interrupt(all in prop::collection::vec(times(), 1..8)) {
        let world = alone(&all);
        let joined = join(&world);
        prop_assert_eq!(joined.requests.len(), all.len());
        for ((request, truth), times) in joined.requests.iter().zip(&world.truth).zip(&all) {
            let found = found(request);
            prop_assert_eq!((found.offset, request.kind), (truth.offset, RequestKind::Read));
            let from = if times.kick { Checkpoint::KvmNotify } else { Checkpoint::QemuWake };
            prop_assert_eq!(on_host(&found, from), on_host(truth, from));
            let last = truth.checkpoints[&Checkpoint::Inject];
            prop_assert_eq!(request.end(), last);
            let states = |truth: &Truth| -> BTreeMap<_, u64> {
                let between = |checkpoint| checkpoint > Checkpoint::QemuWake && checkpoint <= Checkpoint::Inject;
                truth.states.iter().filter(|((to, _), _)| between(*to)).map(|(key, ticks)| (*key, *ticks)).collect()
            };
            prop_assert_eq!(states(&found), states(truth));
            let segments: u64 = request.segments.iter().map(|segment| segment.ticks).sum();
            prop_assert_eq!(segments, request.total());
        }
    }

    #[test]
    fn of_many_at_once_each_is_followed_in_qemu_and_below(batches in batches()) {
        let world = deep(&batches);
        let joined = join(&world);
        prop_assert_eq!(&joined.rejected, &[]);
        prop_assert_eq!(joined.requests.len(), world.truth.len());
        let mut truths: BTreeMap<(u64, u64), &Truth> =
            world.truth.iter().map(|truth| ((truth.offset, truth.checkpoints[&Checkpoint::QemuPop]), truth)).collect();
        for request in &joined.requests {
            let found = found(request);
            let pop = found.checkpoints[&Checkpoint::QemuPop];
            let truth = truths.remove(&(found.offset, pop)).unwrap();
            let mut found = on_host(&found, Checkpoint::QemuPop);
            // Where the guest sees the completion by itself, QEMU's notification comes too late to count.
            if !truth.checkpoints.contains_key(&Checkpoint::QemuNotify) {
                found.remove(&Checkpoint::QemuNotify);
            }
            prop_assert_eq!(found, on_host(truth, Checkpoint::QemuPop));
        }
    }
}

#[test]
fn a_kick_that_kvm_does_not_show_is_the_waking_by_a_vcpu() {
    let world = alone(&[Times {
        kick: false,
        ..Times::default()
    }]);
    let request = &join(&world).requests[0];
    let wake = request.at(Checkpoint::QemuWake).unwrap();
    let kick = request.at(Checkpoint::KvmNotify).unwrap();
    assert!(
        kick < wake && request.begin() == kick,
        "{kick} {wake} {}",
        request.begin()
    );
    let wakings = world
        .host
        .iter()
        .filter(|event| event.tid == VCPU && event.at == kick);
    assert_eq!(wakings.count(), 1);
}

#[test]
fn what_the_loop_finds_after_it_has_submitted_begins_with_its_pop() {
    let tick_at = |n: u64| START + n * 100;
    let mut world = World::new(START - 100);
    let mark = |address: u64, offset: u64| Mark {
        address: Some(address),
        offset: Some(offset),
        queue: Some(QUEUE),
        kind: Some(RequestKind::Read),
        bytes: 4096,
        ..Mark::default()
    };
    let mut pass =
        |n, checkpoint, mark| world.on_host(tick_at(n), MAIN, HostEvent::Passes(checkpoint, mark));
    pass(1, Checkpoint::KvmNotify, Mark::default());
    pass(3, Checkpoint::QemuPop, mark(1, 0));
    pass(4, Checkpoint::QemuPop, mark(2, 4096));
    pass(5, Checkpoint::QemuSubmit, mark(1, 0));
    pass(6, Checkpoint::QemuSubmit, mark(2, 4096));
    pass(7, Checkpoint::QemuPop, mark(3, 8192));
    pass(8, Checkpoint::QemuSubmit, mark(3, 8192));
    (1..=3).for_each(|n| pass(10 + n, Checkpoint::QemuPush, mark(n, 0)));
    world.on_host(tick_at(2), MAIN, HostEvent::Woke);
    let begins: Vec<u64> = join(&world)
        .requests
        .iter()
        .map(|request| request.begin())
        .collect();
    assert_eq!(begins, [tick_at(1), tick_at(1), tick_at(7)]);
}

#[test]
fn a_flush_has_no_place_and_one_whose_push_was_lost_is_counted() {
    let mut world = World::new(START - 100);
    let mark = |kind| Mark {
        address: Some(7),
        offset: Some(0),
        queue: Some(QUEUE),
        kind: Some(kind),
        bytes: 1,
        ..Mark::default()
    };
    let mut pass = |n: u64, checkpoint, kind| {
        world.on_host(START + n, MAIN, HostEvent::Passes(checkpoint, mark(kind)));
    };
    pass(0, Checkpoint::QemuPop, RequestKind::Write);
    pass(10, Checkpoint::QemuPop, RequestKind::Flush);
    pass(20, Checkpoint::QemuPush, RequestKind::Flush);
    pass(30, Checkpoint::QemuPush, RequestKind::Flush);
    let joined = join(&world);
    assert_eq!(
        joined
            .requests
            .iter()
            .map(|r| (r.kind, r.key))
            .collect::<Vec<_>>(),
        [(RequestKind::Flush, 0)]
    );
    let reasons: Vec<_> = joined.rejected.iter().map(|r| (r.kind, r.reason)).collect();
    assert_eq!(
        reasons,
        [(RequestKind::Write, Reason::Missing(Checkpoint::QemuPush))]
    );
}

#[test]
fn where_a_format_maps_the_call_of_a_request_that_is_alone_is_its_own() {
    const WORKER: i32 = 105;
    const PREADV: u32 = 295;
    let mut world = World::new(START - 100);
    let mark = |address: u64| Mark {
        address: Some(address),
        offset: Some(address * 4096),
        queue: Some(QUEUE),
        kind: Some(RequestKind::Read),
        bytes: 4096,
        ..Mark::default()
    };
    let mut request = |at: u64, addresses: &[u64]| {
        let mut pass = |n, checkpoint, address| {
            world.on_host(at + n, MAIN, HostEvent::Passes(checkpoint, mark(address)))
        };
        addresses
            .iter()
            .for_each(|&address| pass(address, Checkpoint::QemuPop, address));
        addresses
            .iter()
            .for_each(|&address| pass(10 + address, Checkpoint::QemuSubmit, address));
        addresses
            .iter()
            .for_each(|&address| pass(40 + address, Checkpoint::QemuPush, address));
        // Elsewhere in the file than in the guest; and one of another file.
        world.enter(at + 15, WORKER, PREADV, [8, 0, 1, 0]);
        world.on_host(at + 16, WORKER, HostEvent::Exit);
        world.enter(at + 20, WORKER, PREADV, [9, 0, 1, 1 << 30]);
        world.on_host(at + 30, WORKER, HostEvent::Exit);
        world.on_host(at + 35, MAIN, HostEvent::Woke);
    };
    request(START, &[1]);
    request(START + 1000, &[2, 3]);
    let joined = join(&world);
    let calls: Vec<_> = joined
        .requests
        .iter()
        .map(|r| r.at(Checkpoint::HostCall))
        .collect();
    assert_eq!(calls, [Some(START + 20), None, None]);
    assert_eq!(
        joined.requests[0].at(Checkpoint::QemuReap),
        Some(START + 35)
    );
}

#[test]
fn a_request_of_which_an_account_alone_tells_is_where_its_thread_submits_it() {
    let mut world = World::new(START - 100);
    let account = |cookie: u64, kind: Option<RequestKind>, bytes: u64| Mark {
        address: Some(cookie),
        kind,
        bytes,
        ..Mark::default()
    };
    let submit = |address: u64, offset: u64, bytes: u64| Mark {
        address: Some(address),
        offset: Some(offset),
        bytes,
        ..Mark::default()
    };
    let mut pass = |n: u64, tid, checkpoint, mark| {
        world.on_host(START + n, tid, HostEvent::Passes(checkpoint, mark))
    };
    pass(
        0,
        VCPU,
        Checkpoint::QemuPop,
        account(1, Some(RequestKind::Read), 4096),
    );
    // Another thread's, and one of another length, are those of others.
    pass(1, MAIN, Checkpoint::QemuSubmit, submit(90, 1 << 20, 4096));
    pass(2, VCPU, Checkpoint::QemuSubmit, submit(91, 2 << 20, 512));
    pass(3, VCPU, Checkpoint::QemuSubmit, submit(92, 3 << 20, 4096));
    pass(
        4,
        VCPU,
        Checkpoint::QemuPop,
        account(2, Some(RequestKind::Flush), 0),
    );
    pass(
        5,
        VCPU,
        Checkpoint::QemuPop,
        account(3, Some(RequestKind::Write), 8192),
    );
    pass(6, VCPU, Checkpoint::QemuSubmit, submit(93, 4 << 20, 4096));
    (1..=3).for_each(|cookie| {
        pass(
            20 + cookie,
            MAIN,
            Checkpoint::QemuPush,
            account(cookie, None, 1),
        )
    });
    pass(30, MAIN, Checkpoint::Inject, Mark::default());
    let joined = join(&world);
    let found: Vec<_> = joined
        .requests
        .iter()
        .map(|r| (r.kind, r.key, r.at(Checkpoint::QemuSubmit)))
        .collect();
    let expected = [
        (RequestKind::Read, 3 << 20, Some(START + 3)),
        (RequestKind::Flush, 0, None),
        (RequestKind::Write, 4 << 20, Some(START + 6)),
    ];
    assert_eq!(found, expected);
    assert!(
        joined
            .requests
            .iter()
            .all(|request| request.end() == START + 30),
        "none has a virtqueue to notify"
    );
}

#[test]
fn an_interrupt_is_the_requests_if_the_notifying_thread_delivers_it_before_it_waits() {
    let ends = |inject: (u64, i32), waits: u64| {
        let mut world = World::new(START - 100);
        let mark = Mark {
            address: Some(7),
            offset: Some(0),
            queue: Some(QUEUE),
            ..Mark::default()
        };
        let mut pass = |n, tid, checkpoint, mark| {
            world.on_host(START + n, tid, HostEvent::Passes(checkpoint, mark))
        };
        pass(0, MAIN, Checkpoint::QemuPop, mark);
        pass(10, MAIN, Checkpoint::QemuPush, mark);
        pass(
            20,
            MAIN,
            Checkpoint::QemuNotify,
            Mark {
                queue: Some(QUEUE + 1),
                ..Mark::default()
            },
        );
        pass(
            30,
            MAIN,
            Checkpoint::QemuNotify,
            Mark {
                queue: Some(QUEUE),
                ..Mark::default()
            },
        );
        pass(inject.0, inject.1, Checkpoint::Inject, Mark::default());
        world.on_host(START + waits, MAIN, HostEvent::Woke);
        join(&world).requests[0].end() - START
    };
    assert_eq!(ends((40, MAIN), 50), 40);
    assert_eq!(ends((40, OTHER), 50), 30, "another thread's");
    assert_eq!(ends((60, MAIN), 50), 30, "of other work");
}

/// One of QEMU's threads for calls that block, which the facts do not name.
const WORKER: i32 = 103;
const FDATASYNC: u32 = 75;

fn at(n: u64) -> u64 {
    START + n * 100
}

/// A flush, whose place in the ring is 0, and in the guest nowhere.
fn flush(world: &mut World, pushed: Mark) {
    flush_by(world, pushed, WORKER, FDATASYNC, 8);
}

/// A flush by the call that this thread makes, and when that returns.
fn flush_by(world: &mut World, pushed: Mark, tid: i32, call: u32, returned: u64) {
    let popped = Mark {
        address: Some(7),
        offset: Some(0),
        queue: Some(QUEUE),
        ..Mark::default()
    };
    world.in_guest(at(0), READER, GuestEvent::Insert { offset: NOWHERE });
    world.in_guest(
        at(1),
        READER,
        GuestEvent::Issue {
            offset: NOWHERE,
            bytes: 0,
            kind: RequestKind::Flush,
        },
    );
    world.in_guest(at(2), READER, GuestEvent::Passes(Checkpoint::GuestNotify));
    world.on_host(at(3), MAIN, HostEvent::Woke);
    world.on_host(at(4), MAIN, HostEvent::Passes(Checkpoint::QemuPop, popped));
    world.enter(at(5), tid, call, [9, 0, 0, 0]);
    world.on_host(at(returned), tid, HostEvent::Exit);
    world.on_host(at(9), MAIN, HostEvent::Woke);
    world.on_host(
        at(10),
        MAIN,
        HostEvent::Passes(Checkpoint::QemuPush, pushed),
    );
    world.on_host(
        at(11),
        MAIN,
        HostEvent::Passes(
            Checkpoint::QemuNotify,
            Mark {
                queue: Some(QUEUE),
                ..Mark::default()
            },
        ),
    );
    world.on_host(
        at(12),
        MAIN,
        HostEvent::Passes(Checkpoint::Inject, Mark::default()),
    );
    world.interrupt_in_guest(at(13), GuestEvent::Passes(Checkpoint::GuestInterrupt));
    world.interrupt_in_guest(at(14), GuestEvent::Complete { offset: NOWHERE });
}

#[test]
fn a_flush_is_followed_through_the_call_that_makes_it() {
    let mut world = World::new(START - 100);
    flush(
        &mut world,
        Mark {
            address: Some(7),
            offset: None,
            queue: Some(QUEUE),
            ..Mark::default()
        },
    );
    let joined = world.join_unstamped();
    assert_eq!(joined.rejected, []);
    let request = &joined.requests[0];
    assert_eq!(
        (request.kind, request.key, request.total()),
        (RequestKind::Flush, 0, 1400)
    );
    let expected = [
        (Checkpoint::Begin, at(0)),
        (Checkpoint::GuestIssue, at(1)),
        (Checkpoint::GuestNotify, at(2)),
        (Checkpoint::QemuWake, at(3)),
        (Checkpoint::QemuPop, at(4)),
        (Checkpoint::HostCall, at(5)),
        (Checkpoint::QemuReap, at(9)),
        (Checkpoint::QemuPush, at(10)),
        (Checkpoint::QemuNotify, at(11)),
        (Checkpoint::Inject, at(12)),
        (Checkpoint::GuestInterrupt, at(13)),
        (Checkpoint::GuestComplete, at(14)),
        (Checkpoint::End, at(14)),
    ];
    assert_eq!(request.checkpoints().collect::<Vec<_>>(), expected);
}

#[test]
fn a_flush_that_the_kernel_does_behind_its_submission_has_that_call() {
    let mut world = World::new(START - 100);
    let pushed = Mark {
        address: Some(7),
        offset: None,
        queue: Some(QUEUE),
        ..Mark::default()
    };
    flush_by(&mut world, pushed, MAIN, IO_SUBMIT, 6);
    let joined = world.join_unstamped();
    let checkpoints: Vec<_> = joined.requests[0].checkpoints().collect();
    let expected = [
        (Checkpoint::QemuPop, at(4)),
        (Checkpoint::HostCall, at(5)),
        (Checkpoint::QemuReap, at(9)),
        (Checkpoint::QemuPush, at(10)),
    ];
    assert!(
        checkpoints.windows(4).any(|part| part == expected),
        "{checkpoints:?}"
    );
}

#[test]
fn a_request_that_a_full_ring_gave_back_began_when_it_was_first_there() {
    let mut world = World::new(START - 100);
    let write = |bytes| GuestEvent::Issue {
        offset: 8192,
        bytes,
        kind: RequestKind::Write,
    };
    world.in_guest(at(0), READER, GuestEvent::Insert { offset: 8192 });
    world.in_guest(at(1), READER, GuestEvent::Insert { offset: 12_288 }); // merged with it
    world.in_guest(at(2), READER, write(8192));
    world.in_guest(at(5), READER, write(8192));
    world.interrupt_in_guest(at(9), GuestEvent::Complete { offset: 8192 });
    // One at the merged one's place, which is none of its.
    world.in_guest(
        at(20),
        READER,
        GuestEvent::Issue {
            offset: 12_288,
            bytes: 4096,
            kind: RequestKind::Write,
        },
    );
    world.interrupt_in_guest(at(23), GuestEvent::Complete { offset: 12_288 });
    let parts = world.join_unstamped().parts;
    let times: Vec<_> = parts
        .iter()
        .map(|p| (p.begin(), p.issue.at, p.complete.at))
        .collect();
    assert_eq!(times, [(at(0), at(5), at(9)), (at(20), at(20), at(23))]);
}

#[test]
fn what_is_still_under_way_at_the_end_is_no_request_and_a_contradiction_is_none_either() {
    let mut world = World::new(START - 100);
    // Pushed before it was popped, as no request is.
    flush(
        &mut world,
        Mark {
            address: Some(7),
            offset: None,
            queue: Some(QUEUE),
            ..Mark::default()
        },
    );
    world
        .host
        .retain(|e| !matches!(e.what, HostEvent::Passes(Checkpoint::QemuPush, _)));
    world.on_host(
        at(3),
        MAIN,
        HostEvent::Passes(
            Checkpoint::QemuPush,
            Mark {
                address: Some(7),
                offset: None,
                queue: Some(QUEUE),
                ..Mark::default()
            },
        ),
    );
    world.in_guest(
        at(20),
        READER,
        GuestEvent::Issue {
            offset: 4096,
            bytes: 4096,
            kind: RequestKind::Write,
        },
    );
    let joined = world.join_unstamped();
    let rejected: Vec<_> = joined
        .rejected
        .iter()
        .map(|r| (r.kind, r.begin, r.end, r.reason))
        .collect();
    assert_eq!(
        rejected,
        [(RequestKind::Flush, at(0), at(14), Reason::Violation)]
    );
    assert_eq!((joined.requests.len(), joined.parts.len()), (0, 1));
}
