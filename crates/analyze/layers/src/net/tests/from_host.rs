//! Packets of which the host alone tells.

use super::{PAUSE, STEP, World};
use crate::events::{HostEvent, Mark};
use crate::join::joiner::Join;
use crate::join::{Joined, Reason};
use crate::net::from_host::{VmmPart, batching};
use crate::synthetic::{MAIN, VCPU, facts};
use proptest::prelude::*;
use vmtax_findings::{BatchKind, RequestKind};
use vmtax_model::{Checkpoint as C, QemuThread, Role};
use vmtax_trace::{Leaves, Packet, Sched};

/// Another process, which sends to the guest.
pub(super) const SENDER: i32 = 500;
pub(super) const LEN: u64 = 106;
/// The kernel's address for a packet.
pub(super) const SKB: u64 = 0x100;

/// Checkpoints of a packet that the guest sends, in the order of the path, each with its thread.
pub(super) const SENT: [(C, i32); 5] = [
    (C::NetKvmKick, VCPU),
    (C::NetTxWake, MAIN),
    (C::NetTx, MAIN),
    (C::NetTapWrite, MAIN),
    (C::NetTapReceive, MAIN),
];
/// Checkpoints of a packet that the guest receives, in the order of the path, each with its thread.
pub(super) const RECEIVED: [(C, i32); 8] = [
    (C::NetHostQueue, SENDER),
    (C::NetHostXmit, SENDER),
    (C::NetRxWake, MAIN),
    (C::NetTapRead, MAIN),
    (C::NetRx, MAIN),
    (C::NetRxFill, MAIN),
    (C::NetRxNotify, MAIN),
    (C::NetInject, MAIN),
];

/// The path of a packet that the guest receives with vhost-net: the worker makes no call, so its schedule tells when it woke.
const RECEIVED_BY_VHOST: [(C, i32); 4] = [
    (C::NetHostQueue, SENDER),
    (C::NetHostXmit, SENDER),
    (C::NetTapRead, WORKER),
    (C::NetInject, WORKER),
];
const WORKER: i32 = 600;

/// The worker sleeps, and is woken a third of a step before `at`, and has a CPU a third later.
fn worker_wakes(world: &mut World, waker: i32, at: u64) {
    world.host(
        at - STEP / 3,
        waker,
        false,
        HostEvent::Sched(Sched::Waking { tid: WORKER }),
    );
    let runs = Sched::Switch {
        prev: 0,
        leaves: Leaves::Runnable,
        next: WORKER,
    };
    world.host(at, 0, false, HostEvent::Sched(runs));
}

fn worker_sleeps(world: &mut World, at: u64) {
    let sleeps = Sched::Switch {
        prev: WORKER,
        leaves: Leaves::Sleeping,
        next: 0,
    };
    world.host(at, WORKER, false, HostEvent::Sched(sleeps));
}

