//! Packets of a VMM that no probe shows: its calls on the tap, its wake-ups and its interrupts tell of them.

use super::from_host::{LEN, RECEIVED, SENDER, SENT, SKB, event, pass, requests_of_kind};
use super::{PAUSE, STEP, World};
use crate::events::HostEvent;
use crate::join::Joined;
use crate::join::joiner::Join;
use crate::net::from_host::{VmmPart, batching};
use crate::synthetic::{MAIN, VCPU, facts};
use proptest::prelude::*;
use vmtax_findings::{BatchKind, RequestKind};
use vmtax_model::{Checkpoint as C, QemuThread, Role, TraceFacts};
use vmtax_trace::{Leaves, Sched};

/// The VMM's descriptor of the tap.
const TAP: i32 = 9;
const READ: u32 = 0;
/// A thread of the VMM that hands work to its main thread.
const HANDS_ON: i32 = 102;
const WITHOUT_PROBES: [VmmPart; 2] = [VmmPart::QemuCalls, VmmPart::OtherCalls];

fn of_probes(checkpoint: C) -> bool {
    [C::NetTx, C::NetRx, C::NetRxFill, C::NetRxNotify].contains(&checkpoint)
}

fn without_probes(path: &[(C, i32)]) -> Vec<(C, i32)> {
    let seen = path
        .iter()
        .filter(|(checkpoint, _)| !of_probes(*checkpoint));
    seen.copied().collect()
}

fn join(world: &World, part: VmmPart) -> Joined {
    let mut facts = TraceFacts {
        tap: vec![TAP],
        ..facts()
    };
    facts.threads.push(QemuThread {
        tid: HANDS_ON,
        role: Role::Worker,
    });
    let mut join = Join::packets_from_host(&facts, part);
    world.host.iter().for_each(|event| join.host(event));
    join.finish()
}

/// The main thread turns to the tap again.
fn reads_tap(world: &mut World, at: u64) {
    let args = [TAP as u64, 0, 0, 0];
    world.host(at, MAIN, false, HostEvent::Enter { nr: READ, args });
}

fn sleeps(world: &mut World, at: u64, tid: i32) {
    let sleeps = Sched::Switch {
        prev: tid,
        leaves: Leaves::Sleeping,
        next: 0,
    };
    world.host(at, tid, false, HostEvent::Sched(sleeps));
}

/// A thread is woken, and has a CPU half a step later.
fn wakes(world: &mut World, at: u64, waker: i32, tid: i32) {
    world.host(at, waker, false, HostEvent::Sched(Sched::Waking { tid }));
    let runs = Sched::Switch {
        prev: 0,
        leaves: Leaves::Runnable,
        next: tid,
    };
    world.host(at + STEP / 2, 0, false, HostEvent::Sched(runs));
}

#[test]
fn each_packet_passes_what_the_kernel_shows() {
    let (sent, received) = (without_probes(&SENT), without_probes(&RECEIVED));
    let mut world = World::default();
    let mut at = PAUSE;
    let mut begins = Vec::new();
    for _ in 0..5 {
        let response = pass(&mut world, at, SKB, &sent) + PAUSE;
        let read = pass(&mut world, response, SKB, &received) + STEP;
        reads_tap(&mut world, read);
        begins.push((at, response));
        at = read + PAUSE;
    }
    for part in WITHOUT_PROBES {
        let joined = join(&world, part);
        assert_eq!(joined.rejected, []);
        for (kind, path) in [
            (RequestKind::Transmit, &sent),
            (RequestKind::Receive, &received),
        ] {
            let all = requests_of_kind(&joined, kind);
            assert_eq!(all.len(), begins.len());
            for (request, (sent, received)) in all.into_iter().zip(&begins) {
                let is_sent = kind == RequestKind::Transmit;
                let begin = if is_sent { sent } else { received };
                let expected = path.iter().zip((*begin..).step_by(STEP as usize));
                let expected: Vec<(C, u64)> = expected
                    .map(|((checkpoint, _), at)| (*checkpoint, at))
                    .collect();
                let passed = request.checkpoints();
                let passed = passed.filter(|(one, _)| !matches!(one, C::Begin | C::End));
                assert_eq!(passed.collect::<Vec<_>>(), expected, "{part:?}");
            }
        }
    }
}

/// Two packets are read, then one interrupt is delivered; or one after the thread has turned to the tap again.
#[test]
fn an_interrupt_is_of_all_packets_before_it_where_the_vmm_may_tell_of_several_at_once() {
    let mut world = World::default();
    let received = without_probes(&RECEIVED);
    let at = pass(&mut world, PAUSE, SKB, &received[..3]);
    let at = pass(&mut world, at + STEP, SKB + 1, &received[..2]);
    let first = pass(&mut world, at + STEP, SKB, &received[3..4]);
    reads_tap(&mut world, first + 1);
    let second = pass(&mut world, first + STEP, SKB + 1, &received[3..4]);
    reads_tap(&mut world, second + 1);
    let inject = pass(&mut world, second + STEP, SKB, &received[4..]);
    let ends = |part| -> Vec<u64> {
        let joined = join(&world, part);
        joined.requests.iter().map(|packet| packet.end()).collect()
    };
    assert_eq!(ends(VmmPart::QemuCalls), [first, second]);
    assert_eq!(ends(VmmPart::OtherCalls), [inject; 2]);
    let joined = join(&world, VmmPart::OtherCalls);
    let batches = batching(RequestKind::Receive, &joined.requests);
    assert_eq!(
        (batches[0].kind, batches[0].packets, batches[0].batches),
        (BatchKind::Interrupt, 2, 1)
    );
}

