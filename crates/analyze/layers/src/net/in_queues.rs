//! The packets of a guest's network card whose kernel traces. A virtqueue keeps their order: the n-th that one side hands
//! over is the n-th that the other takes.

use super::LINK;
use crate::disk::GuestRequest;
use crate::events::{Event, GuestEvent, HostEvent, moment_at};
use crate::join::{Reason, Rejected};
use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::mem;
use vmtax_findings::RequestKind;
use vmtax_model::Checkpoint;
use vmtax_trace::Moment;

/// More packets are in no queue: QEMU keeps 10,000 (`nq_maxlen`) for a card whose virtqueue of 1,024 at most is full.
const MAX_QUEUED: usize = 16_384;
/// More are not lost in a row: then it is the one that was taken which is another's.
const MAX_SKIPPED: usize = 64;
/// So many are kept until what follows confirms them.
const MAX_HELD: usize = 1024;
/// So many of those behind one that does not fit tell what was lost.
const LOOKAHEAD: usize = 8;

/// Agreement of both sides' clocks, and the period in which they were observed.
#[derive(Debug, Clone, Copy, Default)]
struct Sight {
    /// Guest and host ticks agree within this.
    bound: u64,
    /// As far as this, one that was taken before it was handed over shows that the clocks do not agree.
    slack: u64,
    /// One that was handed over so long before the guest's trace ended, and not taken, was lost.
    in_flight: u64,
    /// When the guest's first and last event was.
    guest: Option<(u64, u64)>,
}

impl Sight {
    /// Returns true if the guest traced well before and after a moment.
    fn has(&self, at: u64) -> bool {
        self.guest
            .is_some_and(|(first, last)| at > first.saturating_add(self.slack) && at <= last)
    }
}

/// Packets on their way through a card's virtqueues, and packets that were taken.
#[derive(Debug, Default)]
pub(crate) struct InQueues {
    sight: Sight,
    /// Nothing is known of the host: packets end, or begin, at the border.
    pub guest_alone: bool,
    /// When the guest's stack queued a packet for the card, by the kernel's address for it.
    queued: HashMap<u64, u64>,
    /// When the last event was.
    latest: u64,
    transmit: Queue,
    receive: Queue,
    /// Those that were taken, and confirmed, since the last call.
    pub done: Vec<GuestRequest>,
    /// Those that were not, likewise.
    pub rejected: Vec<Rejected>,
}

/// Packets of one virtqueue.
#[derive(Debug, Default)]
struct Queue {
    handed: VecDeque<GuestRequest>,
    /// Each with its length; 1 where that is not known.
    taken: VecDeque<(Moment, u64)>,
    /// Matched, and not confirmed yet.
    held: VecDeque<GuestRequest>,
    /// Something was lost, and lengths do not tell what: until nothing is on its way, nothing is matched.
    unsure: bool,
}

impl Queue {
    /// Returns the number of packets taken next that are as long as those handed over from this position on.
    fn agrees(&self, position: usize, bound: u64) -> usize {
        let both = self
            .handed
            .iter()
            .skip(position)
            .zip(&self.taken)
            .take(LOOKAHEAD);
        both.take_while(|(packet, (at, bytes))| {
            fits(packet, *bytes) && packet.issue.at <= at.at.saturating_add(bound)
        })
        .count()
    }

    /// From which of those held on each may be another, as well: `lost` of them, or of those behind them, nobody took.
    fn ambiguous_if_lost(&self, lost: &[GuestRequest], bound: u64) -> usize {
        let all: Vec<&GuestRequest> = self.held.iter().chain(lost).collect();
        let is_one = |number: &usize| {
            let (held, other) = (all[*number], all[*number + lost.len()]);
            fits(other, held.bytes) && other.issue.at <= held.complete.at.saturating_add(bound)
        };
        self.held.len() - (0..self.held.len()).rev().take_while(is_one).count()
    }

