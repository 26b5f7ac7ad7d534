//! Follows a packet of which the host alone tells: one that its guest sends, from the doorbell to the host's stack; one that it
//! receives, from the host's stack to the interrupt. All are on the host's clock.

use super::batched;
use super::follow::{by_vhost, filled, set_read};
use crate::JoinedRequest;
use crate::disk::{Ended, GuestRequest};
use crate::events::{Event, HostEvent};
use crate::join::sides::{HostWindow, PassingPacket};
use crate::join::{Reason, RequestPath};
use std::collections::{BTreeSet, HashMap};
use vmtax_findings::{BatchKind, Batching, RequestKind};
use vmtax_model::Checkpoint as C;
use vmtax_trace::Moment;

/// Bytes by which QEMU's length of a packet exceeds the kernel's at most: the header of virtio-net, a VLAN tag.
const HEADERS: u64 = 16;
/// QEMU pads shorter packets for cards that take none, bytes.
const SHORTEST: u64 = 60;

/// A kick by a vCPU's thread, and when the thread woke that it was for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kick {
    pub at: u64,
    pub vcpu: i32,
    pub woke: u64,
    /// The thread that woke.
    pub woken: i32,
}

/// Source of the VMM's part of a packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum VmmPart {
    /// Probes on QEMU's functions, as far as it has them.
    #[default]
    Probes,
    /// QEMU's system calls, wake-ups and interrupts alone.
    QemuCalls,
    /// Likewise of a VMM of whose event loop nothing is known.
    OtherCalls,
}

pub(crate) struct FromHost<'a> {
    pub host: &'a HostWindow,
    pub part: VmmPart,
    /// Longest time from QEMU's read of a packet to the notification, in ticks.
    pub slack: u64,
}

