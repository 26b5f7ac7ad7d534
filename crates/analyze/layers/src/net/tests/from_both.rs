//! Packets of which guest and host tell, known by their order and length.

use super::{CLIENT, STEP, World};
use crate::JoinedRequest;
use crate::events::{GuestEvent, HostEvent, Mark};
use crate::join::joiner::Join;
use crate::join::{Joined, Reason};
use crate::net::from_both::batching;
use crate::synthetic::{CALL, MAIN, VCPU, facts};
use proptest::prelude::*;
use std::collections::BTreeMap;
use vmtax_findings::{BatchKind, RequestKind, State};
use vmtax_model::Checkpoint as C;
use vmtax_trace::Packet;

/// Far more than any event waits for another, ticks.
const LONG: u64 = 3_000_000;
/// QEMU's addresses of the virtqueues.
const TRANSMIT: u64 = 1;
const RECEIVE: u64 = 2;
/// Shorter ones carry nothing to a socket.
const PAYLOAD: u64 = 60;

/// When each packet passed each checkpoint, by when it was handed over.
type Truth = BTreeMap<(RequestKind, u64), BTreeMap<C, u64>>;

#[derive(Default)]
struct Traffic {
    world: World,
    truth: Truth,
    at: u64,
    skb: u64,
}

impl Traffic {
    /// Of a guest that has traced for a while.
    fn new() -> Traffic {
        let mut traffic = Traffic {
            at: LONG,
            ..Traffic::default()
        };
        traffic.world.guest(1, CLIENT, CALL);
        traffic
    }

    fn guest(&mut self, tid: i32, what: GuestEvent) -> u64 {
        self.at += STEP;
        self.world.guest(self.at, tid, what);
        self.at
    }

    fn host(&mut self, tid: i32, what: HostEvent) -> u64 {
        self.at += STEP;
        self.world.host(self.at, tid, false, what);
        self.at
    }

    fn mark(&mut self, checkpoint: C, queue: u64, bytes: u64) -> u64 {
        let mark = Mark {
            queue: Some(queue),
            bytes,
            ..Mark::default()
        };
        self.host(MAIN, HostEvent::Passes(checkpoint, mark))
    }

    /// The guest sends packets of these lengths, with one doorbell, which QEMU finds at once.
    fn send(&mut self, lengths: &[u64]) {
        let mut all = Vec::new();
        for (number, len) in lengths.iter().enumerate() {
            self.skb += 1;
            let packet = Packet {
                skb: self.skb % 8,
                len: *len,
                segments: 1,
            };
            let queued = self.guest(CLIENT, GuestEvent::Packet(C::NetGuestQueue, packet));
            let xmit = self.guest(CLIENT, GuestEvent::Packet(C::NetGuestXmit, packet));
            let mut truth = BTreeMap::from([(C::NetGuestQueue, queued), (C::NetGuestXmit, xmit)]);
            if number == 0 {
                truth.insert(
                    C::NetGuestKick,
                    self.guest(CLIENT, GuestEvent::Passes(C::NetGuestKick)),
                );
                truth.insert(
                    C::NetKvmKick,
                    self.host(VCPU, HostEvent::Passes(C::NetKvmKick, Mark::default())),
                );
            }
            all.push((xmit, truth));
        }
        let woke = self.host(MAIN, HostEvent::Woke);
        for (number, ((xmit, mut truth), len)) in all.into_iter().zip(lengths).enumerate() {
            if number == 0 {
                truth.insert(C::NetTxWake, woke);
            }
            truth.insert(C::NetTx, self.mark(C::NetTx, TRANSMIT, *len));
            if *len >= PAYLOAD {
                truth.insert(C::NetTapWrite, self.mark(C::NetTapWrite, 0, 1));
            }
            self.mark(C::NetRxFill, TRANSMIT, 1);
            self.truth.insert((RequestKind::Transmit, xmit), truth);
        }
        // What the backend writes later is nobody's.
        self.mark(C::NetTapWrite, 0, 1);
        self.at += STEP;
    }