    /// Returns the position from which on each held packet may be another as well, if a packet of this length was
    /// taken whose hand-over was not seen.
    fn ambiguous_if_unknown(&self, bytes: u64) -> usize {
        let next = |number: usize| self.held.get(number + 1).map_or(bytes, |next| next.bytes);
        self.held.len()
            - (0..self.held.len())
                .rev()
                .take_while(|number| fits(&self.held[*number], next(*number)))
                .count()
    }

    /// Returns the packet that is to be taken next, if it was handed over at `latest` or before.
    fn next_until(&self, latest: u64) -> Option<GuestRequest> {
        let next = self.handed.front().copied();
        next.filter(|packet| packet.issue.at <= latest)
    }

    /// Returns the position of the first packet of this length, of those handed over at `latest` or before.
    fn position(&self, latest: u64, bytes: u64) -> Option<usize> {
        self.handed
            .iter()
            .take_while(|packet| packet.issue.at <= latest)
            .take(MAX_SKIPPED + 1)
            .position(|packet| fits(packet, bytes))
    }

    /// Returns true if no packet is taken for `slack` ticks after this moment.
    fn rests(&self, at: u64, slack: u64) -> bool {
        self.taken
            .front()
            .is_none_or(|(next, _)| next.at > at.saturating_add(slack))
    }
}

fn fits(packet: &GuestRequest, bytes: u64) -> bool {
    bytes <= 1 || packet.bytes <= 1 || packet.bytes == bytes
}

/// A packet that is handed over; `complete` is not valid yet.
fn handed(kind: RequestKind, bytes: u64, issue: Moment, inserted: Option<u64>) -> GuestRequest {
    GuestRequest {
        bytes,
        inserted,
        ..GuestRequest::new(kind, issue)
    }
}

impl InQueues {
    /// Ticks: by how much the clocks may differ, how far an event may be that shows that they do not agree, and how long a
    /// packet may be on its way.
    pub fn new(bound: u64, slack: u64, in_flight: u64, guest_alone: bool) -> InQueues {
        InQueues {
            sight: Sight {
                bound,
                slack,
                in_flight,
                guest: None,
            },
            guest_alone,
            ..InQueues::default()
        }
    }

    pub fn guest(&mut self, event: &Event<GuestEvent>) {
        let at = event.at;
        self.latest = at;
        if self.sight.guest.is_none() {
            // What QEMU handed over before was taken unseen.
            self.receive.handed.clear();
        }
        self.sight.guest.get_or_insert((at, at)).1 = at;
        let GuestEvent::Packet(checkpoint, packet) = event.what else {
            return;
        };
        let now = event.moment();
        match checkpoint {
            Checkpoint::NetGuestQueue => {
                self.queued.insert(packet.skb, at);
            }
            Checkpoint::NetGuestXmit => {
                let inserted = self.queued.remove(&packet.skb);
                let packet = handed(RequestKind::Transmit, packet.len, now, inserted);
                match self.guest_alone {
                    true => self.done.push(packet),
                    false => self.hand_over(packet),
                }
            }
            Checkpoint::NetGuestPoll => {
                let bytes = packet.len.saturating_add(LINK);
                if self.guest_alone {
                    let packet = handed(RequestKind::Receive, bytes, now, None);
                    self.done.push(packet);
                } else {
                    self.receive.taken.push_back((now, bytes));
                }
            }
            _ => {}
        }
    }

    pub fn host(&mut self, event: &Event<HostEvent>) {
        self.latest = event.at;
        let HostEvent::Passes(checkpoint, mark) = event.what else {
            return;
        };
        let now = event.moment();
        match checkpoint {
            Checkpoint::NetTx => self.transmit.taken.push_back((now, mark.bytes)),
            Checkpoint::NetRx => {
                self.hand_over(handed(RequestKind::Receive, mark.bytes, now, None));
            }
            _ => {}
        }
    }

    fn hand_over(&mut self, packet: GuestRequest) {
        let queue = self.queue(packet.kind);
        queue.handed.push_back(packet);
        let oldest = if queue.handed.len() > MAX_QUEUED {
            queue.handed.pop_front()
        } else {
            None
        };
        self.lose(packet.kind, oldest.as_slice());
    }

