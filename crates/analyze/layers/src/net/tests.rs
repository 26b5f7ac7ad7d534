//! Round trips made up, with every moment of theirs known.

use super::frames::Frames;
use crate::events::event::{Event, GuestEvent, HostEvent, Mark};
use crate::join::joined::{Joined, Reason};
use crate::join::joiner::Join;
use crate::join::match_params::View;
use crate::synthetic::{MAIN, facts};
use proptest::prelude::*;
use std::collections::BTreeMap;
use vmtax_model::testing::trial;
use vmtax_model::{
    Checkpoint as C, EventKind, Machine, QemuThread, Role, Stamped, State, TraceFacts, WorkloadName, WorkloadSpec,
    round_trip_key,
};
use vmtax_trace::{Packet, Sched};

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
    /// QEMU's functions show no key, as in a recording of a QEMU without symbols.
    no_keys: bool,
    /// Which of several clients makes it.
    client: i32,
    /// That client does not sleep when the response comes.
    awake: bool,
    /// Others come with it.
    of_batch: bool,
    /// The number of its round trip.
    number: u64,
}

impl Plant {
    fn tid(self) -> i32 {
        CLIENT + self.client
    }

    fn key(self) -> u64 {
        round_trip_key(self.tid(), self.number)
    }
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
        let plant = Plant { number: begin, ..plant };
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
        self.operations.push(Stamped { begin: begin + plant.skew, end: at + plant.skew, key: plant.key() });
        at
    }

    /// Round trips of several clients at once, as QEMU batches them: one doorbell, one wake-up, one interrupt. Those in `awake` do not sleep
    /// when their response comes. Gives when each passed each checkpoint, and when all are over.
    fn batch(&mut self, begin: u64, clients: i32, awake: &[i32]) -> (Vec<BTreeMap<C, u64>>, u64) {
        let mut at = begin;
        let mut truth = vec![BTreeMap::new(); clients as usize];
        let (last, number) = (clients - 1, begin);
        // Each block is one thread's or one CPU's, which serves one client after the other; some for all at once.
        let blocks: [(&[C], &[C]); 7] = [
            (&[C::NetGuestCall, C::NetGuestQueue, C::NetGuestXmit], &[C::NetGuestKick, C::NetKvmKick, C::NetTxWake]),
            (&[C::NetTx, C::NetTapWrite, C::NetTapReceive], &[]),
            (&[C::NetServerReceive, C::NetServerSend, C::NetHostQueue, C::NetHostXmit], &[]),
            (&[], &[C::NetRxWake]),
            (&[C::NetTapRead, C::NetRx, C::NetRxFill, C::NetRxNotify], &[C::NetInject, C::NetGuestInterrupt]),
            (&[C::NetGuestPoll, C::NetGuestReceive], &[]),
            (&[C::NetGuestReturn], &[]),
        ];
        for (each, once) in blocks {
            for client in 0..clients {
                let plant =
                    Plant { client, number, awake: awake.contains(&client), of_batch: true, ..Plant::default() };
                for checkpoint in each {
                    at += STEP;
                    self.pass(*checkpoint, at, plant);
                    truth[client as usize].insert(*checkpoint, at);
                    if *checkpoint == C::NetGuestXmit && client < last {
                        // Suppressed: QEMU is told by the last.
                        self.guest(at + STEP / 2, plant.tid(), GuestEvent::Exit);
                        self.guest(at + STEP / 2 + 1, plant.tid(), GuestEvent::Enter);
                    }
                }
            }
            for checkpoint in once {
                at += STEP;
                self.pass(*checkpoint, at, Plant { client: last, number, ..Plant::default() });
                truth[last as usize].insert(*checkpoint, at);
            }
        }
        for (client, truth) in truth.iter().enumerate() {
            let (first, end) = (truth[&C::NetGuestCall], truth[&C::NetGuestReturn]);
            let key = round_trip_key(CLIENT + client as i32, number);
            self.operations.push(Stamped { begin: first - 1, end: end + 1, key });
        }
        (truth, at)
    }

    fn pass(&mut self, checkpoint: C, at: u64, plant: Plant) {
        let (len_in, len_out) = LENGTHS;
        let packet = |skb, len| Packet { skb, len };
        let guest = |checkpoint, skb, len| GuestEvent::Packet(checkpoint, packet(skb, len));
        let host = |checkpoint, skb, len| HostEvent::Packet(checkpoint, packet(skb, len));
        let guest_at = at + plant.skew;
        let passes = HostEvent::Passes(checkpoint, Mark::default());
        let keyed = Mark { round_trip: (!plant.no_keys).then_some(plant.key()), ..Mark::default() };
        let skb = |skb: u64| plant.client as u64 * 16 + skb;
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
            C::NetGuestCall => self.guest(guest_at, plant.tid(), GuestEvent::Enter),
            C::NetGuestReturn => self.guest(guest_at, plant.tid(), GuestEvent::Exit),
            C::NetGuestQueue | C::NetGuestXmit => self.guest(guest_at, plant.tid(), guest(checkpoint, skb(1), len_out)),
            C::NetGuestKick => self.guest(guest_at, plant.tid(), GuestEvent::Passes(checkpoint)),
            // The call that sends is over, that which receives begins.
            C::NetKvmKick => {
                self.guest(guest_at - 2, plant.tid(), GuestEvent::Exit);
                self.guest(guest_at - 1, plant.tid(), GuestEvent::Enter);
                self.host(at, MAIN, false, passes);
            }
            C::NetGuestInterrupt => self.guest(guest_at, 0, GuestEvent::Passes(checkpoint)),
            C::NetGuestPoll => self.guest(guest_at, 0, guest(checkpoint, skb(2), len_in)),
            C::NetGuestReceive => {
                self.guest(guest_at, 0, guest(checkpoint, skb(2), len_in));
                // The stack has a batch of eight before it wakes anybody.
                let after = (7 - plant.client as u64 % 8) * 2 * STEP + 1 + plant.client as u64 % 8;
                let after = if plant.of_batch { after } else { 1 };
                if !plant.awake {
                    self.guest(guest_at + after, 0, GuestEvent::Sched(Sched::Waking { tid: plant.tid() }));
                }
            }
            C::NetTx | C::NetRx => self.host(at, MAIN, false, HostEvent::Passes(checkpoint, keyed)),
            C::NetTxWake | C::NetRxWake | C::NetStreamWake => self.host(at, MAIN, false, HostEvent::Woke),
            C::NetPasstWake | C::NetPasstReplyWake => self.host(at, PASST, false, HostEvent::Woke),
            C::NetTapReceive => {
                self.host(at, if plant.passt { PASST } else { MAIN }, false, host(checkpoint, skb(3), len_in))
            }
            C::NetServerReceive => self.host(at, SERVER, false, passes),
            // As they are decoded: by the name of the call, whoever makes it.
            C::NetServerSend => self.host(at, SERVER, false, HostEvent::Passes(C::NetTapWrite, Mark::default())),
            C::NetPasstSend => self.host(at, PASST, false, passes),
            C::NetPasstWrite => self.host(at, PASST, false, HostEvent::Passes(C::NetStreamWrite, Mark::default())),
            // A datagram: the return of the call alone.
            C::NetPasstRead => self.host(at, PASST, false, passes),
            C::NetStreamRead => self.host(at, MAIN, false, host(C::NetTapRead, skb(9), len_out + 4)),
            C::NetHostQueue => self.host(at, SERVER, false, host(checkpoint, skb(4), len_out)),
            C::NetHostXmit => self.host(at, SERVER, plant.queued > 0, host(checkpoint, skb(4), len_out)),
            C::NetTapRead => self.host(at, MAIN, false, host(checkpoint, skb(4), len_out)),
            _ => self.host(at, MAIN, false, passes),
        }
    }

    /// Events of several round trips at once, in the order of time.
    fn sorted(mut self) -> World {
        self.guest.sort_by_key(|event| event.at);
        self.host.sort_by_key(|event| event.at);
        self.operations.sort_by_key(|operation| operation.begin);
        self
    }

    fn joined(&self, bound: u64) -> Joined {
        let spec = WorkloadSpec::new(WorkloadName::NetRr).with("protocol", "udp").with("size", SIZE);
        let frames = Frames::of(&trial(Machine::TCG, spec)).unwrap();
        let mut facts: TraceFacts = facts();
        facts.threads.push(QemuThread { tid: SERVER, role: Role::Other(Role::ECHO_SERVER.to_owned()) });
        if self.has_passt {
            facts.threads.push(QemuThread { tid: PASST, role: Role::Other(Role::PASST.to_owned()) });
        }
        let mut join = Join::network(&facts, self.operations.clone(), frames, (View::Kernel, bound));
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

/// No round trip has an event of another.
fn none_is_mixed_up(joined: &Joined, plant: Plant) {
    for request in &joined.requests {
        for (number, checkpoint) in path(plant.passt).into_iter().enumerate() {
            let at = request.begin() - plant.skew + STEP * (number as u64 + 1);
            // Which of several kicks and interrupts it was, only better clocks could tell; and of the host's, how far they are ahead.
            if checkpoint.info().layer != vmtax_model::Layer::Interrupt {
                let (found, off) = (request.at(checkpoint).unwrap(), plant.skew);
                assert!((at..=at + off).contains(&found), "{checkpoint:?}: {found}, at {at}; {plant:?}");
            }
        }
    }
}

#[test]
fn clocks_that_may_differ_by_more_than_a_round_trip_do_not_mix_up_neighbours() {
    for (passt, skew) in [(false, 0), (true, 0), (false, 500), (true, 500), (false, PAUSE), (false, PAUSE + 25 * STEP)]
    {
        let plant = Plant { passt, skew, ..Plant::default() };
        let joined = world(5, plant).joined(2 * PAUSE);
        assert_eq!((joined.requests.len(), joined.rejected.len()), (5, 0), "{plant:?}: {:?}", joined.rejected);
        none_is_mixed_up(&joined, plant);
        // Without keys the order alone would have to tell.
        let plant = Plant { no_keys: true, ..plant };
        let joined = world(5, plant).joined(2 * PAUSE);
        assert!(joined.rejected.iter().all(|rejected| rejected.reason == Reason::Ambiguous), "{:?}", joined.rejected);
        assert!(joined.rejected.len() >= 4, "{plant:?}: {:?}", joined.rejected);
        none_is_mixed_up(&joined, plant);
    }
}

#[test]
fn an_interrupt_before_the_send_returns_does_not_make_that_the_receive() {
    let mut world = world(1, Plant::default());
    let calls = |event: &Event<GuestEvent>| matches!(event.what, GuestEvent::Enter | GuestEvent::Exit);
    let (first, last) = (world.guest.iter().position(calls).unwrap(), world.guest.iter().rposition(calls).unwrap());
    let mut number = 0;
    world.guest.retain(|event| {
        number += 1;
        !calls(event) || [first, last].contains(&(number - 1))
    });
    // Interrupted by its own response, the send returns after the stack has that; the receive follows.
    let received =
        world.guest.iter().position(|e| matches!(e.what, GuestEvent::Packet(C::NetGuestReceive, _))).unwrap();
    let at = world.guest[received].at;
    for (after, what) in [(20, GuestEvent::Exit), (30, GuestEvent::Enter)] {
        world.guest(at + after, CLIENT, what);
    }
    let world = world.sorted();
    let joined = world.joined(0);
    let request = &joined.requests[0];
    assert_eq!(request.at(C::NetGuestReturn), request.at(C::NetGuestReceive).map(|at| at + STEP));
}

#[test]
fn a_response_that_comes_twice_is_counted_once() {
    // TCP sends the first response again: the guest has it once more while it waits for the second.
    let mut world = world(2, Plant::default());
    let second = world.operations[1].begin;
    let again = second + 8 * STEP;
    for (after, checkpoint) in [(0, C::NetGuestPoll), (10, C::NetGuestReceive)] {
        world.guest(again + after, 0, GuestEvent::Packet(checkpoint, Packet { skb: 77, len: LENGTHS.0 }));
    }
    let joined = world.sorted().joined(0);
    assert_eq!((joined.requests.len(), joined.rejected.len()), (2, 0), "{:?}", joined.rejected);
    none_is_mixed_up(&joined, Plant::default());
}

#[test]
fn round_trips_at_once_are_each_followed_by_their_key() {
    const CLIENTS: i32 = 32;
    let mut world = World::default();
    let (mut at, mut truth) = (10_000, BTreeMap::new());
    for number in 0..6_i32 {
        // Some of them do not sleep: that neither is the first nor the last of those that QEMU passed on.
        let awake: Vec<i32> = (1..CLIENTS - 1).filter(|client| (client + number) % 3 == 0).collect();
        let (of_batch, end) = world.batch(at, CLIENTS, &awake);
        truth.extend(
            of_batch.into_iter().enumerate().map(|(client, of)| (round_trip_key(CLIENT + client as i32, at), of)),
        );
        at = end + PAUSE;
    }
    let world = world.sorted();
    let joined = world.joined(STEP / 2);
    assert_eq!(
        (joined.requests.len(), joined.rejected.len()),
        (6 * CLIENTS as usize, 0),
        "{:?}",
        joined.rejected.first()
    );
    for request in &joined.requests {
        let truth = &truth[&request.key];
        for checkpoint in path(false) {
            let (found, planted) = (request.at(checkpoint), truth.get(&checkpoint).copied());
            // What served several at once is that of the one that caused it, or nobody's.
            let of_several = [C::NetKvmKick, C::NetTxWake, C::NetRxWake, C::NetInject, C::NetGuestInterrupt];
            if !of_several.contains(&checkpoint) {
                assert_eq!(found, planted, "{checkpoint:?} of {:#x}", request.key);
            }
        }
    }
    // Without keys nothing tells whose a packet is.
    let mut blind = world;
    for event in &mut blind.host {
        if let HostEvent::Passes(_, mark) = &mut event.what {
            mark.round_trip = None;
        }
    }
    assert!(blind.joined(STEP / 2).rejected.iter().all(|rejected| rejected.reason == Reason::Ambiguous));
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