    /// It receives such, with one interrupt; those behind the first are merged with that, if so.
    fn receive(&mut self, lengths: &[u64], merged: bool) {
        self.host(MAIN, HostEvent::Woke);
        let mut all = Vec::new();
        for (number, len) in lengths.iter().enumerate() {
            let received = self.mark(C::NetRx, 0, *len);
            let filled = self.mark(C::NetRxFill, RECEIVE, 1);
            let notified = self.mark(C::NetRxNotify, RECEIVE, 1);
            let mut truth = BTreeMap::from([
                (C::NetRx, received),
                (C::NetRxFill, filled),
                (C::NetRxNotify, notified),
            ]);
            if number == 0 {
                truth.insert(C::NetInject, self.mark(C::NetInject, 0, 1));
            }
            all.push((received, truth));
        }
        let interrupt = self.guest(0, GuestEvent::Passes(C::NetGuestInterrupt));
        let first = self.skb + 1;
        for ((_, truth), len) in all.iter_mut().zip(lengths) {
            self.skb += 1;
            let packet = Packet {
                skb: self.skb % 8,
                len: len - 14,
                segments: 1,
            };
            truth.insert(C::NetGuestInterrupt, interrupt);
            truth.insert(
                C::NetGuestPoll,
                self.guest(0, GuestEvent::Packet(C::NetGuestPoll, packet)),
            );
        }
        let whole: u64 = lengths.iter().map(|len| len - 14).sum();
        let received = merged.then(|| {
            let packet = Packet {
                skb: first % 8,
                len: whole,
                segments: 1,
            };
            self.guest(0, GuestEvent::Packet(C::NetGuestReceive, packet))
        });
        for (skb, ((begin, mut truth), len)) in (first..).zip(all.into_iter().zip(lengths)) {
            let packet = Packet {
                skb: skb % 8,
                len: len - 14,
                segments: 1,
            };
            let own = |traffic: &mut Traffic| {
                traffic.guest(0, GuestEvent::Packet(C::NetGuestReceive, packet))
            };
            truth.insert(C::NetGuestReceive, received.unwrap_or_else(|| own(self)));
            self.truth.insert((RequestKind::Receive, begin), truth);
        }
        self.at += STEP;
    }

    /// The guest traces for a while longer.
    fn joined(&mut self, bound: u64) -> Joined {
        self.at += LONG;
        self.guest(CLIENT, CALL);
        self.world.fed(Join::packets(&facts(), bound, false))
    }
}

fn handed(request: &JoinedRequest) -> (RequestKind, u64) {
    let checkpoint = if request.kind == RequestKind::Transmit {
        C::NetGuestXmit
    } else {
        C::NetRx
    };
    (request.kind, request.at(checkpoint).unwrap())
}

/// No packet has an event of another, and its segments fill its time.
fn are_right(joined: &Joined, truth: &Truth) -> Result<(), TestCaseError> {
    for request in &joined.requests {
        let truth = &truth[&handed(request)];
        for checkpoint in C::ALL
            .into_iter()
            .filter(|c| !matches!(c, C::Begin | C::End))
        {
            let found = request.at(checkpoint);
            prop_assert!(
                found.is_none() || found == truth.get(&checkpoint).copied(),
                "{checkpoint:?}: {found:?}, {truth:?}"
            );
        }
        let sum: u64 = request.segments.iter().map(|segment| segment.ticks).sum();
        prop_assert_eq!(sum, request.total());
    }
    Ok(())
}

fn requests_of_kind(joined: &Joined, kind: RequestKind) -> Vec<JoinedRequest> {
    joined
        .requests
        .iter()
        .filter(|request| request.kind == kind)
        .cloned()
        .collect()
}

#[test]
fn each_packet_passes_its_checkpoints() {
    let mut traffic = Traffic::new();
    for _ in 0..4 {
        traffic.send(&[142, 54, 1514]);
        traffic.receive(&[142, 60, 1514], false);
        traffic.receive(&[1514, 1514, 700], true);
    }
    let joined = traffic.joined(STEP / 2);
    assert_eq!(joined.rejected, []);
    assert_eq!(joined.requests.len(), traffic.truth.len());
    are_right(&joined, &traffic.truth).unwrap();
    for request in &joined.requests {
        let expected = &traffic.truth[&handed(request)];
        let found: BTreeMap<C, u64> = request
            .checkpoints()
            .filter(|(c, _)| !matches!(c, C::Begin | C::End))
            .collect();
        assert_eq!(&found, expected);
        // What had no doorbell of its own lay in the ring.
        let in_ring = request
            .segments
            .iter()
            .find(|segment| segment.state == State::InRing);
        let is_kicked = expected.contains_key(&C::NetGuestKick);
        assert_eq!(
            in_ring.is_some(),
            request.kind == RequestKind::Transmit && !is_kicked
        );
        assert!(in_ring.is_none_or(
            |segment| segment.ticks == expected[&C::NetTx] - expected[&C::NetGuestXmit]
        ));
    }
    let means = |kind| {
        let all = batching(kind, &requests_of_kind(&joined, kind));
        all.into_iter()
            .map(|batching| (batching.kind, batching.packets, batching.batches))
            .collect::<Vec<_>>()
    };
    assert_eq!(means(RequestKind::Transmit), [(BatchKind::Doorbell, 12, 4)]);
    assert_eq!(
        means(RequestKind::Receive),
        [(BatchKind::Interrupt, 24, 8), (BatchKind::Gro, 24, 16)]
    );
}