#[test]
fn an_interrupt_behind_a_write_or_a_wait_is_of_something_else() {
    let received = without_probes(&RECEIVED);
    let between: [fn(&mut World, u64); 3] = [
        |world, at| world.host(at, MAIN, false, event(C::NetTapWrite, SKB, LEN)),
        |world, at| world.host(at, MAIN, false, HostEvent::Woke),
        // It waits by a call that does not show.
        |world, at| {
            sleeps(world, at, MAIN);
            wakes(world, at + 1, SENDER, MAIN);
        },
    ];
    for (number, other) in between.into_iter().enumerate() {
        let mut world = World::default();
        sleeps(&mut world, 10, MAIN);
        let begin = pass(&mut world, PAUSE, SKB, &received[..2]);
        wakes(&mut world, begin + 1, SENDER, MAIN);
        if number < 2 {
            world.host(begin + STEP, MAIN, false, HostEvent::Woke);
        }
        let read = pass(&mut world, begin + 2 * STEP, SKB, &received[3..4]);
        other(&mut world, read + STEP);
        pass(&mut world, read + 3 * STEP, SKB, &received[4..]);
        for part in WITHOUT_PROBES {
            let joined = join(&world, part);
            assert_eq!(joined.requests[0].end(), read, "{number} {part:?}");
            let woke = joined.requests[0].at(C::NetRxWake);
            let expected = begin + if number < 2 { STEP } else { 1 + STEP / 2 };
            assert_eq!(woke, Some(expected), "{number} {part:?}");
        }
    }
}

/// The doorbell's address is not known: who woke the thread tells of it.
#[test]
fn a_packet_begins_with_the_waking_by_a_vcpu_or_by_the_thread_that_a_vcpu_woke() {
    let sent = without_probes(&SENT);
    let write = &sent[2..];
    let mut world = World::default();
    for tid in [MAIN, HANDS_ON] {
        sleeps(&mut world, 10, tid);
    }
    // It waits for a condition, whose call is not traced.
    wakes(&mut world, PAUSE, VCPU, MAIN);
    let direct = pass(&mut world, PAUSE + STEP, SKB, write);
    sleeps(&mut world, direct + STEP, MAIN);
    // Another thread has the doorbell.
    wakes(&mut world, 2 * PAUSE, VCPU, HANDS_ON);
    wakes(&mut world, 2 * PAUSE + STEP, HANDS_ON, MAIN);
    let handed = pass(&mut world, 2 * PAUSE + 2 * STEP, SKB, write);
    sleeps(&mut world, handed + STEP, MAIN);
    sleeps(&mut world, handed + STEP, HANDS_ON);
    // Woken for something else, it finds a packet.
    wakes(&mut world, 3 * PAUSE, SENDER, MAIN);
    pass(&mut world, 3 * PAUSE + STEP, SKB, write);
    let joined = join(&world, VmmPart::OtherCalls);
    assert_eq!(joined.rejected, []);
    let begins: Vec<_> = joined
        .requests
        .iter()
        .map(|packet| (packet.begin(), packet.at(C::NetTxWake)))
        .collect();
    assert_eq!(
        begins,
        [
            (PAUSE, Some(PAUSE + STEP / 2)),
            (2 * PAUSE, Some(2 * PAUSE + STEP / 2)),
            (3 * PAUSE + STEP, None)
        ]
    );
}

proptest! {
    #[test]
    fn whatever_the_host_shows_each_packet_is_in_the_order_of_its_path(
        all in prop::collection::vec((0..12_usize, 0..3_u64, 1..200_u64, any::<bool>()), 0..120)
    ) {
        let mut world = World::default();
        let mut at = PAUSE;
        let path = [without_probes(&SENT), without_probes(&RECEIVED)].concat();
        for (number, skb, pause, other) in all {
            at += pause;
            let by = |tid| if other { SENDER } else { tid };
            match path.get(number) {
                Some((checkpoint, tid)) => {
                    world.host(at, by(*tid), false, event(*checkpoint, SKB + skb, LEN));
                }
                None if number == path.len() => reads_tap(&mut world, at),
                None if number == path.len() + 1 => sleeps(&mut world, at, MAIN),
                None => wakes(&mut world, at, by(VCPU), MAIN),
            }
            at += STEP / 2;
        }
        for part in WITHOUT_PROBES {
            for request in &join(&world, part).requests {
                let times: Vec<u64> = request.checkpoints().map(|(_, at)| at).collect();
                prop_assert!(times.is_sorted(), "{times:?}");
                let sum: u64 = request.segments.iter().map(|segment| segment.ticks).sum();
                prop_assert_eq!(sum, request.last() - request.first());
            }
        }
    }
}
