//! Comparison of the guest's and the host's clock in one trial.

use super::decode::{Trace, each};
use super::{Event, GuestEvent, HostEvent, Mark};
use crate::LayersError;
use crate::net::Frames;
use std::collections::{BTreeSet, HashMap};
use vmtax_clock::{ClockMap, Evidence, GuestTicks, HostTicks};
use vmtax_model::{Checkpoint, Ping, Role, Series, TraceFacts, thread_of_round_trip};

/// A bound that leaves nothing to be wished for, microseconds.
const GOOD_US: f64 = 0.5;

/// The key of round trips, one after the other: the first is the first on both sides. No place of a disk.
const IN_TURN: u64 = u64::MAX;

/// Compares both sides' clocks: by the comparison that was recorded; where that is missing or too inexact, also by
/// causes and effects among the requests. `frames`: packets of the round trips over the network.
pub(crate) fn clock(
    facts: &TraceFacts,
    series: &Series,
    guest: Option<&Trace>,
    host: Option<&Trace>,
    log: &[Event<HostEvent>],
    frames: Option<Frames>,
) -> Result<ClockMap, LayersError> {
    let mut evidence = Evidence::new(&steady(&facts.pings), facts.kvm_offset);
    let recorded = evidence.map();
    if recorded
        .as_ref()
        .is_ok_and(|map| map.bound() as f64 <= GOOD_US * facts.tsc_mhz)
    {
        return Ok(recorded?);
    }
    let mut times = RequestTimes::new(facts, in_turn(series, frames));
    match guest {
        Some(trace) => each(trace, |r, e| times.take_guest(&r.guest(e, facts)))?,
        None => times.take_operations(series),
    }
    if let Some(trace) = host {
        each(trace, |r, e| times.take_host(&r.host(e, facts)))?;
    }
    log.iter().for_each(|event| times.take_host(event));
    times.forget_uncertain(series.operations.len());
    times.add_to(&mut evidence);
    // Events that were lost pair what does not belong together; then what was recorded stands alone.
    Ok(evidence.map().or(recorded)?)
}

/// Returns the packets of round trips, if these come one after the other.
fn in_turn(series: &Series, frames: Option<Frames>) -> Option<Frames> {
    // The packets of several connections may come in another order.
    let clients = || {
        series
            .operations
            .iter()
            .map(|o| thread_of_round_trip(o.key))
            .collect::<BTreeSet<i32>>()
    };
    frames.filter(|_| clients().len() <= 1)
}

/// The times of requests on both sides, of which causes and effects are paired.
struct RequestTimes<'a> {
    facts: &'a TraceFacts,
    /// The packets of round trips in turn.
    in_turn: Option<Frames>,
    issues: TimesByKey,
    completes: TimesByKey,
    pops: TimesByKey,
    pushes: TimesByKey,
    /// Places of popped requests by address: a push names the request that was popped, and not its place on the disk.
    popped: HashMap<u64, u64>,
}

impl<'a> RequestTimes<'a> {
    /// Returns the state before the first event. `in_turn`: the packets of round trips in turn.
    fn new(facts: &'a TraceFacts, in_turn: Option<Frames>) -> Self {
        RequestTimes {
            facts,
            in_turn,
            issues: TimesByKey::default(),
            completes: TimesByKey::default(),
            pops: TimesByKey::default(),
            pushes: TimesByKey::default(),
            popped: HashMap::new(),
        }
    }

    /// Returns true if a packet of this length is one of a round trip in turn, on its way in.
    fn goes_in(&self, len: u64) -> bool {
        self.in_turn.is_some_and(|frames| frames.has(len))
    }

    /// Returns true if a packet of this length is one of a round trip in turn, on its way out.
    fn goes_out(&self, len: u64) -> bool {
        self.in_turn.is_some_and(|frames| frames.has_with_link(len))
    }

    /// Returns true if a thread is the server's.
    fn is_servers(&self, tid: i32) -> bool {
        self.facts
            .threads
            .iter()
            .any(|t| t.tid == tid && t.role.is_other(Role::ECHO_SERVER))
    }

    /// Takes an event of the guest's trace.
    fn take_guest(&mut self, event: &Event<GuestEvent>) {
        let at = event.at;
        match event.what {
            GuestEvent::Packet(Checkpoint::NetGuestXmit, packet) if self.goes_out(packet.len) => {
                self.issues.add(IN_TURN, at);
            }
            GuestEvent::Packet(Checkpoint::NetGuestPoll, packet) if self.goes_in(packet.len) => {
                self.completes.add(IN_TURN, at);
            }
            GuestEvent::Issue { offset, .. } => self.issues.add(offset, at),
            GuestEvent::Complete { offset } => self.completes.add(offset, at),
            _ => {}
        }
    }

