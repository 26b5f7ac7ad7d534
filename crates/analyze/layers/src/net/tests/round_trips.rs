//! Round trips one after the other, and of several connections at once.

use super::*;
use crate::join::Reason;
use crate::net::not_followed;
use proptest::prelude::*;
use vmtax_findings::{BatchKind, State};

const CLIENTS: i32 = 32;

/// When each round trip passed each checkpoint, by its key.
type Truth = BTreeMap<u64, BTreeMap<C, u64>>;

/// Batches of round trips, each with the clients that do not sleep when their response comes.
fn batches(awake: impl IntoIterator<Item = Vec<i32>>) -> (World, Truth) {
    batches_by(World::default(), awake)
}

fn batches_by(mut world: World, awake: impl IntoIterator<Item = Vec<i32>>) -> (World, Truth) {
    let (mut at, mut truth) = (10_000, Truth::new());
    for awake in awake {
        let (of_batch, end) = world.batch(at, CLIENTS, &awake);
        truth.extend(
            of_batch
                .into_iter()
                .enumerate()
                .map(|(client, of)| (round_trip_key(CLIENT + client as i32, at), of)),
        );
        at = end + PAUSE;
    }
    (world.sorted(), truth)
}

/// A guest whose kernel shows no copy.
fn without_copies(mut world: World) -> World {
    world
        .guest
        .retain(|event| !matches!(event.what, GuestEvent::Packet(C::NetGuestRead, _)));
    world
}

/// No round trip has an event of another.
fn are_right(joined: &Joined, truth: &Truth) {
    for request in &joined.requests {
        let truth = &truth[&request.key];
        for checkpoint in path(Plant::default()).into_iter().chain(path(Plant {
            passt: true,
            ..Plant::default()
        })) {
            // What served several at once is that of the one that caused it, or nobody's.
            let of_several = [
                C::NetKvmKick,
                C::NetTxWake,
                C::NetRxWake,
                C::NetStreamWake,
                C::NetInject,
                C::NetGuestInterrupt,
            ];
            let found = request
                .at(checkpoint)
                .filter(|_| !of_several.contains(&checkpoint));
            assert!(
                found.is_none() || found == truth.get(&checkpoint).copied(),
                "{checkpoint:?} of {:#x}",
                request.key
            );
        }
    }
}

#[test]
fn round_trips_at_once_are_each_followed_by_their_key_and_who_copies() {
    // Nobody sleeps: no wake-up tells for whom a packet was.
    let (world, truth) = batches(vec![(0..CLIENTS).collect(); 6]);
    let joined = world.joined(STEP / 2);
    assert_eq!(
        (joined.requests.len(), joined.rejected.len()),
        (truth.len(), 0),
        "{:?}",
        joined.rejected.first()
    );
    are_right(&joined, &truth);
    assert!(
        joined
            .requests
            .iter()
            .all(|request| request.at(C::NetGuestRead).is_some())
    );
    // Nothing else tells in a kernel that shows no copy.
    let joined = without_copies(world).joined(STEP / 2);
    assert!(
        joined.rejected.len() > 6
            && joined
                .rejected
                .iter()
                .all(|rejected| rejected.reason == Reason::Ambiguous)
    );
    are_right(&joined, &truth);
}

#[test]
fn without_copies_whom_the_stack_wakes_tells() {
    // Some of them do not sleep: that neither is the first nor the last of those that QEMU passed on.
    let awake = (0..6).map(|number| {
        (1..CLIENTS - 1)
            .filter(|client| (client + number) % 3 == 0)
            .collect()
    });
    let (world, truth) = batches(awake);
    let world = without_copies(world);
    let joined = world.joined(STEP / 2);
    assert_eq!(
        (joined.requests.len(), joined.rejected.len()),
        (truth.len(), 0),
        "{:?}",
        joined.rejected.first()
    );
    are_right(&joined, &truth);
    // Without keys nothing tells whose a packet is.
    let mut blind = world;
    for event in &mut blind.host {
        if let HostEvent::Passes(_, mark) = &mut event.what {
            mark.round_trip = None;
        }
    }
    assert!(
        blind
            .joined(STEP / 2)
            .rejected
            .iter()
            .all(|rejected| rejected.reason == Reason::Ambiguous)
    );
}