    /// Matches all that was taken so long before `now` that what was handed over meanwhile is known.
    pub fn settle(&mut self, now: u64) {
        for kind in [RequestKind::Transmit, RequestKind::Receive] {
            while let Some((moment, bytes)) = self.queue(kind).taken.front().copied() {
                if moment.at.saturating_add(self.sight.slack) >= now && now != u64::MAX {
                    break;
                }
                self.queue(kind).taken.pop_front();
                self.take(kind, moment, bytes);
            }
        }
    }

    /// There are no more events.
    pub fn finish(&mut self) {
        self.settle(u64::MAX);
        for kind in [RequestKind::Transmit, RequestKind::Receive] {
            let left: Vec<GuestRequest> = mem::take(&mut self.queue(kind).handed).into();
            // What came last may not have been taken before the guest's trace ended.
            let is_lost = |packet: &GuestRequest| {
                kind == RequestKind::Transmit
                    || self
                        .sight
                        .has(packet.issue.at.saturating_add(self.sight.slack))
            };
            let lost: Vec<GuestRequest> = left.into_iter().filter(is_lost).collect();
            self.lose(kind, &lost);
            self.confirm(kind);
        }
    }

    /// When the oldest began that is on its way, or not confirmed; nothing counts that was handed over before `since`.
    pub fn oldest(&self, since: u64) -> Option<u64> {
        let oldest_in = |queue: &Queue| {
            let handed = queue
                .handed
                .iter()
                .map(|packet| packet.issue.at)
                .find(|at| *at >= since);
            let taken = queue.taken.front().map(|(moment, _)| moment.at);
            handed
                .into_iter()
                .chain(taken)
                .chain(queue.held.front().map(GuestRequest::begin))
                .min()
        };
        [&self.transmit, &self.receive]
            .into_iter()
            .filter_map(oldest_in)
            .min()
    }

    #[cfg(test)]
    pub fn remembers(&self) -> usize {
        let packets_in = |queue: &Queue| queue.handed.len() + queue.taken.len() + queue.held.len();
        packets_in(&self.transmit) + packets_in(&self.receive)
    }

    fn queue(&mut self, kind: RequestKind) -> &mut Queue {
        if kind == RequestKind::Transmit {
            &mut self.transmit
        } else {
            &mut self.receive
        }
    }

    /// Finds the packet that was taken among those that were handed over.
    fn take(&mut self, kind: RequestKind, moment: Moment, bytes: u64) {
        let Sight { bound, slack, .. } = self.sight;
        let queue = self.queue(kind);
        let next = queue.next_until(moment.at.saturating_add(bound));
        let may_be_next = queue.next_until(moment.at.saturating_add(slack));
        match queue.position(moment.at.saturating_add(bound), bytes) {
            _ if queue.unsure => {
                if let Some(packet) = next {
                    queue.handed.pop_front();
                    self.reject(&packet, Reason::Ambiguous);
                }
            }
            Some(0) => self.found(kind, moment),
            Some(skipped) => self.skip(kind, moment, bytes, skipped),
            None => match may_be_next.filter(|packet| next.is_none() && fits(packet, bytes)) {
                // Nothing else can be its cause: so the clocks do not agree.
                Some(packet) => {
                    queue.handed.pop_front();
                    let from = queue.ambiguous_if_unknown(bytes);
                    self.contradict(kind, from);
                    self.reject(&packet, Reason::Violation);
                }
                None => self.unknown(kind, moment, bytes),
            },
        }
        self.rest(kind, moment.at);
    }