    /// Takes the stamps of an untraced guest's workload in place of its kernel's events.
    fn take_operations(&mut self, series: &Series) {
        let in_turn = self.in_turn.is_some();
        for o in &series.operations {
            let key = if in_turn { IN_TURN } else { o.key };
            self.issues.add(key, o.begin);
            self.completes.add(key, o.end);
        }
    }

    /// Takes an event of the host's trace, or of QEMU's log.
    fn take_host(&mut self, event: &Event<HostEvent>) {
        let at = event.at;
        match event.what {
            HostEvent::Passes(Checkpoint::QemuPop, mark) => self.pop(at, mark),
            HostEvent::Passes(Checkpoint::QemuPush, mark) => self.push(at, mark),
            // The loopback device passes both directions by either: the response is the server's.
            HostEvent::Packet(Checkpoint::NetTapReceive, packet)
                if self.goes_in(packet.len) && !self.is_servers(event.tid) =>
            {
                self.pops.add(IN_TURN, at);
            }
            HostEvent::Packet(Checkpoint::NetHostXmit, packet)
                if self.goes_out(packet.len) && self.is_servers(event.tid) =>
            {
                self.pushes.add(IN_TURN, at);
            }
            _ => {}
        }
    }

    /// Takes a pop by QEMU, if it tells the request's place on the disk.
    fn pop(&mut self, at: u64, mark: Mark) {
        if let Some(offset) = mark.offset {
            self.popped.extend(mark.address.map(|a| (a, offset)));
            self.pops.add(offset, at);
        }
    }

    /// Takes a push by QEMU, if it tells the request's place on the disk or the pop did.
    fn push(&mut self, at: u64, mark: Mark) {
        let popped = || mark.address.and_then(|a| self.popped.remove(&a));
        if let Some(offset) = mark.offset.or_else(popped) {
            self.pushes.add(offset, at);
        }
    }

    /// Forgets round trips in turn where one side has not as many as there were operations.
    fn forget_uncertain(&mut self, operations: usize) {
        // Where an event is lost on each side, pairs of the same number may be of two round trips.
        let in_turn = [
            &mut self.issues,
            &mut self.completes,
            &mut self.pops,
            &mut self.pushes,
        ];
        if in_turn.iter().any(|times| {
            times
                .0
                .get(&IN_TURN)
                .is_some_and(|all| all.len() != operations)
        }) {
            in_turn
                .into_iter()
                .for_each(|times| drop(times.0.remove(&IN_TURN)));
        }
    }

    /// Adds the pairs of causes and effects to the evidence.
    fn add_to(&self, evidence: &mut Evidence) {
        self.issues
            .pairs(&self.pops)
            .for_each(|(guest, host)| evidence.guest_first(GuestTicks(guest), HostTicks(host)));
        self.completes
            .pairs(&self.pushes)
            .for_each(|(guest, host)| evidence.host_first(HostTicks(host), GuestTicks(guest)));
    }
}

/// One exchange for all, where one offset fits them. Both sides read the same counter, and what is added to it does not
/// change while a guest runs; an exchange that was disturbed must not make a good one worse. Where none fits, all remain,
/// and the clock drifts.
fn steady(pings: &[Ping]) -> Vec<Ping> {
    let Some(low) = pings.iter().map(|p| p.low).max() else {
        return Vec::new();
    };
    let high = pings.iter().map(|p| p.high).min().unwrap_or(low);
    let best = pings
        .iter()
        .min_by_key(|p| p.high.saturating_sub(p.low))
        .filter(|_| low <= high);
    best.map_or_else(|| pings.to_vec(), |best| vec![Ping { low, high, ..*best }])
}

/// When something happened to each place of the disk, or in turn.
#[derive(Default)]
struct TimesByKey(HashMap<u64, Vec<u64>>);

impl TimesByKey {
    fn add(&mut self, offset: u64, at: u64) {
        self.0.entry(offset).or_default().push(at);
    }

