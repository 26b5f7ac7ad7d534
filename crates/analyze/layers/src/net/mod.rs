//! Code for the network alone: how round trips and packets are followed. Here are the packets of a trial, recognized by
//! their length, and counted: how many one doorbell, write or interrupt serves, and which pass twice or in another order.

mod by_calls;
pub(crate) mod follow;
pub(crate) mod from_both;
pub(crate) mod from_host;
mod in_host;
pub(crate) mod in_queues;
mod response;
#[cfg(test)]
mod tests;

use crate::JoinedRequest;
use crate::events::{Event, GuestEvent, HostEvent};
use crate::join::sides::HostWindow;
use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;
use vmtax_findings::{BatchKind, Batching, PacketCounts};
use vmtax_model::{Checkpoint, Missing, Stamped, TrialRecord, WorkloadName, thread_of_round_trip};

/// The calls by which threads send packets. Kernels record them by name alone, so who called tells what was sent where: the
/// server, passt, or QEMU.
pub(crate) const SENDS: [Checkpoint; 3] = [
    Checkpoint::NetTapWrite,
    Checkpoint::NetStreamWrite,
    Checkpoint::NetPasstSend,
];

/// The returns of calls by which threads receive packets, likewise.
pub(crate) const RECEIVES: [Checkpoint; 2] =
    [Checkpoint::NetServerReceive, Checkpoint::NetPasstRead];

/// Returns true if a single system call is this checkpoint of a round trip: a call that sends or notifies, or the
/// return of one that receives.
pub(crate) fn is_call_of_network(checkpoint: Checkpoint) -> bool {
    SENDS.contains(&checkpoint)
        || RECEIVES.contains(&checkpoint)
        || checkpoint == Checkpoint::NetPasstNotify
}

/// Returns the part of several connections' round trips that is not followed; `None` if there is no such part.
pub(crate) fn not_followed(requests: &[JoinedRequest]) -> Option<Missing> {
    let clients: BTreeSet<i32> = requests
        .iter()
        .map(|request| thread_of_round_trip(request.key))
        .collect();
    let has = |checkpoint| {
        requests
            .iter()
            .any(|request| request.at(checkpoint).is_some())
    };
    let is_cut = clients.len() > 1 && has(Checkpoint::NetRx) && !has(Checkpoint::NetServerReceive);
    is_cut.then(|| Missing {
        what: "the server's part of a round trip, and with passt what lies between it and QEMU".to_owned(),
        why: format!(
            "with {} connections at once the events of this backend do not say whose a packet on the host is",
            clients.len()
        ),
        fix: "measure one connection (connections=1), or backend=tap".to_owned(),
    })
}

/// Bytes of an Ethernet header, which a packet has on its way out, and which the guest's kernel does not count on its way in.
const LINK: u64 = 14;
/// Bytes of the headers of IPv4 and UDP.
const UDP: u64 = 20 + 8;
/// Bytes of the headers of IPv4 and TCP, without options.
const TCP: u64 = 20 + 20;
/// Most bytes of TCP's options.
const TCP_OPTIONS: u64 = 40;

/// The lengths of packets with a whole payload: IP header to end, bytes. Others on the same card are ARP's, or TCP's
/// acknowledgements without data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frames {
    least: u64,
    most: u64,
}

impl Frames {
    /// Of a trial of `net-rr`; `None` for one of another workload, or whose options do not say.
    pub fn of_trial(record: &TrialRecord) -> Option<Frames> {
        let workload = record
            .result()
            .map_or(&record.workload, |result| &result.workload);
        let option = |name: &str| workload.options.get(name).map(String::as_str);
        let size =
            vmtax_model::parse_size(option("size")?).filter(|size| *size <= u64::from(u16::MAX))?;
        let (least, more) = match option("protocol")? {
            "udp" => (size + UDP, 0),
            "tcp" => (size + TCP, TCP_OPTIONS),
            _ => return None,
        };
        (workload.name == WorkloadName::NetRr).then_some(Frames {
            least,
            most: least + more,
        })
    }

    /// Returns true if a packet of this length, in bytes, has the payload, as it is on its way in.
    pub fn has(&self, len: u64) -> bool {
        (self.least..=self.most).contains(&len)
    }

    /// Returns true if a packet of this length, in bytes, has the payload, as it is on its way out, with the link's
    /// header.
    pub fn has_with_link(&self, len: u64) -> bool {
        len.checked_sub(LINK).is_some_and(|len| self.has(len))
    }
}

#[derive(Debug)]
pub(crate) struct PacketTally {
    /// From the first round trip's begin to the last's end.
    period: RangeInclusive<u64>,
    /// Number of packets that passed each checkpoint.
    passed: HashMap<Checkpoint, u64>,
    segments: u64,
    /// QEMU's system calls that send.
    writes: u64,
    /// Each direction's last key, by client.
    last: HashMap<(Checkpoint, i32), u64>,
    repeated: u64,
    reordered: u64,
}

impl PacketTally {
    /// For these round trips, host ticks.
    pub fn new(operations: &[Stamped]) -> Self {
        let begin = operations.iter().map(|o| o.begin).min().unwrap_or(0);
        let end = operations.iter().map(|o| o.end).max().unwrap_or(0);
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
                if *checkpoint == Checkpoint::NetGuestXmit {
                    self.segments += packet.segments;
                }
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
        if !matches!(checkpoint, Checkpoint::NetTx | Checkpoint::NetRx) || client == 0 {
            return;
        }
        // A client numbers its requests, and has one under way.
        let last = self.last.entry((*checkpoint, client)).or_insert(0);
        self.repeated += u64::from(key == *last);
        self.reordered += u64::from(key < *last);
        *last = key.max(*last);
    }

    fn pass(&mut self, checkpoint: Checkpoint) {
        *self.passed.entry(checkpoint).or_default() += 1;
    }

    /// Returns the counts of the packets observed in the period.
    pub fn counts(&self) -> PacketCounts {
        let count_at = |checkpoint: Checkpoint| self.passed.get(&checkpoint).copied().unwrap_or(0);
        let all = [
            (
                BatchKind::Doorbell,
                count_at(Checkpoint::NetGuestXmit),
                doorbells(count_at),
            ),
            (BatchKind::Write, count_at(Checkpoint::NetTx), self.writes),
            (
                BatchKind::Interrupt,
                count_at(Checkpoint::NetGuestPoll),
                count_at(Checkpoint::NetGuestInterrupt),
            ),
            (
                BatchKind::Gro,
                count_at(Checkpoint::NetGuestPoll),
                count_at(Checkpoint::NetGuestReceive),
            ),
            (
                BatchKind::Tso,
                self.segments,
                count_at(Checkpoint::NetGuestXmit),
            ),
        ];
        PacketCounts {
            batching: batched(all),
            repeated: self.repeated,
            reordered: self.reordered,
            ..PacketCounts::default()
        }
    }
}

/// Number of doorbells. Without KVM the guest shows them alone.
fn doorbells(count_at: impl Fn(Checkpoint) -> u64) -> u64 {
    match count_at(Checkpoint::NetKvmKick) {
        0 => count_at(Checkpoint::NetGuestKick),
        doorbells => doorbells,
    }
}

/// Numbers of packets and of batches by what served them, of those that were observed.
fn batched(all: impl IntoIterator<Item = (BatchKind, u64, u64)>) -> Vec<Batching> {
    let seen = all
        .into_iter()
        .filter(|(_, packets, batches)| *packets > 0 && *batches > 0);
    let batching = seen.map(|(kind, packets, batches)| Batching {
        kind,
        packets,
        batches,
    });
    batching.collect()
}
