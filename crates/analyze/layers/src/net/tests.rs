//! Round trips made up, with every moment of theirs known.

use super::frames::Frames;
use crate::events::event::{Event, GuestEvent, HostEvent, Mark};
use crate::join::joined::{Joined, Reason};
use crate::join::joiner::Join;
use crate::synthetic::{MAIN, facts};
use proptest::prelude::*;
use vmtax_model::testing::trial;
use vmtax_model::{
    Checkpoint as C, EventKind, Machine, QemuThread, Role, Stamped, State, TraceFacts, WorkloadName, WorkloadSpec,
};
use vmtax_trace::Packet;

const CLIENT: i32 = 10;
const SERVER: i32 = 300;
const PASST: i32 = 400;
/// From one checkpoint to the next, ticks.
const STEP: u64 = 100;
const SIZE: u64 = 64;
/// Bytes of a packet with the payload on its way in, and on its way out.
const LENGTHS: (u64, u64) = (SIZE + 28, SIZE + 42);
/// Ticks between two round trips.
const PAUSE: u64 = 10_000;

/// The checkpoints of a round trip, in order: by a tap, or by passt.
fn path(by_passt: bool) -> Vec<C> {
    let one_of_it = if by_passt { C::NetPasstRead } else { C::NetTapRead };
    let all = C::ALL.into_iter().filter(|c| (C::NetGuestCall..=C::NetGuestReturn).contains(c));
    all.filter(|c| c.is_on_path_with(one_of_it)).collect()
}

/// What is made of a round trip.
#[derive(Debug, Clone, Copy, Default)]
struct Plant {
    /// The shaper holds the response so long before the tap has it.
    queued: u64,
    /// The guest's clock is ahead by so much.
    skew: u64,
    /// An ARP packet passes the same points right before.
    arp: bool,
    /// The request is lost in the host.
    lost: bool,
    /// Between QEMU and the host's stack there is passt.
    passt: bool,
}

/// Both sides' events, in the order of time, and the round trips.
#[derive(Default)]
struct World {
    guest: Vec<Event<GuestEvent>>,
    host: Vec<Event<HostEvent>>,
    operations: Vec<Stamped>,
    has_passt: bool,
}

impl World {
    fn guest(&mut self, at: u64, tid: i32, what: GuestEvent) {
        let kind = EventKind::Tracepoint;
        self.guest.push(Event { at, cpu: 0, tid, interrupt: tid == 0, kind, what });
    }

    fn host(&mut self, at: u64, tid: i32, interrupt: bool, what: HostEvent) {
        self.host.push(Event { at, cpu: 1, tid, interrupt, kind: EventKind::Tracepoint, what });
    }

    /// A round trip that begins at a moment; gives when it ends.
    fn round_trip(&mut self, begin: u64, plant: Plant) -> u64 {
        let mut at = begin + STEP;
        for checkpoint in path(plant.passt) {
            if checkpoint == C::NetHostXmit {
                at += plant.queued;
            }
            if plant.lost && (C::NetTapReceive..=C::NetInject).contains(&checkpoint) {
                at += STEP;
                continue;
            }
            self.pass(checkpoint, at, plant);
            at += STEP;
        }
        self.operations.push(Stamped { begin: begin + plant.skew, end: at + plant.skew, key: begin });
        at
    }