impl FromHost<'_> {
    /// The checkpoints of a packet.
    ///
    /// # Errors
    /// Why it cannot be followed.
    pub fn path(&self, part: &GuestRequest) -> Result<RequestPath, Reason> {
        let path = match part.kind {
            RequestKind::Transmit => self.transmitted(part.complete)?,
            _ => self.received(part.issue, part.complete)?,
        };
        path.in_order(0)
    }

    /// Back from its receipt by the host's stack, which is within QEMU's call that writes it, or within vhost's work.
    fn transmitted(&self, received: Moment) -> Result<RequestPath, Reason> {
        let mut path = RequestPath::new();
        let Moment { at, tid, .. } = received;
        path.set_thread(C::NetTapReceive, at, tid);
        if self.host.vhost.contains(&tid) {
            self.transmitted_by_vhost(&mut path, at, tid);
        } else {
            self.transmitted_by_qemu(&mut path, at, tid)?;
        }
        Ok(path)
    }

    fn transmitted_by_vhost(&self, path: &mut RequestPath, received: u64, tid: i32) {
        let packets = self.host.packets.at(C::NetTapReceive);
        let mut earlier = packets.until(received.saturating_sub(1));
        let previous = earlier.find(|(_, p)| p.tid == tid).map_or(0, |(at, _)| at);
        let kick = self.kick(tid, previous, received);
        if let Some(kick) = kick {
            path.set_thread(C::NetKvmKick, kick.at, kick.vcpu);
        }
        let from = kick.map_or(previous, |kick| kick.at);
        by_vhost(self.host, path, tid, from, previous, received);
    }

    fn transmitted_by_qemu(
        &self,
        path: &mut RequestPath,
        received: u64,
        tid: i32,
    ) -> Result<(), Reason> {
        let is_own = |by| by == tid;
        let own = |at: C, to: u64| self.host.last_by(at, 0, to, is_own);
        let (write, _) = own(C::NetTapWrite, received).ok_or(Reason::Missing(C::NetTapWrite))?;
        let of_call = self.host.packets.within(C::NetTapReceive, write, received);
        if of_call.filter(|(_, p)| p.tid == tid).count() > 1 {
            return Err(Reason::Ambiguous);
        }
        path.set_thread(C::NetTapWrite, write, tid);
        let before_write = write.saturating_sub(1);
        let mut transmits = self.host.passed.at(C::NetTx).until(write);
        let Some((taken, passing)) = transmits.find(|(_, p)| p.tid == tid) else {
            if self.host.passed.seen(C::NetTx) {
                return Err(Reason::Missing(C::NetTx));
            }
            let previous = own(C::NetTapWrite, before_write).map_or(0, |(at, _)| at);
            self.kicked(path, tid, previous, write);
            return Ok(());
        };
        // Another call in between wrote the packet that this was.
        if self
            .host
            .first_by(C::NetTapWrite, taken, before_write, is_own)
            .is_some()
        {
            return Err(Reason::Ambiguous);
        }
        path.set_thread(C::NetTx, taken, tid);
        let mut earlier = self.host.passed.at(C::NetTx).until(taken.saturating_sub(1));
        let previous = earlier.find(|(_, p)| p.tid == tid && p.mark.queue == passing.mark.queue);
        self.kicked(path, tid, previous.map_or(0, |(at, _)| at), taken);
        Ok(())
    }

    /// The kick for which a thread of QEMU took a packet, and its wake-up. A packet that it found without one, behind `previous` of
    /// the same queue, was in the ring for an unknown time: it begins when QEMU has it.
    fn kicked(&self, path: &mut RequestPath, tid: i32, previous: u64, taken: u64) {
        if let Some(kick) = self.kick(tid, previous, taken) {
            path.set_thread(C::NetKvmKick, kick.at, kick.vcpu);
            path.set_thread(C::NetTxWake, kick.woke, kick.woken);
        }
    }

    /// The kick after `previous` for which a thread woke until it took a packet.
    fn kick(&self, tid: i32, previous: u64, taken: u64) -> Option<Kick> {
        let shown = self
            .host
            .passed
            .back(C::NetKvmKick, previous.saturating_add(1), taken)
            .find_map(|(at, kick)| {
                let woke = self.host.woke_first(tid, at.saturating_add(1), taken)?;
                Some(Kick {
                    at,
                    vcpu: kick.tid,
                    woke,
                    woken: tid,
                })
            });
        match shown {
            None if self.host.passed.seen(C::NetKvmKick) => None,
            None if self.part == VmmPart::OtherCalls => self.kick_of_turn(tid, previous, taken),
            None => self.waking_kick(tid, previous, taken),
            shown => shown,
        }
    }

    /// A kick that KVM does not show: the last wake-up of the thread by a vCPU's.
    fn waking_kick(&self, tid: i32, previous: u64, taken: u64) -> Option<Kick> {
        let mut until = taken;
        while let Some(woke) = self.host.woke(tid, previous.saturating_add(1), until) {
            let since = self
                .host
                .woke_before(tid, previous, woke)
                .unwrap_or(previous);
            if let Some((at, vcpu)) = self.host.waking_vcpu(tid, woke, since) {
                return Some(Kick {
                    at,
                    vcpu,
                    woke,
                    woken: tid,
                });
            }
            until = woke.checked_sub(1)?;
        }
        None
    }

    /// From the host's stack, by the kernel's address for the packet, through QEMU's thread that reads it.
    fn received(&self, xmit: Moment, copy: Moment) -> Result<RequestPath, Reason> {
        let mut path = RequestPath::new();
        let tid = copy.tid;
        let packets_at = |checkpoint: C, at: u64| self.host.packets.within(checkpoint, at, at);
        let (_, copied) = packets_at(C::NetTapRead, copy.at)
            .find(|(_, p)| p.tid == tid)
            .ok_or(Reason::Missing(C::NetTapRead))?;
        let same = |p: &PassingPacket| p.packet.skb == copied.packet.skb;
        let (_, passed) = packets_at(C::NetHostXmit, xmit.at)
            .find(|(_, p)| same(p))
            .ok_or(Reason::Missing(C::NetHostXmit))?;
        let mut queued = self.host.packets.at(C::NetHostQueue).until(xmit.at);
        let queued = queued.find(|(_, p)| same(p));
        if let Some((at, queued)) = queued {
            path.set(C::NetHostQueue, at, self.host.by(queued.tid));
        }
        let queued = queued.map_or(passed, |(_, queued)| queued);
        path.set(C::NetHostXmit, xmit.at, self.host.by_queue(queued, passed));
        set_read(self.host, &mut path, C::NetTapRead, tid, xmit.at, copy.at);
        // A thread passes on what it has read before it reads the next.
        let until = copy.at.saturating_add(self.slack);
        let mut reads = self
            .host
            .packets
            .within(C::NetTapRead, copy.at.saturating_add(1), until);
        let next = reads
            .find(|(_, p)| p.tid == tid)
            .map_or(until, |(at, _)| at);
        match self.part {
            _ if self.host.vhost.contains(&tid) => {
                self.interrupts(&mut path, tid, copy.at, next);
            }
            VmmPart::Probes => self.in_queue(&mut path, passed.packet.len, copy, next)?,
            VmmPart::QemuCalls => {
                let next = self.next_on_tap(tid, copy.at, next);
                self.interrupts(&mut path, tid, copy.at, next);
            }
            // It may tell the guest of several at once.
            VmmPart::OtherCalls => self.interrupts(&mut path, tid, copy.at, until),
        }
        Ok(path)
    }

    /// The interrupt that a thread delivers for a packet behind `last`, before it waits for other work, reads the `next`, or
    /// writes one to the tap. Without one the guest had not asked for it, or it is for several.
    fn interrupts(&self, path: &mut RequestPath, tid: i32, last: u64, next: u64) {
        let is_own = |by| by == tid;
        let write = self.host.first_by(C::NetTapWrite, last, next, is_own);
        let until = write.map_or(next, |(at, _)| at);
        let told = self.host.first_by(C::NetInject, last, until, is_own);
        let has_waited = |at| self.host.resumed(tid, last.saturating_add(1), at).is_some();
        if let Some((at, _)) = told.filter(|(at, _)| !has_waited(*at)) {
            path.set_thread(C::NetInject, at, tid);
        }
    }

    /// QEMU's work on a packet of this length, from its read up to the interrupt.
    fn in_queue(
        &self,
        path: &mut RequestPath,
        len: u64,
        read: Moment,
        next: u64,
    ) -> Result<(), Reason> {
        let last = filled(self.host, path, read.tid, read.at, next);
        for checkpoint in [C::NetRx, C::NetRxFill] {
            if path.at(checkpoint).is_none() && self.host.passed.seen(checkpoint) {
                return Err(Reason::Missing(checkpoint));
            }
        }
        let handed = path.at(C::NetRx);
        let handed = handed.and_then(|at| self.host.passed.within(C::NetRx, at, at).next());
        let is_other =
            |bytes: u64| bytes > 1 && !(len..=len.max(SHORTEST) + HEADERS).contains(&bytes);
        if handed.is_some_and(|(_, p)| is_other(p.mark.bytes)) {
            return Err(Reason::Ambiguous);
        }
        if path.at(C::NetRxNotify).is_some() {
            self.interrupts(path, read.tid, last, next);
        }
        Ok(())
    }
}