#[test]
fn a_vhost_worker_is_followed_by_its_schedule_and_its_work_is_a_layer_of_its_own() {
    let mut world = World::default();
    worker_sleeps(&mut world, 10);
    // One for a kick, one found behind it.
    world.host(PAUSE, VCPU, false, event(C::NetKvmKick, SKB, LEN));
    worker_wakes(&mut world, VCPU, PAUSE + STEP);
    world.host(
        PAUSE + 2 * STEP,
        WORKER,
        false,
        event(C::NetTapReceive, SKB, LEN),
    );
    world.host(
        PAUSE + 3 * STEP,
        WORKER,
        false,
        event(C::NetTapReceive, SKB, LEN),
    );
    worker_sleeps(&mut world, PAUSE + 4 * STEP);
    let begin = 2 * PAUSE;
    pass(&mut world, begin, SKB, &RECEIVED_BY_VHOST[..2]);
    worker_wakes(&mut world, SENDER, begin + 2 * STEP);
    pass(&mut world, begin + 3 * STEP, SKB, &RECEIVED_BY_VHOST[2..]);
    worker_sleeps(&mut world, begin + 5 * STEP);
    let mut facts = facts();
    facts.threads.push(QemuThread {
        tid: WORKER,
        role: Role::Vhost,
    });
    let mut join = Join::packets_from_host(&facts, VmmPart::Probes);
    world.host.iter().for_each(|event| join.host(event));
    let joined = join.finish();
    assert_eq!(joined.rejected, []);
    let passed = |request: &crate::JoinedRequest| -> Vec<(C, u64)> {
        request
            .checkpoints()
            .filter(|(checkpoint, _)| !matches!(checkpoint, C::Begin | C::End))
            .collect()
    };
    let sent = requests_of_kind(&joined, RequestKind::Transmit);
    let expected = [
        (C::NetKvmKick, 0),
        (C::NetVhostWake, 1),
        (C::NetVhostTake, 1),
        (C::NetVhostSend, 2),
    ];
    let expected = expected.into_iter().chain([(C::NetTapReceive, 2)]);
    let expected: Vec<(C, u64)> = expected
        .map(|(checkpoint, steps)| (checkpoint, PAUSE + steps * STEP))
        .collect();
    assert_eq!(passed(sent[0]), expected);
    let behind = [
        (C::NetVhostTake, 2),
        (C::NetVhostSend, 3),
        (C::NetTapReceive, 3),
    ];
    assert_eq!(
        passed(sent[1]),
        behind.map(|(checkpoint, steps)| (checkpoint, PAUSE + steps * STEP))
    );
    let received = requests_of_kind(&joined, RequestKind::Receive);
    let expected = [
        C::NetHostQueue,
        C::NetHostXmit,
        C::NetVhostReplyWake,
        C::NetVhostRead,
        C::NetInject,
    ];
    let expected: Vec<(C, u64)> = expected
        .into_iter()
        .zip((begin..).step_by(STEP as usize))
        .collect();
    assert_eq!(passed(received[0]), expected);
    for request in sent.iter().chain(&received) {
        assert_eq!(
            request
                .segments
                .iter()
                .map(|segment| segment.ticks)
                .sum::<u64>(),
            request.total()
        );
    }
}

pub(super) fn event(checkpoint: C, skb: u64, len: u64) -> HostEvent {
    let mark = Mark {
        queue: Some(1),
        bytes: if checkpoint == C::NetRx { len + 12 } else { 1 },
        ..Mark::default()
    };
    match checkpoint {
        C::NetTxWake | C::NetRxWake => HostEvent::Woke,
        C::NetTapReceive => HostEvent::Packet(
            checkpoint,
            Packet {
                skb,
                len: len - 14,
                segments: 1,
            },
        ),
        C::NetHostQueue | C::NetHostXmit | C::NetTapRead => HostEvent::Packet(
            checkpoint,
            Packet {
                skb,
                len,
                segments: 1,
            },
        ),
        _ => HostEvent::Passes(checkpoint, mark),
    }
}

/// Events a step apart, of one packet each time; gives when the last was.
pub(super) fn pass(world: &mut World, begin: u64, skb: u64, path: &[(C, i32)]) -> u64 {
    let times = (begin..).step_by(STEP as usize);
    let passed = times.zip(path).map(|(at, (checkpoint, tid))| {
        world.host(at, *tid, false, event(*checkpoint, skb, LEN));
        at
    });
    passed.last().unwrap_or(begin)
}

fn join(world: &World) -> Joined {
    let mut join = Join::packets_from_host(&facts(), VmmPart::Probes);
    world.host.iter().for_each(|event| join.host(event));
    join.finish()
}

pub(super) fn requests_of_kind(joined: &Joined, kind: RequestKind) -> Vec<&crate::JoinedRequest> {
    joined
        .requests
        .iter()
        .filter(|request| request.kind == kind)
        .collect()
}