#[test]
fn what_was_on_its_way_when_the_guest_began_or_ended_to_trace_is_no_packet() {
    let mut traffic = Traffic {
        at: LONG,
        ..Traffic::default()
    };
    // Taken before, and after.
    traffic.receive(&[142, 90], false);
    traffic.send(&[142]);
    traffic.world.guest.clear();
    traffic.truth.clear();
    traffic.guest(CLIENT, CALL);
    traffic.at += LONG;
    traffic.receive(&[142], false);
    traffic.at += LONG;
    traffic.send(&[142]);
    traffic.mark(C::NetRx, 0, 142);
    let joined = traffic.world.fed(Join::packets(&facts(), 0, false));
    assert_eq!(joined.rejected, []);
    assert_eq!(joined.requests.len(), 2);
    are_right(&joined, &traffic.truth).unwrap();
}

#[test]
fn where_nothing_is_known_of_the_host_packets_end_at_the_border() {
    let mut traffic = Traffic::new();
    traffic.send(&[142, 142]);
    traffic.receive(&[142, 142], false);
    traffic.world.host.clear();
    traffic.guest(CLIENT, CALL);
    let joined = traffic.world.fed(Join::packets(&facts(), 0, true));
    assert_eq!((joined.requests.len(), joined.rejected.len()), (4, 0));
    for request in &joined.requests {
        let last = if request.kind == RequestKind::Transmit {
            C::NetGuestKick
        } else {
            C::NetGuestReceive
        };
        assert!(
            request.at(last).is_some() || request.at(C::NetGuestXmit).is_some(),
            "{request:?}"
        );
    }
}

/// Packets far apart each, of one length: then time tells what is whose.
#[test]
fn clocks_that_do_not_agree_are_found() {
    let mut traffic = Traffic::new();
    for _ in 0..5 {
        traffic.send(&[142]);
        traffic.receive(&[142], false);
        traffic.at += LONG;
    }
    for event in &mut traffic.world.guest {
        event.at += 50 * STEP;
    }
    let joined = traffic.joined(STEP);
    assert_eq!(requests_of_kind(&joined, RequestKind::Transmit), []);
    let of_sent = joined
        .rejected
        .iter()
        .filter(|rejected| rejected.kind == RequestKind::Transmit);
    assert_eq!(
        of_sent.map(|rejected| rejected.reason).collect::<Vec<_>>(),
        [Reason::Violation; 5]
    );
}

#[test]
fn packets_that_nobody_takes_are_counted_and_not_remembered_for_ever() {
    let mut join = Join::packets(&facts(), 0, false);
    let mut traffic = Traffic::new();
    let mut most = 0;
    const PACKETS: usize = 40_000;
    for _ in 0..PACKETS {
        traffic.send(&[142]);
        traffic.at += 100 * STEP;
        traffic
            .world
            .guest
            .drain(..)
            .for_each(|event| join.guest(&event));
        traffic.world.host.clear();
        most = most.max(join.remembers());
    }
    let joined = join.finish();
    let missing = joined
        .rejected
        .iter()
        .filter(|rejected| rejected.reason == Reason::Missing(C::NetTx))
        .count();
    assert_eq!((joined.requests.len(), missing), (0, PACKETS));
    // Of a tenth of a second each has four events.
    assert!(most < 80_000, "{most}");
}

fn batches() -> impl Strategy<Value = Vec<(bool, bool, Vec<u64>, u64)>> {
    let lengths = prop::collection::vec(prop::sample::select(vec![54_u64, 66, 142, 1514]), 1..6);
    let pauses = prop::sample::select(vec![0, 10 * STEP, LONG]);
    prop::collection::vec((any::<bool>(), any::<bool>(), lengths, pauses), 1..12)
}