/// Returns the number of packets of a direction that one doorbell, write or interrupt served.
pub(crate) fn batching(kind: RequestKind, requests: &[JoinedRequest]) -> Vec<Batching> {
    let served: &[(BatchKind, C)] = match kind {
        RequestKind::Transmit => &[
            (BatchKind::Doorbell, C::NetKvmKick),
            (BatchKind::Write, C::NetTapWrite),
        ],
        _ => &[(BatchKind::Interrupt, C::NetInject)],
    };
    // An interrupt may be of several packets.
    let batches_at = |checkpoint: C| {
        let passed: BTreeSet<u64> = requests.iter().filter_map(|r| r.at(checkpoint)).collect();
        passed.len() as u64
    };
    let packets = requests.len() as u64;
    let all = served.iter();
    batched(all.map(|(kind, checkpoint)| (*kind, packets, batches_at(*checkpoint))))
}

/// Packets that the host's stack has handed to the tap and nobody has read, by the kernel's address for each. `complete`
/// is not valid yet.
#[derive(Debug, Default)]
pub(crate) struct OnTap {
    /// Source of the VMM's part.
    pub part: VmmPart,
    unread: HashMap<u64, GuestRequest>,
    /// When the last event was.
    latest: u64,
}

impl OnTap {
    /// For packets whose VMM's part is known from this source.
    pub fn new(part: VmmPart) -> OnTap {
        OnTap {
            part,
            ..OnTap::default()
        }
    }

    /// Takes an event of the host; gives the packet that it ends. One that the guest sends begins and ends with its receipt by the
    /// host's stack: what was before is found there.
    pub fn take(&mut self, event: &Event<HostEvent>) -> Option<Ended> {
        self.latest = event.at;
        let HostEvent::Packet(checkpoint, packet) = event.what else {
            return None;
        };
        let now = event.moment();
        match checkpoint {
            C::NetHostXmit => {
                let received = GuestRequest::new(RequestKind::Receive, now);
                let dropped = self.unread.insert(packet.skb, received)?;
                Some(Ended::Unseen(dropped.completed(now), C::NetTapRead))
            }
            C::NetTapRead => {
                let read = self.unread.remove(&packet.skb)?;
                Some(Ended::Done(read.completed(now)))
            }
            C::NetTapReceive => {
                let sent = GuestRequest::new(RequestKind::Transmit, now);
                Some(Ended::Done(sent))
            }
            _ => None,
        }
    }

    /// When the oldest was handed to the tap, of those after `since`: one before that was dropped.
    pub fn oldest(&self, since: u64) -> Option<u64> {
        self.unread
            .values()
            .map(|packet| packet.issue.at)
            .filter(|at| *at >= since)
            .min()
    }

    /// Those that nobody has read for so many ticks.
    pub fn unread(&self, ticks: u64) -> Vec<GuestRequest> {
        let until = self.latest.saturating_sub(ticks);
        self.unread
            .values()
            .filter(|packet| packet.issue.at < until)
            .copied()
            .collect()
    }
}
