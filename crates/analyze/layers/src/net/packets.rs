//! Counts the packets of a trial: how many one doorbell, write or interrupt serves, and which pass twice or in another order.

use super::SENDS;
use crate::events::event::{Event, GuestEvent, HostEvent};
use crate::join::host::HostWindow;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use vmtax_model::{
    BatchKind, Batching, Checkpoint as C, PacketCounts, Stamped, thread_of_round_trip,
};

#[derive(Debug)]
pub(crate) struct PacketTally {
    /// From the first round trip's begin to the last's end.
    period: RangeInclusive<u64>,
    /// Number of packets that passed each checkpoint.
    passed: HashMap<C, u64>,
    segments: u64,
    /// QEMU's system calls that send.
    writes: u64,
    /// Each direction's last key, by client.
    last: HashMap<(C, i32), u64>,
    repeated: u64,
    reordered: u64,
}

impl PacketTally {
    /// For these round trips, host ticks.
    pub fn new(operations: &[Stamped]) -> Self {
        let begin = operations
            .iter()
            .map(|operation| operation.begin)
            .min()
            .unwrap_or(0);
        let end = operations
            .iter()
            .map(|operation| operation.end)
            .max()
            .unwrap_or(0);
        PacketTally {
            period: begin..=end,
            passed: HashMap::new(),
            segments: 0,
            writes: 0,
            last: HashMap::new(),
            repeated: 0,
            reordered: 0,
        }
    }

    pub fn guest(&mut self, event: &Event<GuestEvent>) {
        if !self.period.contains(&event.at) {
            return;
        }
        match &event.what {
            GuestEvent::Passes(checkpoint) => self.pass(*checkpoint),
            GuestEvent::Packet(checkpoint, packet) => {
                self.pass(*checkpoint);
                self.segments += if *checkpoint == C::NetGuestXmit {
                    packet.segments
                } else {
                    0
                };
            }
            _ => {}
        }
    }

    pub fn host(&mut self, event: &Event<HostEvent>, host: &HostWindow) {
        let (HostEvent::Passes(checkpoint, mark), true) =
            (&event.what, self.period.contains(&event.at))
        else {
            return;
        };
        self.pass(*checkpoint);
        self.writes += u64::from(SENDS.contains(checkpoint) && host.is_qemus(event.tid));
        let Some(key) = mark.round_trip else { return };
        let client = thread_of_round_trip(key);
        if !matches!(checkpoint, C::NetTx | C::NetRx) || client == 0 {
            return;
        }
        // A client numbers its requests, and has one under way.
        let last = self.last.entry((*checkpoint, client)).or_insert(0);
        self.repeated += u64::from(key == *last);
        self.reordered += u64::from(key < *last);
        *last = key.max(*last);
    }

    fn pass(&mut self, checkpoint: C) {
        *self.passed.entry(checkpoint).or_default() += 1;
    }

    /// Returns the counts of the packets observed in the period.
    pub fn counts(&self) -> PacketCounts {
        let count_at = |checkpoint: C| self.passed.get(&checkpoint).copied().unwrap_or(0);
        // Without KVM the guest shows its doorbells alone.
        let doorbells = if count_at(C::NetKvmKick) > 0 {
            count_at(C::NetKvmKick)
        } else {
            count_at(C::NetGuestKick)
        };
        let all = [
            (BatchKind::Doorbell, count_at(C::NetGuestXmit), doorbells),
            (BatchKind::Write, count_at(C::NetTx), self.writes),
            (
                BatchKind::Interrupt,
                count_at(C::NetGuestPoll),
                count_at(C::NetGuestInterrupt),
            ),
            (
                BatchKind::Gro,
                count_at(C::NetGuestPoll),
                count_at(C::NetGuestReceive),
            ),
            (BatchKind::Tso, self.segments, count_at(C::NetGuestXmit)),
        ];
        let seen = all
            .into_iter()
            .filter(|(_, packets, batches)| *packets > 0 && *batches > 0);
        PacketCounts {
            batching: seen
                .map(|(kind, packets, batches)| Batching {
                    kind,
                    packets,
                    batches,
                })
                .collect(),
            repeated: self.repeated,
            reordered: self.reordered,
            ..PacketCounts::default()
        }
    }
}
