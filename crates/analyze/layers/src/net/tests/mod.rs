//! Round trips made up, with every moment of theirs known.

mod by_calls;
mod from_both;
mod from_host;
mod round_trips;

use super::Frames;
use crate::events::{Event, GuestEvent, HostEvent, Mark};
use crate::join::joiner::Join;
use crate::join::{Joined, View};
use crate::synthetic::{CALL, MAIN, facts};
use proptest::prelude::*;
use std::collections::BTreeMap;
use vmtax_model::testing::trial;
use vmtax_model::{
    Checkpoint as C, EventKind, Machine, QemuThread, Role, Stamped, TraceFacts, WorkloadName,
    WorkloadSpec, round_trip_key,
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

/// The checkpoints of a round trip, in order: by a tap, by passt, or by passt that has the guest's queues.
fn path(plant: Plant) -> Vec<C> {
    let one_of_it = match plant {
        Plant { queues: true, .. } => C::NetPasstNotify,
        Plant { passt: true, .. } => C::NetPasstWrite,
        _ => C::NetTapRead,
    };
    let all = C::ALL
        .into_iter()
        .filter(|c| (C::NetGuestCall..=C::NetGuestReturn).contains(c));
    all.filter(|c| c.is_on_path_with(one_of_it)).collect()
}

/// Variations of a synthetic round trip.
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
    /// passt takes packets from the guest's queues, past QEMU.
    queues: bool,
    /// QEMU's functions show no key, as in a recording of a QEMU without symbols.
    no_keys: bool,
    /// Number of the client that makes the round trip, of several.
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
        self.guest.push(Event {
            at,
            cpu: 0,
            tid,
            interrupt: tid == 0,
            kind,
            what,
        });
    }

    fn host(&mut self, at: u64, tid: i32, interrupt: bool, what: HostEvent) {
        self.host.push(Event {
            at,
            cpu: 1,
            tid,
            interrupt,
            kind: EventKind::Tracepoint,
            what,
        });
    }

    /// A round trip that begins at a moment; gives when it ends.
    fn round_trip(&mut self, begin: u64, plant: Plant) -> u64 {
        let plant = Plant {
            number: begin,
            ..plant
        };
        let mut at = begin + STEP;
        for checkpoint in path(plant) {
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
        self.operations.push(Stamped {
            begin: begin + plant.skew,
            end: at + plant.skew,
            key: plant.key(),
        });
        at
    }

    /// Round trips of several clients at once, as QEMU batches them: one doorbell, one wake-up, one interrupt. Those in
    /// `awake` do not sleep when their response comes. Gives when each passed each checkpoint, and when all are over.
    fn batch(&mut self, begin: u64, clients: i32, awake: &[i32]) -> (Vec<BTreeMap<C, u64>>, u64) {
        let mut at = begin;
        let mut truth = vec![BTreeMap::new(); clients as usize];
        let (last, number) = (clients - 1, begin);
        // Each block is one thread's or one CPU's, which serves one client after the other; some for all at once.
        let request = [C::NetGuestCall, C::NetGuestQueue, C::NetGuestXmit];
        let doorbell = [C::NetGuestKick, C::NetKvmKick, C::NetTxWake];
        let server = [
            C::NetServerReceive,
            C::NetServerSend,
            C::NetHostQueue,
            C::NetHostXmit,
        ];
        let interrupt = [C::NetInject, C::NetGuestInterrupt];
        let response = [C::NetGuestPoll, C::NetGuestReceive];
        let by_tap: &[(&[C], &[C])] = &[
            (&request, &doorbell),
            (&[C::NetTx, C::NetTapWrite, C::NetTapReceive], &[]),
            (&server, &[C::NetRxWake]),
            (
                &[C::NetTapRead, C::NetRx, C::NetRxFill, C::NetRxNotify],
                &interrupt,
            ),
            (&response, &[]),
            (&[C::NetGuestRead, C::NetGuestReturn], &[]),
        ];
        let by_passt: &[(&[C], &[C])] = &[
            (&request, &doorbell),
            (&[C::NetTx, C::NetStreamWrite], &[C::NetPasstWake]),
            (&[C::NetPasstSend, C::NetTapReceive], &[]),
            (&server, &[C::NetPasstReplyWake]),
            (&[C::NetPasstRead, C::NetPasstWrite], &[C::NetStreamWake]),
            (
                &[C::NetStreamRead, C::NetRx, C::NetRxFill, C::NetRxNotify],
                &interrupt,
            ),
            (&response, &[]),
            (&[C::NetGuestRead, C::NetGuestReturn], &[]),
        ];
        let passt = self.has_passt;
        for (each, once) in if passt { by_passt } else { by_tap } {
            for client in 0..clients {
                // passt serves them in an order of its own.
                let client = if each.contains(&C::NetPasstSend) {
                    last - client
                } else {
                    client
                };
                let awake = awake.contains(&client);
                let plant = Plant {
                    client,
                    number,
                    awake,
                    of_batch: true,
                    passt,
                    ..Plant::default()
                };
                for checkpoint in *each {
                    at += STEP;
                    self.pass(*checkpoint, at, plant);
                    truth[client as usize].insert(*checkpoint, at);
                    if *checkpoint == C::NetGuestXmit && client < last {
                        // Suppressed: QEMU is told by the last.
                        self.guest(at + STEP / 2, plant.tid(), GuestEvent::Exit);
                        self.guest(at + STEP / 2 + 1, plant.tid(), CALL);
                    }
                }
            }
            for checkpoint in *once {
                at += STEP;
                self.pass(
                    *checkpoint,
                    at,
                    Plant {
                        client: last,
                        number,
                        passt,
                        ..Plant::default()
                    },
                );
                truth[last as usize].insert(*checkpoint, at);
            }
        }
        for (client, truth) in truth.iter().enumerate() {
            let (first, end) = (truth[&C::NetGuestCall], truth[&C::NetGuestReturn]);
            let key = round_trip_key(CLIENT + client as i32, number);
            self.operations.push(Stamped {
                begin: first - 1,
                end: end + 1,
                key,
            });
        }
        (truth, at)
    }

    fn pass(&mut self, checkpoint: C, at: u64, plant: Plant) {
        let (len_in, len_out) = LENGTHS;
        let packet = |skb, len| Packet {
            skb,
            len,
            segments: 1,
        };
        let guest = |checkpoint, skb, len| GuestEvent::Packet(checkpoint, packet(skb, len));
        let host = |checkpoint, skb, len| HostEvent::Packet(checkpoint, packet(skb, len));
        let guest_at = at + plant.skew;
        let passes = HostEvent::Passes(checkpoint, Mark::default());
        let keyed = Mark {
            round_trip: (!plant.no_keys).then_some(plant.key()),
            ..Mark::default()
        };
        let skb = |skb: u64| plant.client as u64 * 16 + skb;
        if plant.arp {
            match checkpoint {
                C::NetGuestQueue | C::NetGuestXmit => {
                    self.guest(guest_at - 9, CLIENT, guest(checkpoint, 7, 42))
                }
                C::NetGuestPoll | C::NetGuestReceive => {
                    self.guest(guest_at - 9, 0, guest(checkpoint, 8, 28))
                }
                C::NetTapReceive => self.host(at - 9, MAIN, false, host(checkpoint, 7, 28)),
                C::NetHostQueue | C::NetHostXmit => {
                    self.host(at - 9, SERVER, false, host(checkpoint, 8, 42))
                }
                _ => {}
            }
        }
        match checkpoint {
            C::NetGuestCall => self.guest(guest_at, plant.tid(), CALL),
            C::NetGuestReturn => self.guest(guest_at, plant.tid(), GuestEvent::Exit),
            C::NetGuestQueue | C::NetGuestXmit => {
                self.guest(guest_at, plant.tid(), guest(checkpoint, skb(1), len_out))
            }
            C::NetGuestKick => self.guest(guest_at, plant.tid(), GuestEvent::Passes(checkpoint)),
            // The call that sends is over, that which receives begins.
            C::NetKvmKick => {
                self.guest(guest_at - 2, plant.tid(), GuestEvent::Exit);
                self.guest(guest_at - 1, plant.tid(), CALL);
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
                    self.guest(
                        guest_at + after,
                        0,
                        GuestEvent::Sched(Sched::Waking { tid: plant.tid() }),
                    );
                }
            }
            C::NetTx | C::NetRx => self.host(at, MAIN, false, HostEvent::Passes(checkpoint, keyed)),
            C::NetTxWake if plant.queues => self.host(at, PASST, false, HostEvent::Woke),
            C::NetTxWake | C::NetRxWake | C::NetStreamWake => {
                self.host(at, MAIN, false, HostEvent::Woke)
            }
            C::NetPasstWake | C::NetPasstReplyWake => self.host(at, PASST, false, HostEvent::Woke),
            C::NetTapReceive => self.host(
                at,
                if plant.passt { PASST } else { MAIN },
                false,
                host(checkpoint, skb(3), len_in),
            ),
            C::NetServerReceive => self.host(at, SERVER, false, passes),
            // As they are decoded: by the name of the call, whoever makes it.
            C::NetServerSend => self.host(
                at,
                SERVER,
                false,
                HostEvent::Passes(C::NetTapWrite, Mark::default()),
            ),
            C::NetPasstSend | C::NetPasstNotify => self.host(at, PASST, false, passes),
            C::NetPasstWrite => self.host(
                at,
                PASST,
                false,
                HostEvent::Passes(C::NetStreamWrite, Mark::default()),
            ),
            // A datagram: the return of the call alone.
            C::NetPasstRead => self.host(at, PASST, false, passes),
            C::NetStreamRead => {
                self.host(at, MAIN, false, host(C::NetTapRead, skb(9), len_out + 4))
            }
            C::NetHostQueue => self.host(at, SERVER, false, host(checkpoint, skb(4), len_out)),
            C::NetHostXmit => self.host(
                at,
                SERVER,
                plant.queued > 0,
                host(checkpoint, skb(4), len_out),
            ),
            C::NetTapRead => self.host(at, MAIN, false, host(checkpoint, skb(4), len_out)),
            C::NetGuestRead => self.guest(guest_at, plant.tid(), guest(checkpoint, skb(2), 0)),
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
        let spec = WorkloadSpec::new(WorkloadName::NetRr)
            .with("protocol", "udp")
            .with("size", SIZE);
        let frames = Frames::of_trial(&trial(Machine::TCG, spec)).unwrap();
        let mut facts: TraceFacts = facts();
        facts.threads.push(QemuThread {
            tid: SERVER,
            role: Role::Other(Role::ECHO_SERVER.to_owned()),
        });
        if self.has_passt {
            facts.threads.push(QemuThread {
                tid: PASST,
                role: Role::Other(Role::PASST.to_owned()),
            });
        }
        self.fed(Join::network(
            &facts,
            self.operations.clone(),
            frames,
            View::Kernel,
            bound,
        ))
    }

    /// Passes all events to a join in the order of time, and returns its result.
    fn fed(&self, mut join: Join) -> Joined {
        let (mut guest, mut host) = (self.guest.iter().peekable(), self.host.iter().peekable());
        loop {
            match (guest.peek(), host.peek()) {
                (Some(g), h) if h.is_none_or(|h| g.at <= h.at) => {
                    guest.next().into_iter().for_each(|e| join.guest(e))
                }
                (_, Some(_)) => host.next().into_iter().for_each(|e| join.host(e)),
                _ => return join.finish(),
            }
        }
    }
}