    /// Returns the times on both sides in pairs, the first with the first; only for keys that both sides have equally
    /// often.
    fn pairs<'a>(&'a self, other: &'a TimesByKey) -> impl Iterator<Item = (u64, u64)> + 'a {
        let both = self
            .0
            .iter()
            .filter_map(|(offset, times)| Some((times, other.0.get(offset)?)));
        both.filter(|(a, b)| a.len() == b.len())
            .flat_map(|(a, b)| a.iter().copied().zip(b.iter().copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::testing::trial;
    use vmtax_model::{
        EventKind, Machine, QemuThread, Stamped, WorkloadName, WorkloadSpec, round_trip_key,
    };
    use vmtax_trace::Packet;

    #[test]
    fn operations_and_qemus_log_align_the_clocks_of_an_untraced_guest() {
        const AHEAD: u64 = 1000;
        let operation = |number: u64| Stamped {
            begin: number * 100,
            end: number * 100 + 50,
            key: number * 4096,
        };
        let series = Series {
            mhz: 1000.0,
            operations: (1..4).map(operation).collect(),
        };
        let passes = |at, checkpoint, mark| Event {
            at: at + AHEAD,
            cpu: 0,
            tid: 1,
            interrupt: false,
            kind: EventKind::Tracepoint,
            what: HostEvent::Passes(checkpoint, mark),
        };
        // QEMU uses a request's memory again, and names what it pushes by it alone.
        let address = Some(0x7f00);
        let log = series.operations.iter().flat_map(|operation| {
            let popped = Mark {
                address,
                offset: Some(operation.key),
                ..Mark::default()
            };
            let pushed = Mark {
                address,
                ..Mark::default()
            };
            let (pop, push) = (operation.begin + 10, operation.end - 20);
            [
                passes(pop, Checkpoint::QemuPop, popped),
                passes(push, Checkpoint::QemuPush, pushed),
            ]
        });
        let map = clock(
            &crate::synthetic::facts(),
            &series,
            None,
            None,
            &log.collect::<Vec<_>>(),
            None,
        )
        .unwrap();
        // From 20 before the end to 10 after the beginning.
        assert_eq!(
            (map.host(GuestTicks(0)).0.abs_diff(AHEAD) <= 15, map.bound()),
            (true, 15)
        );
    }

    #[test]
    fn round_trips_in_turn_align_the_clocks_without_a_key_and_those_of_several_connections_do_not()
    {
        const AHEAD: u64 = 1000;
        let spec = WorkloadSpec::new(WorkloadName::NetRr)
            .with("protocol", "udp")
            .with("size", 64);
        let frames = Frames::of_trial(&trial(Machine::TCG, spec));
        const SERVER: i32 = 2;
        let packet = |at, tid, checkpoint, len| {
            let what = HostEvent::Packet(
                checkpoint,
                Packet {
                    skb: 1,
                    len,
                    segments: 1,
                },
            );
            Event {
                at: at + AHEAD,
                cpu: 0,
                tid,
                interrupt: false,
                kind: EventKind::Tracepoint,
                what,
            }
        };
        let mut facts = crate::synthetic::facts();
        facts.threads.push(QemuThread {
            tid: SERVER,
            role: Role::Other(Role::ECHO_SERVER.to_owned()),
        });
        let map = |clients: u64, lost: usize| {
            let operation = |n: u64| Stamped {
                begin: n * 100,
                end: n * 100 + 50,
                key: round_trip_key((n % clients) as i32, n),
            };
            let series = Series {
                mhz: 1000.0,
                operations: (1..4).map(operation).collect(),
            };
            let of_host = series.operations.iter().flat_map(|operation| {
                let (received, sent) = (operation.begin + 10, operation.end - 20);
                // An ARP packet tells nothing; on a loopback device each passes both.
                [
                    packet(received - 5, 1, Checkpoint::NetTapReceive, 28),
                    packet(received - 1, 1, Checkpoint::NetHostXmit, 64 + 42),
                    packet(received, 1, Checkpoint::NetTapReceive, 64 + 28),
                    packet(sent, SERVER, Checkpoint::NetHostXmit, 64 + 42),
                    packet(sent + 1, SERVER, Checkpoint::NetTapReceive, 64 + 28),
                ]
            });
            clock(
                &facts,
                &series,
                None,
                None,
                &of_host.skip(lost).collect::<Vec<_>>(),
                frames,
            )
        };
        let one = map(1, 0).unwrap();
        assert_eq!(
            (one.host(GuestTicks(0)).0.abs_diff(AHEAD) <= 15, one.bound()),
            (true, 15)
        );
        assert!(map(2, 0).is_err());
        // Nothing of the first request was recorded.
        assert!(map(1, 3).is_err());
    }

    #[test]
    fn a_disturbed_exchange_makes_a_good_one_no_worse() {
        let ping = |at, low, high| Ping {
            at,
            low,
            high,
            exchanges: 9,
        };
        let (good, bad, other) = (
            ping(10, 100, 104),
            ping(90, -5000, 9000),
            ping(90, 103, 110),
        );
        assert_eq!(steady(&[good, bad]), [good]);
        assert_eq!(steady(&[good, other]), [Ping { low: 103, ..good }]);
        // No one offset fits: the clock drifts, which takes both.
        assert_eq!(steady(&[good, ping(90, 200, 210)]).len(), 2);
        assert_eq!(steady(&[]), []);
    }
}
