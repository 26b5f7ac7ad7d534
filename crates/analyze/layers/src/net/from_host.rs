//! Follows a packet of which the host alone tells: one that its guest sends, from the doorbell to the host's stack; one that it
//! receives, from the host's stack to the interrupt. All are on the host's clock.

use super::follow::{by_vhost, filled, set_read};
use crate::disk::request::GuestRequest;
use crate::join::host::{HostWindow, PassingPacket};
use crate::join::joined::Reason;
use crate::join::request_path::{PassedBy, RequestPath};
use crate::request::JoinedRequest;
use vmtax_model::{BatchKind, Batching, Checkpoint as C, RequestKind};
use vmtax_trace::Moment;

/// Bytes by which QEMU's length of a packet exceeds the kernel's at most: the header of virtio-net, a VLAN tag.
const HEADERS: u64 = 16;
/// QEMU pads shorter packets for cards that take none, bytes.
const SHORTEST: u64 = 60;

pub(crate) struct FromHost<'a> {
    pub host: &'a HostWindow,
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
        if path.in_order(0) {
            Ok(path)
        } else {
            Err(Reason::Violation)
        }
    }

    /// Back from its receipt by the host's stack, which is within QEMU's call that writes it, or within vhost's work.
    fn transmitted(&self, received: Moment) -> Result<RequestPath, Reason> {
        let mut path = RequestPath::new();
        let tid = received.tid;
        path.set(C::NetTapReceive, received.at, PassedBy::Thread(tid));
        if self.host.vhost.contains(&tid) {
            let mut earlier = self
                .host
                .packets
                .at(C::NetTapReceive)
                .until(received.at.saturating_sub(1));
            let previous = earlier.find(|(_, p)| p.tid == tid).map_or(0, |(at, _)| at);
            let kick = self.kick(tid, previous, received.at).map(|(kick, _)| kick);
            if let Some((at, vcpu)) = kick {
                path.set(C::NetKvmKick, at, PassedBy::Thread(vcpu));
            }
            let from = kick.map_or(previous, |(at, _)| at);
            by_vhost(self.host, &mut path, tid, from, previous, received.at);
            return Ok(path);
        }
        let own = |at: C, to: u64| {
            self.host
                .passed
                .at(at)
                .until(to)
                .find(|(_, p)| p.tid == tid)
        };
        let (write, _) = own(C::NetTapWrite, received.at).ok_or(Reason::Missing(C::NetTapWrite))?;
        let of_call = self
            .host
            .packets
            .at(C::NetTapReceive)
            .within(write, received.at);
        if of_call.filter(|(_, p)| p.tid == tid).count() > 1 {
            return Err(Reason::Ambiguous);
        }
        path.set(C::NetTapWrite, write, PassedBy::Thread(tid));
        let shown = own(C::NetTx, write);
        if shown.is_none() && self.host.passed.seen(C::NetTx) {
            return Err(Reason::Missing(C::NetTx));
        }
        let Some((taken, passing)) = shown else {
            self.kicked(
                &mut path,
                tid,
                own(C::NetTapWrite, write.saturating_sub(1)).map_or(0, |(at, _)| at),
                write,
            );
            return Ok(path);
        };
        // Another call in between wrote the packet that this was.
        if self
            .host
            .passed
            .at(C::NetTapWrite)
            .within(taken, write.saturating_sub(1))
            .any(|(_, p)| p.tid == tid)
        {
            return Err(Reason::Ambiguous);
        }
        path.set(C::NetTx, taken, PassedBy::Thread(tid));
        let mut earlier = self.host.passed.at(C::NetTx).until(taken.saturating_sub(1));
        let previous = earlier.find(|(_, p)| p.tid == tid && p.mark.queue == passing.mark.queue);
        self.kicked(&mut path, tid, previous.map_or(0, |(at, _)| at), taken);
        Ok(path)
    }

    /// The kick for which a thread of QEMU took a packet, and its wake-up. A packet that it found without one, behind `previous` of
    /// the same queue, was in the ring for an unknown time: it begins when QEMU has it.
    fn kicked(&self, path: &mut RequestPath, tid: i32, previous: u64, taken: u64) {
        if let Some(((at, vcpu), woke)) = self.kick(tid, previous, taken) {
            path.set(C::NetKvmKick, at, PassedBy::Thread(vcpu));
            path.set(C::NetTxWake, woke, PassedBy::Thread(tid));
        }
    }

    /// The kick after `previous` for which a thread woke until it took a packet, with the vCPU's thread, and when it woke.
    fn kick(&self, tid: i32, previous: u64, taken: u64) -> Option<((u64, i32), u64)> {
        let doorbells = self.host.passed.at(C::NetKvmKick);
        let woken = |kick: u64| {
            self.host
                .woke_after(tid, kick)
                .filter(|woke| *woke <= taken)
        };
        let mut kicks = doorbells.until(taken).take_while(|(at, _)| *at > previous);
        let shown = kicks.find_map(|(at, kick)| Some(((at, kick.tid), woken(at)?)));
        match shown {
            None if !self.host.passed.seen(C::NetKvmKick) => self.waking_kick(tid, previous, taken),
            shown => shown,
        }
    }

    /// A kick that KVM does not show: the last wake-up of the thread by a vCPU's.
    fn waking_kick(&self, tid: i32, previous: u64, taken: u64) -> Option<((u64, i32), u64)> {
        let mut until = taken;
        while let Some(woke) = self.host.woke(tid, previous.saturating_add(1), until) {
            let since = woke
                .checked_sub(1)
                .and_then(|before| self.host.woke(tid, previous, before))
                .unwrap_or(previous);
            if let Some(kick) = self.host.waking_vcpu(tid, woke, since) {
                return Some((kick, woke));
            }
            until = woke.checked_sub(1)?;
        }
        None
    }

    /// From the host's stack, by the kernel's address for the packet, through QEMU's thread that reads it.
    fn received(&self, xmit: Moment, copy: Moment) -> Result<RequestPath, Reason> {
        let mut path = RequestPath::new();
        let tid = copy.tid;
        let packets_at = |checkpoint: C, at: u64| self.host.packets.at(checkpoint).within(at, at);
        let copied = packets_at(C::NetTapRead, copy.at)
            .find(|(_, p)| p.tid == tid)
            .map(|(_, p)| p.packet);
        let packet = copied.ok_or(Reason::Missing(C::NetTapRead))?;
        let same = |p: &PassingPacket| p.packet.skb == packet.skb;
        let passed = packets_at(C::NetHostXmit, xmit.at)
            .find(|(_, p)| same(p))
            .map(|(_, p)| *p);
        let passed = passed.ok_or(Reason::Missing(C::NetHostXmit))?;
        let queued = self
            .host
            .packets
            .at(C::NetHostQueue)
            .until(xmit.at)
            .find(|(_, p)| same(p));
        if let Some((at, queued)) = queued {
            path.set(C::NetHostQueue, at, self.host.by(queued));
        }
        path.set(
            C::NetHostXmit,
            xmit.at,
            self.host
                .by_queue(queued.map_or(&passed, |(_, queued)| queued), &passed),
        );
        set_read(self.host, &mut path, C::NetTapRead, tid, xmit.at, copy.at);
        // A thread passes on what it has read before it reads the next.
        let until = copy.at.saturating_add(self.slack);
        let mut reads = self
            .host
            .packets
            .at(C::NetTapRead)
            .within(copy.at.saturating_add(1), until);
        let next = reads
            .find(|(_, p)| p.tid == tid)
            .map_or(until, |(at, _)| at);
        if self.host.vhost.contains(&tid) {
            self.interrupts(&mut path, tid, copy.at, next);
        } else {
            self.in_queue(&mut path, passed.packet.len, copy, next)?;
        }
        Ok(path)
    }

    /// The interrupt that a thread delivers for a packet behind `last`, before it waits for other work or reads the `next`. Without
    /// one the guest had not asked for it, or it is for several.
    fn interrupts(&self, path: &mut RequestPath, tid: i32, last: u64, next: u64) {
        let until = self.host.woke_after(tid, last).unwrap_or(next).min(next);
        let mut injects = self.host.passed.at(C::NetInject).within(last, until);
        if let Some((at, _)) = injects.find(|(_, p)| p.tid == tid) {
            path.set(C::NetInject, at, PassedBy::Thread(tid));
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
        let handed = path
            .at(C::NetRx)
            .and_then(|at| self.host.passed.at(C::NetRx).within(at, at).next());
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
    let batches_at = |checkpoint: C| {
        requests
            .iter()
            .filter(|request| request.at(checkpoint).is_some())
            .count() as u64
    };
    let packets = requests.len() as u64;
    let all = served.iter().map(|(kind, checkpoint)| Batching {
        kind: *kind,
        packets,
        batches: batches_at(*checkpoint),
    });
    all.filter(|batching| batching.batches > 0).collect()
}