#[test]
fn a_copy_of_an_address_that_another_packet_has_by_now_tells_nothing() {
    let (mut world, truth) = batches([(0..CLIENTS).collect()]);
    let packet = |event: &Event<GuestEvent>, checkpoint: C| match event.what {
        GuestEvent::Packet(of, packet) if of == checkpoint => Some(packet),
        _ => None,
    };
    // Its own copy is not shown. A client frees a packet that it sent, which has the address of another's response by then.
    let polled: Vec<Packet> = world
        .guest
        .iter()
        .filter_map(|event| packet(event, C::NetGuestPoll))
        .collect();
    let reads: Vec<u64> = world
        .guest
        .iter()
        .filter(|event| packet(event, C::NetGuestRead).is_some())
        .map(|event| event.at)
        .collect();
    let address = Packet {
        skb: polled[0].skb,
        len: LENGTHS.1,
        segments: 1,
    };
    world
        .guest
        .retain(|event| packet(event, C::NetGuestRead).is_none());
    for (before, checkpoint) in [
        (30, C::NetGuestQueue),
        (20, C::NetGuestXmit),
        (10, C::NetGuestRead),
    ] {
        world.guest(
            reads[1] - before,
            CLIENT + 1,
            GuestEvent::Packet(checkpoint, address),
        );
    }
    let joined = world.sorted().joined(STEP / 2);
    assert!(
        joined
            .requests
            .iter()
            .all(|request| request.at(C::NetGuestRead).is_none())
    );
    are_right(&joined, &truth);
}

#[test]
fn what_another_client_copies_is_not_ones_own() {
    let (mut world, truth) = batches([Vec::new()]);
    let mut reads: Vec<&mut Event<GuestEvent>> = world
        .guest
        .iter_mut()
        .filter(|event| matches!(event.what, GuestEvent::Packet(C::NetGuestRead, _)))
        .collect();
    // One copies the response to another, which gets none.
    reads[4].tid = CLIENT + 5;
    let joined = world.joined(STEP / 2);
    let is_joined = |client: i32| {
        joined
            .requests
            .iter()
            .any(|r| vmtax_model::thread_of_round_trip(r.key) == CLIENT + client)
    };
    assert!(
        !is_joined(4) && !is_joined(5) && is_joined(6),
        "{:?}",
        joined.rejected
    );
    assert_eq!(joined.requests.len(), CLIENTS as usize - 2);
    are_right(&joined, &truth);
}

#[test]
fn through_passt_qemus_part_of_several_connections_is_followed_alone() {
    let (world, truth) = batches_by(
        World {
            has_passt: true,
            ..World::default()
        },
        vec![Vec::new(); 3],
    );
    let joined = world.joined(STEP / 2);
    assert_eq!(
        (joined.requests.len(), joined.rejected.len()),
        (truth.len(), 0),
        "{:?}",
        joined.rejected.first()
    );
    are_right(&joined, &truth);
    for request in &joined.requests {
        for checkpoint in [
            C::NetStreamWrite,
            C::NetStreamRead,
            C::NetRx,
            C::NetGuestRead,
        ] {
            assert!(request.at(checkpoint).is_some(), "{checkpoint:?}");
        }
        for checkpoint in [
            C::NetPasstSend,
            C::NetTapReceive,
            C::NetServerReceive,
            C::NetPasstWrite,
        ] {
            assert_eq!(request.at(checkpoint), None, "{checkpoint:?}");
        }
    }
    assert!(
        not_followed(&joined.requests)
            .unwrap()
            .why
            .contains("32 connections")
    );
    let (by_tap, _) = batches([Vec::new()]);
    assert_eq!(not_followed(&by_tap.joined(STEP / 2).requests), None);
}