    fn pass(&mut self, checkpoint: C, at: u64, plant: Plant) {
        let (len_in, len_out) = LENGTHS;
        let packet = |skb, len| Packet { skb, len };
        let guest = |checkpoint, skb, len| GuestEvent::Packet(checkpoint, packet(skb, len));
        let host = |checkpoint, skb, len| HostEvent::Packet(checkpoint, packet(skb, len));
        let guest_at = at + plant.skew;
        let passes = HostEvent::Passes(checkpoint, Mark::default());
        if plant.arp {
            match checkpoint {
                C::NetGuestQueue | C::NetGuestXmit => self.guest(guest_at - 9, CLIENT, guest(checkpoint, 7, 42)),
                C::NetGuestPoll | C::NetGuestReceive => self.guest(guest_at - 9, 0, guest(checkpoint, 8, 28)),
                C::NetTapReceive => self.host(at - 9, MAIN, false, host(checkpoint, 7, 28)),
                C::NetHostQueue | C::NetHostXmit => self.host(at - 9, SERVER, false, host(checkpoint, 8, 42)),
                _ => {}
            }
        }
        match checkpoint {
            C::NetGuestCall => self.guest(guest_at, CLIENT, GuestEvent::Enter),
            C::NetGuestReturn => self.guest(guest_at, CLIENT, GuestEvent::Exit),
            C::NetGuestQueue | C::NetGuestXmit => self.guest(guest_at, CLIENT, guest(checkpoint, 1, len_out)),
            C::NetGuestKick => self.guest(guest_at, CLIENT, GuestEvent::Passes(checkpoint)),
            C::NetGuestInterrupt => self.guest(guest_at, 0, GuestEvent::Passes(checkpoint)),
            C::NetGuestPoll | C::NetGuestReceive => self.guest(guest_at, 0, guest(checkpoint, 2, len_in)),
            C::NetTxWake | C::NetRxWake | C::NetStreamWake => self.host(at, MAIN, false, HostEvent::Woke),
            C::NetPasstWake | C::NetPasstReplyWake => self.host(at, PASST, false, HostEvent::Woke),
            C::NetTapReceive => {
                self.host(at, if plant.passt { PASST } else { MAIN }, false, host(checkpoint, 3, len_in))
            }
            C::NetServerReceive => self.host(at, SERVER, false, passes),
            // As they are decoded: by the name of the call, whoever makes it.
            C::NetServerSend => self.host(at, SERVER, false, HostEvent::Passes(C::NetTapWrite, Mark::default())),
            C::NetPasstSend => self.host(at, PASST, false, passes),
            C::NetPasstWrite => self.host(at, PASST, false, HostEvent::Passes(C::NetStreamWrite, Mark::default())),
            // A datagram: the return of the call alone.
            C::NetPasstRead => self.host(at, PASST, false, passes),
            C::NetStreamRead => self.host(at, MAIN, false, host(C::NetTapRead, 9, len_out + 4)),
            C::NetHostQueue => self.host(at, SERVER, false, host(checkpoint, 4, len_out)),
            C::NetHostXmit => self.host(at, SERVER, plant.queued > 0, host(checkpoint, 4, len_out)),
            C::NetTapRead => self.host(at, MAIN, false, host(checkpoint, 4, len_out)),
            _ => self.host(at, MAIN, false, passes),
        }
    }

    fn joined(&self, bound: u64) -> Joined {
        let spec = WorkloadSpec::new(WorkloadName::NetRr).with("protocol", "udp").with("size", SIZE);
        let frames = Frames::of(&trial(Machine::TCG, spec)).unwrap();
        let mut facts: TraceFacts = facts();
        facts.threads.push(QemuThread { tid: SERVER, role: Role::Other(Role::ECHO_SERVER.to_owned()) });
        if self.has_passt {
            facts.threads.push(QemuThread { tid: PASST, role: Role::Other(Role::PASST.to_owned()) });
        }
        let mut join = Join::network(&facts, self.operations.clone(), frames, bound);
        let (mut guest, mut host) = (self.guest.iter().peekable(), self.host.iter().peekable());
        loop {
            match (guest.peek(), host.peek()) {
                (Some(g), h) if h.is_none_or(|h| g.at <= h.at) => guest.next().into_iter().for_each(|e| join.guest(e)),
                (_, Some(_)) => host.next().into_iter().for_each(|e| join.host(e)),
                _ => return join.finish(),
            }
        }
    }
}

/// So many round trips of the same plant.
fn world(count: u64, plant: Plant) -> World {
    let mut world = World { has_passt: plant.passt, ..World::default() };
    let mut at = 10_000;
    for _ in 0..count {
        at = world.round_trip(at, plant) + PAUSE;
    }
    world
}