#[test]
fn each_packet_passes_its_checkpoints_and_its_segments_fill_its_time() {
    let mut world = World::default();
    let mut at = PAUSE;
    let mut begins = Vec::new();
    for _ in 0..5 {
        let sent = at;
        let received = pass(&mut world, sent, SKB, &SENT) + PAUSE;
        at = pass(&mut world, received, SKB, &RECEIVED) + PAUSE;
        begins.push((sent, received));
    }
    let joined = join(&world);
    assert_eq!(joined.rejected, []);
    for (kind, path) in [
        (RequestKind::Transmit, &SENT[..]),
        (RequestKind::Receive, &RECEIVED[..]),
    ] {
        let all = requests_of_kind(&joined, kind);
        assert_eq!(all.len(), begins.len());
        for (request, (sent, received)) in all.into_iter().zip(&begins) {
            let begin = if kind == RequestKind::Transmit {
                *sent
            } else {
                *received
            };
            for (number, (checkpoint, _)) in path.iter().enumerate() {
                assert_eq!(
                    request.at(*checkpoint),
                    Some(begin + number as u64 * STEP),
                    "{checkpoint:?}"
                );
            }
            assert_eq!(request.total(), (path.len() as u64 - 1) * STEP);
            assert_eq!(
                request
                    .segments
                    .iter()
                    .map(|segment| segment.ticks)
                    .sum::<u64>(),
                request.total()
            );
        }
    }
}

#[test]
fn of_several_for_one_doorbell_the_first_begins_with_it() {
    let mut world = World::default();
    // A kick of another queue, and a wake-up for nothing, long before.
    pass(&mut world, 10, SKB, &SENT[..2]);
    let mut at = pass(&mut world, PAUSE, SKB, &SENT);
    for _ in 0..2 {
        at = pass(&mut world, at + STEP, SKB, &SENT[2..]);
    }
    let joined = join(&world);
    let begins: Vec<u64> = joined
        .requests
        .iter()
        .map(|request| request.begin())
        .collect();
    assert_eq!(begins, [PAUSE, PAUSE + 5 * STEP, PAUSE + 8 * STEP]);
    let batches = batching(RequestKind::Transmit, &joined.requests);
    let of_kind = |kind| {
        batches
            .iter()
            .find(|batching| batching.kind == kind)
            .map(|b| (b.packets, b.batches))
    };
    assert_eq!(
        (of_kind(BatchKind::Doorbell), of_kind(BatchKind::Write)),
        (Some((3, 1)), Some((3, 3)))
    );
}

#[test]
fn of_several_in_one_turn_of_the_loop_each_has_its_own_events() {
    let mut world = World::default();
    let at = pass(&mut world, PAUSE, SKB, &RECEIVED[..2]);
    let at = pass(&mut world, at + STEP, SKB + 1, &RECEIVED[..2]);
    // The guest wants one interrupt for both.
    let first = pass(&mut world, at + STEP, SKB, &RECEIVED[2..7]);
    let last = pass(&mut world, first + STEP, SKB + 1, &RECEIVED[3..]);
    let joined = join(&world);
    assert_eq!(joined.rejected, []);
    let ends: Vec<u64> = joined
        .requests
        .iter()
        .map(|request| request.end())
        .collect();
    assert_eq!(ends, [first, last]);
    let wakes: Vec<Option<u64>> = joined
        .requests
        .iter()
        .map(|request| request.at(C::NetRxWake))
        .collect();
    assert_eq!(wakes, [Some(at + STEP); 2]);
    let batches = batching(RequestKind::Receive, &joined.requests);
    assert_eq!(
        (batches[0].kind, batches[0].packets, batches[0].batches),
        (BatchKind::Interrupt, 2, 1)
    );
}

#[test]
fn an_interrupt_behind_a_write_to_the_tap_is_of_something_else() {
    let mut world = World::default();
    let told = pass(&mut world, PAUSE, SKB, &RECEIVED[..7]);
    world.host(told + STEP, MAIN, false, event(C::NetTapWrite, SKB, LEN));
    pass(&mut world, told + 2 * STEP, SKB, &RECEIVED[7..]);
    assert_eq!(join(&world).requests[0].end(), told);
}

