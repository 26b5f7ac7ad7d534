//! The packets of a guest's network card whose kernel traces. A virtqueue keeps their order: the n-th that one side hands over is the n-th
//! that the other takes.

use crate::disk::request::{GuestRequest, NOWHERE};
use crate::events::event::{Event, GuestEvent, HostEvent};
use crate::join::joined::{Reason, Rejected};
use std::collections::{HashMap, VecDeque};
use std::mem;
use vmtax_model::{Checkpoint, RequestKind};
use vmtax_trace::Moment;

/// More packets are in no queue: QEMU keeps 10,000 (`nq_maxlen`) for a card whose virtqueue of 1,024 at most is full.
const MAX_QUEUED: usize = 16_384;
/// More are not lost in a row: then it is the one that was taken which is another's.
const MAX_SKIPPED: usize = 64;
/// So many are kept until what follows confirms them.
const MAX_HELD: usize = 1024;

/// How well times of both sides compare, and what was observed of them.
#[derive(Debug, Clone, Copy)]
struct Sight {
    /// Guest and host ticks agree within this.
    bound: u64,
    /// As far as this, one that was taken before it was handed over shows that the clocks do not agree.
    slack: u64,
    /// When the guest's first and last event was.
    guest: Option<(u64, u64)>,
}

impl Sight {
    /// Whether the guest traced well before and after a moment.
    fn has(&self, at: u64) -> bool {
        self.guest.is_some_and(|(first, last)| at > first.saturating_add(self.slack) && at <= last)
    }
}

/// What is known of packets on their way, and of those that were taken.
#[derive(Debug, Default)]
pub(crate) struct InQueues {
    sight: Sight,
    /// Nothing is known of the host: packets end, or begin, at the border.
    pub guest_alone: bool,
    /// When the guest's stack queued a packet for the card, by the kernel's address for it.
    queued: HashMap<u64, u64>,
    transmit: Queue,
    receive: Queue,
    /// Those that were taken, and confirmed, since the last call.
    pub done: Vec<GuestRequest>,
    /// Those that were not, likewise.
    pub rejected: Vec<Rejected>,
}

/// One virtqueue.
#[derive(Debug, Default)]
struct Queue {
    handed: VecDeque<GuestRequest>,
    /// Each with its length; 1 where that is not known.
    taken: VecDeque<(Moment, u64)>,
    /// Matched, and not confirmed yet: all of one length, behind each other.
    held: VecDeque<GuestRequest>,
}

impl Default for Sight {
    fn default() -> Self {
        Sight { bound: 0, slack: 1, guest: None }
    }
}

/// A packet that is handed over; `complete` is not valid yet.
fn handed(kind: RequestKind, bytes: u64, issue: Moment, inserted: Option<u64>) -> GuestRequest {
    GuestRequest { offset: NOWHERE, bytes, kind, inserted, issue, complete: issue, alone: false }
}

/// Bytes of an Ethernet header, which the guest's kernel does not count on a packet's way in.
const LINK: u64 = 14;

impl InQueues {
    pub fn new(bound: u64, slack: u64, guest_alone: bool) -> InQueues {
        InQueues { sight: Sight { bound, slack, guest: None }, guest_alone, ..InQueues::default() }
    }

    pub fn guest(&mut self, event: &Event<GuestEvent>) {
        let at = event.at;
        if self.sight.guest.is_none() {
            // What QEMU handed over before was taken unseen.
            self.receive.handed.clear();
        }
        self.sight.guest.get_or_insert((at, at)).1 = at;
        let GuestEvent::Packet(checkpoint, packet) = event.what else { return };
        let now = event.moment();
        match checkpoint {
            Checkpoint::NetGuestQueue => {
                self.queued.insert(packet.skb, at);
            }
            Checkpoint::NetGuestXmit => {
                let packet = handed(RequestKind::Transmit, packet.len, now, self.queued.remove(&packet.skb));
                match self.guest_alone {
                    true => self.done.push(packet),
                    false => self.hand_over(packet),
                }
            }
            Checkpoint::NetGuestPoll => {
                let bytes = packet.len.saturating_add(LINK);
                match self.guest_alone {
                    true => self.done.push(handed(RequestKind::Receive, bytes, now, None)),
                    false => self.receive.taken.push_back((now, bytes)),
                }
            }
            _ => {}
        }
    }

    pub fn host(&mut self, event: &Event<HostEvent>) {
        let HostEvent::Passes(checkpoint, mark) = event.what else { return };
        match checkpoint {
            Checkpoint::NetTx => self.transmit.taken.push_back((event.moment(), mark.bytes)),
            Checkpoint::NetRx => self.hand_over(handed(RequestKind::Receive, mark.bytes, event.moment(), None)),
            _ => {}
        }
    }