#[test]
fn each_checkpoint_is_found_where_it_is() {
    for (arp, passt) in [(false, false), (true, false), (false, true), (true, true)] {
        let joined = world(3, Plant { arp, passt, ..Plant::default() }).joined(0);
        assert_eq!((joined.requests.len(), joined.rejected.len()), (3, 0), "{:?}", joined.rejected);
        let path = path(passt);
        for request in &joined.requests {
            let begin = request.begin();
            for (number, checkpoint) in path.iter().copied().enumerate() {
                let expected = Some(begin + STEP * (number as u64 + 1));
                assert_eq!(request.at(checkpoint), expected, "{checkpoint:?}, ARP: {arp}, passt: {passt}");
            }
            // From the first that a tracer saw to the last, without a gap.
            let covered: u64 = request.segments.iter().map(|segment| segment.ticks).sum();
            assert_eq!(covered, STEP * (path.len() as u64 - 1));
        }
    }
}

#[test]
fn what_a_shaper_holds_is_queued() {
    let joined = world(2, Plant { queued: 5_000, ..Plant::default() }).joined(0);
    for request in &joined.requests {
        let queued: Vec<_> = request.segments.iter().filter(|segment| segment.state == State::Queued).collect();
        assert!(matches!(queued[..], [one] if one.to == C::NetHostXmit && one.ticks == 5_000 + STEP), "{queued:?}");
    }
}

#[test]
fn an_effect_before_its_cause_is_rejected_and_within_the_clocks_error_it_is_not() {
    let skewed = world(2, Plant { skew: 9 * STEP, ..Plant::default() });
    let reasons = |joined: &Joined| joined.rejected.iter().map(|r| r.reason).collect::<Vec<_>>();
    assert_eq!(reasons(&skewed.joined(STEP)), [Reason::Violation; 2]);
    assert_eq!(reasons(&skewed.joined(16 * STEP)), []);
}

#[test]
fn clocks_that_may_differ_by_more_than_a_pause_do_not_mix_up_neighbours() {
    for passt in [false, true] {
        let joined = world(5, Plant { passt, ..Plant::default() }).joined(2 * PAUSE);
        assert_eq!((joined.requests.len(), joined.rejected.len()), (5, 0));
        for request in &joined.requests {
            for (number, checkpoint) in path(passt).into_iter().enumerate() {
                let expected = Some(request.begin() + STEP * (number as u64 + 1));
                // Which of several kicks and interrupts it was, only such clocks could tell.
                if checkpoint.info().layer != vmtax_model::Layer::Interrupt {
                    assert_eq!(request.at(checkpoint), expected, "{checkpoint:?}, passt: {passt}");
                }
            }
        }
    }
}

#[test]
fn a_round_trip_without_its_packets_is_told_of() {
    let mut world = world(1, Plant::default());
    world.guest.retain(|event| !matches!(event.what, GuestEvent::Packet(C::NetGuestPoll, _)));
    assert!(matches!(world.joined(0).rejected[..], [ref one] if one.reason == Reason::NoPacket));
    // The host's side is missing: the guest's checkpoints are there.
    let joined = self::world(1, Plant { lost: true, ..Plant::default() }).joined(0);
    assert_eq!(joined.requests[0].at(C::NetTapReceive), None);
    assert!(joined.requests[0].at(C::NetGuestPoll).is_some());
}

proptest! {
    #[test]
    fn any_packets_are_read(
        passt in any::<bool>(),
        packets in proptest::collection::vec((any::<bool>(), 0..23_usize, 0..50_000_u64, any::<u64>(), any::<u64>()), 0..60)
    ) {
        let mut world = world(2, Plant { passt, ..Plant::default() });
        for (is_guest, number, at, skb, len) in packets {
            let (checkpoint, packet) = (path(passt)[number], Packet { skb, len });
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