/// So many round trips of the same plant.
fn world(count: u64, plant: Plant) -> World {
    let mut world = World {
        has_passt: plant.passt,
        ..World::default()
    };
    let mut at = 10_000;
    for _ in 0..count {
        at = world.round_trip(at, plant) + PAUSE;
    }
    world
}

/// No round trip has an event of another.
fn none_is_mixed_up(joined: &Joined, plant: Plant) {
    for request in &joined.requests {
        for (number, checkpoint) in path(plant).into_iter().enumerate() {
            let at = request.begin() - plant.skew + STEP * (number as u64 + 1);
            // Which of several kicks and interrupts it was, only better clocks could tell; and of the host's, how far they
            // are ahead.
            if checkpoint.info().layer != vmtax_model::Layer::Interrupt {
                let (found, off) = (request.at(checkpoint).unwrap(), plant.skew);
                assert!(
                    (at..=at + off).contains(&found),
                    "{checkpoint:?}: {found}, at {at}; {plant:?}"
                );
            }
        }
    }
}

fn frames(protocol: &str, size: &str) -> Option<Frames> {
    let spec = WorkloadSpec::new(WorkloadName::NetRr)
        .with("protocol", protocol)
        .with("size", size);
    Frames::of_trial(&trial(Machine::KVM, spec))
}

#[test]
fn packets_with_the_payload_differ_from_arp_and_from_acknowledgements() {
    let udp = frames("udp", "64").unwrap();
    assert!(
        udp.has(92)
            && udp.has_with_link(106)
            && !udp.has(28)
            && !udp.has(106)
            && !udp.has_with_link(13)
    );
    let tcp = frames("tcp", "16").unwrap();
    // With time stamps, and an acknowledgement with them.
    assert!(tcp.has(16 + 52) && !tcp.has(52), "{tcp:?}");
    assert_eq!(
        (
            frames("sctp", "64"),
            frames("udp", "much"),
            frames("udp", "1G")
        ),
        (None, None, None)
    );
}

proptest! {
    #[test]
    fn any_length_and_any_option_is_read(size in "[0-9A-Za-z]{0,12}", len in any::<u64>()) {
        for protocol in ["udp", "tcp", &size] {
            let _ = frames(protocol, &size).map(|frames| frames.has(len) || frames.has_with_link(len));
        }
    }
}