fn traffic(batches: &[(bool, bool, Vec<u64>, u64)]) -> Traffic {
    let mut traffic = Traffic::new();
    for (sends, merged, lengths, pause) in batches {
        if *sends {
            traffic.send(lengths)
        } else {
            traffic.receive(lengths, *merged && lengths.len() > 1)
        }
        traffic.at += pause;
    }
    traffic
}

proptest! {
    #[test]
    fn all_packets_are_followed_and_if_an_event_is_lost_none_has_anothers(
        batches in batches(), lost in any::<prop::sample::Index>(), skew in 0..STEP
    ) {
        let mut traffic = traffic(&batches);
        for event in &mut traffic.world.guest {
            event.at += skew;
        }
        let shifted: Truth = traffic.truth.iter().map(|((kind, at), truth)| {
            let moved = |c: C, at: u64| if c.info().side == vmtax_model::Side::Guest { at + skew } else { at };
            let key = if *kind == RequestKind::Transmit { at + skew } else { *at };
            ((*kind, key), truth.iter().map(|(c, at)| (*c, moved(*c, *at))).collect())
        }).collect();
        let whole = traffic.joined(STEP);
        prop_assert_eq!(whole.rejected.len(), 0, "{:?}", whole.rejected);
        prop_assert_eq!(whole.requests.len(), shifted.len());
        // One that hands a packet over, or takes it.
        let ends = |c: C| matches!(c, C::NetGuestXmit | C::NetTx | C::NetRx | C::NetGuestPoll);
        let of_guest: Vec<usize> = traffic.world.guest.iter().enumerate()
            .filter(|(_, e)| matches!(e.what, GuestEvent::Packet(c, _) if ends(c))).map(|(at, _)| at).collect();
        let of_host: Vec<usize> = traffic.world.host.iter().enumerate()
            .filter(|(_, e)| matches!(e.what, HostEvent::Passes(c, _) if ends(c))).map(|(at, _)| at).collect();
        let at = lost.index(of_guest.len() + of_host.len());
        match of_guest.get(at) {
            Some(number) => { traffic.world.guest.remove(*number); }
            None => { traffic.world.host.remove(of_host[at - of_guest.len()]); }
        }
        let joined = traffic.world.fed(Join::packets(&facts(), STEP, false));
        for request in &joined.requests {
            let truth = &shifted[&handed(request)];
            let taken = if request.kind == RequestKind::Transmit { C::NetTx } else { C::NetGuestPoll };
            prop_assert_eq!(request.at(taken), truth.get(&taken).copied());
        }
        prop_assert!(joined.requests.len() < shifted.len());
    }

    #[test]
    fn whatever_both_sides_show_packets_are_in_order_and_each_counts_once(
        batches in batches(), lost in prop::collection::vec(any::<bool>(), 400), skew in 0..20 * STEP, bound in 0..2 * STEP
    ) {
        let mut traffic = traffic(&batches);
        let mut lost = lost.into_iter().cycle();
        traffic.world.guest.retain(|_| lost.next() != Some(true));
        traffic.world.host.retain(|_| lost.next() != Some(true));
        for event in &mut traffic.world.guest {
            event.at += skew;
        }
        let passed = |is: &dyn Fn(C) -> bool| {
            let of_guest = traffic.world.guest.iter().filter(|e| matches!(e.what, GuestEvent::Packet(c, _) if is(c)));
            let of_host = traffic.world.host.iter().filter(|e| matches!(e.what, HostEvent::Passes(c, _) if is(c)));
            of_guest.count() + of_host.count()
        };
        let most = passed(&|c| matches!(c, C::NetGuestXmit | C::NetTx | C::NetRx | C::NetGuestPoll));
        let joined = traffic.world.fed(Join::packets(&facts(), bound, false));
        prop_assert!(2 * joined.requests.len() + joined.rejected.len() <= most);
        for request in &joined.requests {
            let times: Vec<u64> = request.checkpoints().map(|(_, at)| at).collect();
            prop_assert!(times.is_sorted(), "{times:?}");
            let sum: u64 = request.segments.iter().map(|segment| segment.ticks).sum();
            prop_assert_eq!(sum, request.last() - request.first());
        }
    }
}