#[test]
fn a_kick_that_kvm_does_not_show_is_the_waking_by_a_vcpu() {
    let mut world = World::default();
    let on_main = |leaves, prev, next| HostEvent::Sched(Sched::Switch { prev, leaves, next });
    world.host(PAUSE, MAIN, false, on_main(Leaves::Sleeping, MAIN, 0));
    world.host(
        2 * PAUSE,
        VCPU,
        false,
        HostEvent::Sched(Sched::Waking { tid: MAIN }),
    );
    world.host(2 * PAUSE + 30, 0, false, on_main(Leaves::Runnable, 0, MAIN));
    // The bottom half runs in the next turn.
    world.host(2 * PAUSE + 50, MAIN, false, HostEvent::Woke);
    world.host(2 * PAUSE + 60, MAIN, false, HostEvent::Woke);
    pass(&mut world, 2 * PAUSE + 100, SKB, &SENT[2..]);
    let joined = join(&world);
    let packet = &joined.requests[0];
    assert_eq!(
        (packet.begin(), packet.at(C::NetTxWake)),
        (2 * PAUSE, Some(2 * PAUSE + 50))
    );
}

#[test]
fn packets_that_are_dropped_or_could_be_several_are_counted() {
    let mut world = World::default();
    // Dropped by the tap: another has its address then. One that nobody has read at the end is in flight.
    pass(&mut world, PAUSE, SKB, &RECEIVED[..2]);
    pass(&mut world, 2 * PAUSE, SKB, &RECEIVED);
    // Its length in QEMU is another's.
    let at = pass(&mut world, 3 * PAUSE, SKB, &RECEIVED[..4]);
    world.host(at + STEP, MAIN, false, event(C::NetRx, SKB, 9 * LEN));
    pass(&mut world, at + 2 * STEP, SKB, &RECEIVED[5..]);
    // Two for one write; one whose write was not seen.
    let at = pass(&mut world, 4 * PAUSE, SKB, &SENT);
    world.host(at + STEP, MAIN, false, event(C::NetTapReceive, SKB, LEN));
    world.host(
        at + 2 * STEP,
        SENDER,
        false,
        event(C::NetTapReceive, SKB, LEN),
    );
    pass(&mut world, 5 * PAUSE, SKB + 1, &RECEIVED[..2]);
    let joined = join(&world);
    assert_eq!(joined.requests.len(), 2);
    let reasons: Vec<(RequestKind, Reason)> =
        joined.rejected.iter().map(|r| (r.kind, r.reason)).collect();
    assert_eq!(
        reasons,
        [
            (RequestKind::Receive, Reason::Missing(C::NetTapRead)),
            (RequestKind::Receive, Reason::Ambiguous),
            (RequestKind::Transmit, Reason::Ambiguous),
            (RequestKind::Transmit, Reason::Missing(C::NetTapWrite)),
        ]
    );
}

proptest! {
    #[test]
    fn whatever_the_host_shows_each_packet_is_in_the_order_of_its_path(
        all in prop::collection::vec((0..13_usize, 0..3_u64, 1..200_u64, any::<bool>()), 0..120)
    ) {
        let mut world = World::default();
        let mut at = PAUSE;
        let path: Vec<(C, i32)> = SENT.into_iter().chain(RECEIVED).collect();
        for (number, skb, pause, other) in all {
            let (checkpoint, tid) = path[number];
            at += pause;
            world.host(at, if other { SENDER } else { tid }, false, event(checkpoint, SKB + skb, LEN));
        }
        for request in &join(&world).requests {
            let times: Vec<u64> = request.checkpoints().map(|(_, at)| at).collect();
            prop_assert!(times.is_sorted(), "{times:?}");
            let sum: u64 = request.segments.iter().map(|segment| segment.ticks).sum();
            prop_assert_eq!(sum, request.last() - request.first());
            prop_assert!(request.total() <= at - PAUSE);
        }
    }
}