    /// One was taken that is as long as one behind the next `skipped`: those were lost, or the hand-over of this one was.
    fn skip(&mut self, kind: RequestKind, moment: Moment, bytes: u64, skipped: usize) {
        let bound = self.sight.bound;
        let queue = self.queue(kind);
        let agree_if_lost = queue.agrees(skipped + 1, bound);
        match agree_if_lost.cmp(&queue.agrees(0, bound)) {
            order if order == Ordering::Greater || queue.taken.is_empty() => {
                let lost: Vec<GuestRequest> = queue.handed.drain(..skipped).collect();
                self.lose(kind, &lost);
                self.found(kind, moment);
            }
            Ordering::Less => self.unknown(kind, moment, bytes),
            _ => {
                queue.unsure = true;
                self.contradict(kind, 0);
                self.unknown(kind, moment, bytes);
            }
        }
    }

    /// The next that was handed over was taken.
    fn found(&mut self, kind: RequestKind, moment: Moment) {
        let queue = self.queue(kind);
        let packet = queue.handed.pop_front();
        queue
            .held
            .extend(packet.map(|packet| packet.completed(moment)));
        let oldest = if queue.held.len() > MAX_HELD {
            queue.held.pop_front()
        } else {
            None
        };
        self.done.extend(oldest);
    }

    /// Confirms what was matched once nothing is on its way.
    fn rest(&mut self, kind: RequestKind, at: u64) {
        let Sight { bound, slack, .. } = self.sight;
        let queue = self.queue(kind);
        if !queue.rests(at, slack) {
            return;
        }
        let latest = at.saturating_add(bound);
        if queue.unsure {
            let on_its_way = queue
                .handed
                .iter()
                .take_while(|packet| packet.issue.at <= latest)
                .count();
            queue.unsure = false;
            for packet in queue.handed.drain(..on_its_way).collect::<Vec<_>>() {
                self.reject(&packet, Reason::Ambiguous);
            }
        } else if queue
            .handed
            .front()
            .is_none_or(|next| next.issue.at > latest)
        {
            self.confirm(kind);
        }
    }

    fn confirm(&mut self, kind: RequestKind) {
        let held = mem::take(&mut self.queue(kind).held);
        self.done.extend(held);
    }

    /// Rejects the packets that were matched from a position on: their match may be wrong.
    fn contradict(&mut self, kind: RequestKind, from: usize) {
        for packet in self.queue(kind).held.split_off(from) {
            self.reject(&packet, Reason::Ambiguous);
        }
    }

    /// Packets that nobody took, and those that one of them may be instead.
    fn lose(&mut self, kind: RequestKind, lost: &[GuestRequest]) {
        if lost.is_empty() {
            return;
        }
        let bound = self.sight.bound;
        let from = self.queue(kind).ambiguous_if_lost(lost, bound);
        self.contradict(kind, from);
        let last = if kind == RequestKind::Transmit {
            Checkpoint::NetTx
        } else {
            Checkpoint::NetGuestPoll
        };
        // It was on its way all the time: so it may be an event that was lost, if any was.
        let until = moment_at(self.latest);
        for packet in lost {
            if self.counts(packet) {
                self.reject(&packet.completed(until), Reason::Missing(last));
            }
        }
    }

    /// One was taken that was not seen before.
    fn unknown(&mut self, kind: RequestKind, moment: Moment, bytes: u64) {
        let from = self.queue(kind).ambiguous_if_unknown(bytes);
        self.contradict(kind, from);
        if self.sight.has(moment.at) {
            let reason = match kind {
                RequestKind::Transmit => Reason::NoPacket,
                _ => Reason::Missing(Checkpoint::NetRx),
            };
            self.reject(&handed(kind, bytes, moment, None), reason);
        }
    }

    /// Returns true if a packet that nobody took counts: not where the guest no longer traced.
    fn counts(&self, packet: &GuestRequest) -> bool {
        packet.kind == RequestKind::Transmit
            || self
                .sight
                .has(packet.issue.at.saturating_add(self.sight.in_flight))
    }

    fn reject(&mut self, packet: &GuestRequest, reason: Reason) {
        let (begin, end) = (packet.begin(), packet.complete.at.max(packet.begin()));
        self.rejected.push(Rejected {
            begin,
            end,
            kind: packet.kind,
            reason,
        });
    }
}
