//! Follows a packet of which guest and host tell: one that the guest sends, from its stack to QEMU's backend; one that it
//! receives, from there to its stack.

use super::follow::{filled, in_softirq, interrupted, woken_by_kick};
use super::{batched, doorbells};
use crate::JoinedRequest;
use crate::disk::GuestRequest;
use crate::join::sides::HostWindow;
use crate::join::sides::{GuestPacket, GuestWindow};
use crate::join::{Reason, RequestPath};
use std::collections::BTreeSet;
use vmtax_findings::{BatchKind, Batching, RequestKind};
use vmtax_model::Checkpoint as C;
use vmtax_trace::Moment;

pub(crate) struct FromBoth<'a> {
    pub host: &'a HostWindow,
    pub guest: &'a GuestWindow,
    /// Guest and host ticks agree within this.
    pub bound: u64,
    /// Nothing is known of the host.
    pub guest_alone: bool,
}

impl FromBoth<'_> {
    /// The checkpoints of a packet.
    ///
    /// # Errors
    /// Why it cannot be followed.
    pub fn path(&self, part: &GuestRequest) -> Result<RequestPath, Reason> {
        let path = match part.kind {
            RequestKind::Transmit => self.transmitted(part),
            _ => self.received(part),
        };
        path.in_order(self.bound)
    }

    fn transmitted(&self, part: &GuestRequest) -> RequestPath {
        let mut path = RequestPath::new();
        let xmit = part.issue;
        path.set_guest(C::NetGuestXmit, xmit);
        let queued = |at| self.guest.packets.within(C::NetGuestQueue, at, at).next();
        if let Some((_, packet)) = part.inserted.and_then(queued) {
            path.set_guest(C::NetGuestQueue, packet.moment);
        }
        // The driver kicks while it has the queue's lock: before the next packet.
        let after = xmit.at.saturating_add(1);
        let later = self.guest.packets.at(C::NetGuestXmit).from(after).next();
        let next = later.map_or(u64::MAX, |(at, _)| at);
        let taken = part.complete.at;
        let until = if self.guest_alone {
            next
        } else {
            next.min(taken.saturating_add(self.bound))
        };
        let mut kicks = self.guest.passed.within(C::NetGuestKick, xmit.at, until);
        let kick = kicks
            .find(|(_, kick)| (kick.tid, kick.cpu) == (xmit.tid, xmit.cpu))
            .map(|(_, kick)| *kick);
        if self.guest_alone {
            if let Some(kick) = kick {
                path.set_guest(C::NetGuestKick, kick);
            }
            return path;
        }
        path.set_thread(C::NetTx, taken, part.complete.tid);
        self.kicked(&mut path, part, next, kick);
        self.written(&mut path, part.complete);
        path
    }

    /// The kick for which QEMU took a packet, and its wake-up. What it found without one lay in the ring.
    fn kicked(&self, path: &mut RequestPath, part: &GuestRequest, next: u64, kick: Option<Moment>) {
        let taken = part.complete;
        let shows_kicks = self.guest.passed.seen(C::NetGuestKick);
        let told = kick.map_or(part.issue.at, |kick| kick.at);
        // Its own is before the next packet's.
        let until = taken.at.min(next.saturating_add(self.bound));
        let doorbells = self.host.passed.at(C::NetKvmKick);
        let doorbell = doorbells
            .caused(told, until, self.bound)
            .filter(|_| kick.is_some() || !shows_kicks);
        let kvm_shows = self.host.passed.seen(C::NetKvmKick);
        // Without the card's doorbell it was another device that the driver's thread kicked.
        let kick = kick.filter(|_| doorbell.is_some() || !kvm_shows);
        if (shows_kicks || kvm_shows) && kick.is_none() && doorbell.is_none() {
            path.in_ring = Some(C::NetGuestXmit);
            return;
        }
        if let Some(kick) = kick {
            path.set_guest(C::NetGuestKick, kick);
        }
        if let Some((at, exit)) = doorbell {
            path.set_thread(C::NetKvmKick, at, exit.tid);
        }
        let from = path.at(C::NetKvmKick).unwrap_or(told);
        woken_by_kick(self.host, path, taken.tid, from, taken.at, self.bound);
    }

    /// The system call by which QEMU's backend writes what the packet carries to a socket: before it returns the packet to
    /// the ring. Others carry nothing, or the backend keeps what they carry.
    fn written(&self, path: &mut RequestPath, taken: Moment) {
        let Moment { at, tid, .. } = taken;
        let own = |checkpoint: C| self.next_passing(checkpoint, at, tid);
        let ends = [
            own(C::NetTx),
            self.returned(at, tid),
            self.host.woke_after(tid, at),
        ];
        let until = ends.into_iter().flatten().min().unwrap_or(u64::MAX);
        if let Some(at) = own(C::NetTapWrite).filter(|at| *at < until) {
            path.set_thread(C::NetTapWrite, at, tid);
        }
    }

    /// When a thread next passes a checkpoint, after `since`.
    fn next_passing(&self, checkpoint: C, since: u64, tid: i32) -> Option<u64> {
        let from = since.saturating_add(1);
        let next = self
            .host
            .first_by(checkpoint, from, u64::MAX, |by| by == tid);
        next.map(|(at, _)| at)
    }

    /// When QEMU gave a packet of the transmit queue back: the next time that it fills a used ring without a packet that
    /// it received in between, as an answer of the backend itself.
    fn returned(&self, taken: u64, tid: i32) -> Option<u64> {
        let mut since = taken;
        loop {
            let filled = self.next_passing(C::NetRxFill, since, tid)?;
            match self.next_passing(C::NetRx, since, tid) {
                Some(received) if received < filled => since = filled,
                _ => return Some(filled),
            }
        }
    }

    fn received(&self, part: &GuestRequest) -> RequestPath {
        let mut path = RequestPath::new();
        let polled = part.complete;
        path.set_guest(C::NetGuestPoll, in_softirq(polled));
        if let Some(received) = self.in_stack(polled) {
            path.set_guest(C::NetGuestReceive, in_softirq(received));
        }
        let mut from = polled.at;
        if self.guest_alone {
            // One that the guest, still polling, finds has none.
            let polls = self.guest.packets.at(C::NetGuestPoll).before(polled.at);
            from = polls.map(|(at, _)| at).next().unwrap_or(0);
        } else {
            let (at, tid) = (part.issue.at, part.issue.tid);
            path.set_thread(C::NetRx, at, tid);
            let latest = polled.at.saturating_add(self.bound);
            from = from.min(filled(self.host, &mut path, tid, at, latest));
        }
        let Some(interrupt) = interrupted(self.guest, &mut path, from, polled.at, self.bound)
        else {
            return path;
        };
        if self.guest_alone {
            return path;
        }
        let tid = part.issue.tid;
        // What the thread delivers later is for another notification: this packet found an interrupt that the guest had
        // not handled yet.
        let own = |checkpoint: C| self.next_passing(checkpoint, from, tid);
        let ends = [
            own(C::NetRx),
            own(C::NetRxNotify),
            self.host.woke_after(tid, from),
        ];
        let next = ends.into_iter().flatten().min().unwrap_or(u64::MAX);
        let until = interrupt.saturating_add(self.bound).min(next);
        if let Some((at, _)) = self
            .host
            .first_by(C::NetInject, from, until, |by| by == tid)
        {
            path.set_thread(C::NetInject, at, tid);
        }
        path
    }

    /// When the guest's stack had the packet that NAPI polled at this moment. One that GRO merged with another is received
    /// with that.
    fn in_stack(&self, polled: Moment) -> Option<Moment> {
        let polls = self.guest.packets.at(C::NetGuestPoll);
        let (_, own) = polls
            .within(polled.at, polled.at)
            .find(|(_, p)| p.moment.cpu == polled.cpu)?;
        let received = |is: &dyn Fn(&GuestPacket) -> bool| {
            let all = self.guest.packets.at(C::NetGuestReceive).from(polled.at);
            all.map(|(_, packet)| packet)
                .find(|packet| is(packet))
                .map(|packet| packet.moment)
        };
        let is_same = |packet: &GuestPacket| packet.packet.skb == own.packet.skb;
        // Once it is polled again the address is another's.
        let is_reused = |until: u64| {
            polls
                .within(polled.at.saturating_add(1), until)
                .any(|(_, p)| is_same(p))
        };
        let is_merged = |packet: &GuestPacket| {
            let first = polls
                .until(packet.moment.at)
                .find(|(_, p)| p.packet.skb == packet.packet.skb);
            packet.moment.cpu == polled.cpu
                && first.is_some_and(|(at, first)| {
                    at < polled.at && first.packet.len < packet.packet.len
                })
        };
        received(&is_same)
            .filter(|received| !is_reused(received.at))
            .or_else(|| received(&is_merged))
    }
}

/// Returns the number of packets of a direction that one doorbell or interrupt served, or that the stack received as
/// one.
pub(crate) fn batching(kind: RequestKind, requests: &[JoinedRequest]) -> Vec<Batching> {
    let times = |checkpoint: C| {
        let times = requests.iter().filter_map(|r| r.at(checkpoint));
        times.collect::<BTreeSet<u64>>().len() as u64
    };
    let packets = requests.len() as u64;
    let all = match kind {
        RequestKind::Transmit => {
            let batches = doorbells(times);
            vec![(BatchKind::Doorbell, packets, batches)]
        }
        _ => vec![
            (BatchKind::Interrupt, packets, times(C::NetGuestInterrupt)),
            (BatchKind::Gro, packets, times(C::NetGuestReceive)),
        ],
    };
    batched(all)
}