#[test]
fn packets_are_counted_by_what_serves_them() {
    let (mut world, _) = batches(vec![Vec::new(); 3]);
    let batch_counts = |joined: &Joined, kind: BatchKind| {
        let packets = joined.packets.clone().unwrap();
        packets
            .batching
            .iter()
            .find(|batching| batching.kind == kind)
            .map(|batching| (batching.packets, batching.batches))
    };
    let joined = world.joined(0);
    let all = 3 * CLIENTS as u64;
    for (kind, batches) in [
        (BatchKind::Doorbell, 3),
        (BatchKind::Write, all),
        (BatchKind::Interrupt, 3),
    ] {
        assert_eq!(
            batch_counts(&joined, kind),
            Some((all, batches)),
            "{kind:?}"
        );
    }
    // GRO merges a packet with the one before, and the card makes five of one.
    let is = |event: &Event<GuestEvent>, of: C| matches!(event.what, GuestEvent::Packet(at, _) if at == of);
    let merged = world
        .guest
        .iter()
        .rposition(|event| is(event, C::NetGuestReceive))
        .unwrap();
    world.guest.remove(merged);
    let sent = world
        .guest
        .iter_mut()
        .find(|event| is(event, C::NetGuestXmit))
        .unwrap();
    if let GuestEvent::Packet(_, packet) = &mut sent.what {
        packet.segments = 5;
    }
    // TCP sends one again, and another comes after a later one of its connection.
    let number = |at: &Event<HostEvent>| matches!(at.what, HostEvent::Passes(C::NetRx, _));
    let passed: Vec<Event<HostEvent>> = world
        .host
        .iter()
        .filter(|event| number(event))
        .copied()
        .collect();
    let (again, late) = (passed[CLIENTS as usize], passed[0]);
    for (event, at) in [(again, again.at + 1), (late, again.at + 2)] {
        world.host.push(Event { at, ..event });
    }
    // What is before the first round trip and after the last is no part of it.
    let end = world
        .operations
        .iter()
        .map(|operation| operation.end)
        .max()
        .unwrap();
    for at in [1, end + 1] {
        world.guest(at, 0, GuestEvent::Passes(C::NetGuestInterrupt));
    }
    let joined = world.sorted().joined(0);
    assert_eq!(batch_counts(&joined, BatchKind::Gro), Some((all, all - 1)));
    assert_eq!(batch_counts(&joined, BatchKind::Tso), Some((all + 4, all)));
    assert_eq!(batch_counts(&joined, BatchKind::Interrupt), Some((all, 3)));
    let packets = joined.packets.unwrap();
    assert_eq!((packets.repeated, packets.reordered), (1, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Whoever sleeps, whatever the clocks' error: none gets another's packets, and with copies each is followed.
    #[test]
    fn no_round_trip_gets_the_packets_of_another(
        awake in proptest::collection::vec(proptest::collection::vec(0..CLIENTS, 0..40), 1..4), bound in 0..3 * STEP
    ) {
        let (world, truth) = batches(awake);
        let joined = world.joined(bound);
        prop_assert_eq!(joined.requests.len(), truth.len(), "{:?}", joined.rejected.first());
        are_right(&joined, &truth);
        are_right(&without_copies(world).joined(bound), &truth);
    }
}

#[test]
fn each_checkpoint_is_found_where_it_is() {
    let backends = [(false, false), (true, false), (true, true)];
    for (arp, (passt, queues)) in [false, true]
        .into_iter()
        .flat_map(|arp| backends.map(|backend| (arp, backend)))
    {
        let plant = Plant {
            arp,
            passt,
            queues,
            ..Plant::default()
        };
        let joined = world(3, plant).joined(0);
        assert_eq!(
            (joined.requests.len(), joined.rejected.len()),
            (3, 0),
            "{:?}",
            joined.rejected
        );
        let path = path(plant);
        for request in &joined.requests {
            let begin = request.begin();
            for (number, checkpoint) in path.iter().copied().enumerate() {
                let expected = Some(begin + STEP * (number as u64 + 1));
                assert_eq!(
                    request.at(checkpoint),
                    expected,
                    "{checkpoint:?}, {plant:?}"
                );
            }
            // From the first that a tracer saw to the last, without a gap.
            let covered: u64 = request.segments.iter().map(|segment| segment.ticks).sum();
            assert_eq!(covered, STEP * (path.len() as u64 - 1));
        }
    }
}

#[test]
fn what_a_shaper_holds_is_queued() {
    let joined = world(
        2,
        Plant {
            queued: 5_000,
            ..Plant::default()
        },
    )
    .joined(0);
    for request in &joined.requests {
        let queued: Vec<_> = request
            .segments
            .iter()
            .filter(|segment| segment.state == State::Queued)
            .collect();
        assert!(
            matches!(queued[..], [one] if one.to == C::NetHostXmit && one.ticks == 5_000 + STEP),
            "{queued:?}"
        );
    }
}

#[test]
fn an_effect_before_its_cause_is_rejected_and_within_the_clocks_error_it_is_not() {
    let skewed = world(
        2,
        Plant {
            skew: 9 * STEP,
            ..Plant::default()
        },
    );
    let reasons = |joined: &Joined| joined.rejected.iter().map(|r| r.reason).collect::<Vec<_>>();
    assert_eq!(reasons(&skewed.joined(STEP)), [Reason::Violation; 2]);
    assert_eq!(reasons(&skewed.joined(16 * STEP)), []);
}

#[test]
fn clocks_that_may_differ_by_more_than_a_round_trip_do_not_mix_up_neighbors() {
    for (passt, skew) in [
        (false, 0),
        (true, 0),
        (false, 500),
        (true, 500),
        (false, PAUSE),
        (false, PAUSE + 25 * STEP),
    ] {
        let plant = Plant {
            passt,
            skew,
            ..Plant::default()
        };
        let joined = world(5, plant).joined(2 * PAUSE);
        assert_eq!(
            (joined.requests.len(), joined.rejected.len()),
            (5, 0),
            "{plant:?}: {:?}",
            joined.rejected
        );
        none_is_mixed_up(&joined, plant);
        // Without keys the order alone would have to tell.
        let plant = Plant {
            no_keys: true,
            ..plant
        };
        let joined = world(5, plant).joined(2 * PAUSE);
        assert!(
            joined
                .rejected
                .iter()
                .all(|rejected| rejected.reason == Reason::Ambiguous),
            "{:?}",
            joined.rejected
        );
        assert!(
            joined.rejected.len() >= 4,
            "{plant:?}: {:?}",
            joined.rejected
        );
        none_is_mixed_up(&joined, plant);
    }
}

#[test]
fn an_interrupt_before_the_send_returns_does_not_make_that_the_receive() {
    let mut world = world(1, Plant::default());
    let calls = |event: &Event<GuestEvent>| {
        matches!(event.what, GuestEvent::Enter { .. } | GuestEvent::Exit)
    };
    let (first, last) = (
        world.guest.iter().position(calls).unwrap(),
        world.guest.iter().rposition(calls).unwrap(),
    );
    let mut number = 0;
    world.guest.retain(|event| {
        number += 1;
        !calls(event) || [first, last].contains(&(number - 1))
    });
    // Interrupted by its own response, the send returns after the stack has that; the receive follows.
    let received = world
        .guest
        .iter()
        .position(|e| matches!(e.what, GuestEvent::Packet(C::NetGuestReceive, _)))
        .unwrap();
    let at = world.guest[received].at;
    for (after, what) in [(20, GuestEvent::Exit), (30, CALL)] {
        world.guest(at + after, CLIENT, what);
    }
    let world = world.sorted();
    let joined = world.joined(0);
    let request = &joined.requests[0];
    assert_eq!(
        request.at(C::NetGuestReturn),
        request.at(C::NetGuestRead).map(|at| at + STEP)
    );
}

#[test]
fn a_response_that_comes_twice_is_counted_once() {
    // TCP sends the first response again: the guest has it once more while it waits for the second.
    let mut world = world(2, Plant::default());
    let second = world.operations[1].begin;
    let again = second + 8 * STEP;
    for (after, checkpoint) in [(0, C::NetGuestPoll), (10, C::NetGuestReceive)] {
        world.guest(
            again + after,
            0,
            GuestEvent::Packet(
                checkpoint,
                Packet {
                    skb: 77,
                    len: LENGTHS.0,
                    segments: 1,
                },
            ),
        );
    }
    let joined = world.sorted().joined(0);
    assert_eq!(
        (joined.requests.len(), joined.rejected.len()),
        (2, 0),
        "{:?}",
        joined.rejected
    );
    none_is_mixed_up(&joined, Plant::default());
}

#[test]
fn a_round_trip_without_its_packets_is_told_of() {
    let mut world = world(1, Plant::default());
    world
        .guest
        .retain(|event| !matches!(event.what, GuestEvent::Packet(C::NetGuestPoll, _)));
    assert!(matches!(world.joined(0).rejected[..], [ref one] if one.reason == Reason::NoPacket));
    // The host's side is missing: the guest's checkpoints are there.
    let joined = self::world(
        1,
        Plant {
            lost: true,
            ..Plant::default()
        },
    )
    .joined(0);
    assert_eq!(joined.requests[0].at(C::NetTapReceive), None);
    assert!(joined.requests[0].at(C::NetGuestPoll).is_some());
}

proptest! {
    #[test]
    fn any_packets_are_read(
        (passt, queues) in prop_oneof![Just((false, false)), Just((true, false)), Just((true, true))],
        packets in proptest::collection::vec((any::<bool>(), any::<prop::sample::Index>(), 0..50_000_u64, any::<u64>(), any::<u64>()), 0..60)
    ) {
        let plant = Plant { passt, queues, ..Plant::default() };
        let mut world = world(2, plant);
        for (is_guest, number, at, skb, len) in packets {
            let (checkpoint, packet) = (*number.get(&path(plant)), Packet { skb, len, segments: skb % 3 });
            match is_guest {
                true => world.guest(at, CLIENT, GuestEvent::Packet(checkpoint, packet)),
                false => world.host(at, MAIN, false, HostEvent::Packet(checkpoint, packet)),
            }
        }
        world.guest.sort_by_key(|event| event.at);
        world.host.sort_by_key(|event| event.at);
        let joined = world.joined(50);
        prop_assert_eq!(joined.requests.len() + joined.rejected.len(), 2);
        for request in &joined.requests {
            prop_assert!(request.last() <= request.end().max(request.last()));
            prop_assert!(request.segments.iter().map(|s| s.ticks).sum::<u64>() <= request.total());
        }
    }
}
