//! Requests that nobody stamped: a command's.

use super::START;
use crate::disk::NOWHERE;
use crate::events::{GuestEvent, HostEvent, Mark};
use crate::join::Reason;
use crate::synthetic::{IO_SUBMIT, MAIN, QUEUE, READER, World};
use vmtax_findings::RequestKind;
use vmtax_model::Checkpoint;

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
