//! Round trips one after the other.

use super::*;
use crate::join::Reason;
use proptest::prelude::*;
use vmtax_findings::State;

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
fn clocks_that_may_differ_by_more_than_a_round_trip_do_not_mix_up_neighbours() {
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
    let calls =
        |event: &Event<GuestEvent>| matches!(event.what, GuestEvent::Enter | GuestEvent::Exit);
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
    for (after, what) in [(20, GuestEvent::Exit), (30, GuestEvent::Enter)] {
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