    fn hand_over(&mut self, packet: GuestRequest) {
        let queue = match packet.kind {
            RequestKind::Transmit => &mut self.transmit,
            _ => &mut self.receive,
        };
        queue.handed.push_back(packet);
        if queue.handed.len() > MAX_QUEUED {
            let oldest = queue.handed.pop_front();
            oldest.into_iter().for_each(|packet| self.lose(&packet));
        }
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
            self.confirm(kind);
            for packet in mem::take(&mut self.queue(kind).handed) {
                self.lose(&packet);
            }
        }
    }

    /// When the oldest began that is on its way, or not confirmed; nothing counts that was handed over before `since`.
    pub fn oldest(&self, since: u64) -> Option<u64> {
        let of = |queue: &Queue| {
            let handed = queue.handed.iter().map(|packet| packet.issue.at).find(|at| *at >= since);
            let taken = queue.taken.front().map(|(moment, _)| moment.at);
            handed.into_iter().chain(taken).chain(queue.held.front().map(GuestRequest::begin)).min()
        };
        [&self.transmit, &self.receive].into_iter().filter_map(of).min()
    }

    #[cfg(test)]
    pub fn remembers(&self) -> usize {
        let of = |queue: &Queue| queue.handed.len() + queue.taken.len() + queue.held.len();
        of(&self.transmit) + of(&self.receive)
    }

    fn queue(&mut self, kind: RequestKind) -> &mut Queue {
        if kind == RequestKind::Transmit { &mut self.transmit } else { &mut self.receive }
    }

    /// Finds the packet that was taken among those that were handed over.
    fn take(&mut self, kind: RequestKind, moment: Moment, bytes: u64) {
        let Sight { bound, slack, .. } = self.sight;
        let queue = self.queue(kind);
        let fits = |packet: &GuestRequest| bytes <= 1 || packet.bytes <= 1 || packet.bytes == bytes;
        let until = |more: u64| {
            let latest = moment.at.saturating_add(more);
            queue.handed.iter().take_while(move |packet| packet.issue.at <= latest)
        };
        match until(bound).take(MAX_SKIPPED + 1).position(fits) {
            Some(skipped) => {
                let lost: Vec<GuestRequest> = queue.handed.drain(..skipped).collect();
                let Some(packet) = queue.handed.pop_front() else { return };
                if !lost.is_empty() {
                    self.contradict(kind);
                    lost.iter().for_each(|packet| self.lose(packet));
                }
                self.hold(GuestRequest { complete: moment, ..packet });
            }
            None if until(bound).next().is_none() && until(slack).next().is_some_and(fits) => {
                // Nothing else can be its cause: so the clocks do not agree.
                let packet = queue.handed.pop_front();
                self.contradict(kind);
                packet.into_iter().for_each(|packet| self.reject(&packet, Reason::Violation));
            }
            None => {
                self.contradict(kind);
                if self.sight.has(moment.at) {
                    let reason = match kind {
                        RequestKind::Transmit => Reason::NoPacket,
                        _ => Reason::Missing(Checkpoint::NetRx),
                    };
                    self.reject(&handed(kind, bytes, moment, None), reason);
                }
            }
        }
    }

    /// Keeps a packet until another length confirms the order of those before it, or nothing is left that one of them may be instead.
    fn hold(&mut self, packet: GuestRequest) {
        let bound = self.sight.bound;
        if self.queue(packet.kind).held.back().is_some_and(|last| last.bytes != packet.bytes) {
            self.confirm(packet.kind);
        }
        let queue = self.queue(packet.kind);
        queue.held.push_back(packet);
        let is_empty = queue.handed.front().is_none_or(|next| next.issue.at > packet.complete.at.saturating_add(bound));
        if is_empty {
            self.confirm(packet.kind);
        } else if queue.held.len() > MAX_HELD {
            let oldest = queue.held.pop_front();
            self.done.extend(oldest);
        }
    }

    fn confirm(&mut self, kind: RequestKind) {
        let held = mem::take(&mut self.queue(kind).held);
        self.done.extend(held);
    }

    /// One was lost, of those that are held perhaps: which is not known.
    fn contradict(&mut self, kind: RequestKind) {
        for packet in mem::take(&mut self.queue(kind).held) {
            self.reject(&packet, Reason::Ambiguous);
        }
    }

    /// A packet that nobody took: it does not count where the guest did not trace.
    fn lose(&mut self, packet: &GuestRequest) {
        let taken = match packet.kind {
            RequestKind::Transmit => Checkpoint::NetTx,
            _ if !self.sight.has(packet.issue.at.saturating_add(self.sight.slack)) => return,
            _ => Checkpoint::NetGuestPoll,
        };
        self.reject(packet, Reason::Missing(taken));
    }

    fn reject(&mut self, packet: &GuestRequest, reason: Reason) {
        let (begin, end) = (packet.begin(), packet.complete.at.max(packet.begin()));
        self.rejected.push(Rejected { begin, end, kind: packet.kind, reason });
    }
}
