//! Finds the checkpoints of one round trip in what both sides saw meanwhile. A packet is known within a kernel by the kernel's
//! address for it, across the border by its length and, as there is one round trip at a time, by its order.

use super::frames::Frames;
use super::{RECEIVES, SENDS};
use crate::join::guest::GuestWindow;
use crate::join::host::{HostWindow, PassingPacket};
use crate::join::joined::Reason;
use crate::join::match_params::MatchParams;
use crate::join::request_path::{PassedBy, RequestPath};
use vmtax_model::{Checkpoint as C, Stamped};
use vmtax_trace::{Moment, Packet};

/// Bytes of a packet's length, which precedes it in the stream between QEMU and passt.
const STREAM_HEADER: u64 = 4;

/// A packet of the guest: when and by whom it passed, and which.
type GuestPacket = (Moment, Packet);

pub(crate) struct Follow<'a> {
    pub host: &'a HostWindow,
    pub guest: &'a GuestWindow,
    pub frames: Frames,
    pub params: MatchParams,
    /// When the host was done with the round trip before: what it did until then is not this one's.
    pub after: u64,
}

impl Follow<'_> {
    /// The checkpoints of an operation, host ticks.
    pub fn path(&self, operation: &Stamped) -> Result<RequestPath, Reason> {
        let mut path = RequestPath::new();
        let Stamped { begin, end, .. } = *operation;
        let sent = self.sent(&mut path, begin, end).ok_or(Reason::NoPacket)?;
        let got = self.got(&mut path, sent.at, end).ok_or(Reason::NoPacket)?;
        self.caller(&mut path, (begin, end), sent, got);
        let early = begin.saturating_sub(self.params.bound).max(self.after.saturating_add(1));
        let late = end.saturating_add(self.params.bound);
        // Within the clocks' error there may be packets of others. Nearest is the first after the guest sent its own, as the clocks
        // stand; the events of another contradict those of the guest, or end too early.
        let packets = self.host.packets.at(C::NetTapReceive).within(early, late);
        let mut requests: Vec<(u64, &PassingPacket)> = packets.filter(|(_, p)| self.frames.has(p.packet.len)).collect();
        requests.sort_by_key(|(at, _)| (*at < sent.at, at.abs_diff(sent.at)));
        if requests.is_empty() {
            return if path.in_order(self.params.bound) { Ok(path) } else { Err(Reason::Violation) };
        }
        let with = |(received, packet): (u64, &PassingPacket)| {
            let mut path = path;
            path.set(C::NetTapReceive, received, self.by(packet));
            let response = self.in_host(&mut path, received, late);
            self.transmit(&mut path, sent.at, early);
            if let Some((read, tid)) = response {
                self.receive(&mut path, (read, tid), got.at);
            }
            (path, response.is_some())
        };
        let paths = requests.into_iter().map(with).filter(|(path, _)| path.in_order(self.params.bound));
        // Else the first that is in order: it says what is missing.
        let mut in_order = paths.peekable();
        let partial = in_order.peek().map(|(path, _)| *path);
        in_order.find(|(_, is_whole)| *is_whole).map(|(path, _)| path).or(partial).ok_or(Reason::Violation)
    }

    /// When the host was done with a round trip.
    pub fn done(path: &RequestPath) -> u64 {
        path.first_of(&[C::NetStreamRead, C::NetTapRead, C::NetHostXmit]).unwrap_or(0)
    }

    /// The first packet of the guest at a checkpoint that is one of these.
    fn guest_packet(&self, at: C, from: u64, to: u64, is: impl Fn(&GuestPacket) -> bool) -> Option<GuestPacket> {
        self.guest.packets.at(at).within(from, to).map(|(_, packet)| *packet).find(is)
    }

    /// The request in the guest's stack, up to its driver: when that has it.
    fn sent(&self, path: &mut RequestPath, begin: u64, end: u64) -> Option<Moment> {
        let (queued, packet) =
            self.guest_packet(C::NetGuestQueue, begin, end, |(_, p)| self.frames.has_with_link(p.len))?;
        path.set(C::NetGuestQueue, queued.at, PassedBy::Guest(queued));
        let (xmit, _) = self.guest_packet(C::NetGuestXmit, queued.at, end, |(_, p)| p.skb == packet.skb)?;
        path.set(C::NetGuestXmit, xmit.at, PassedBy::Guest(xmit));
        Some(xmit)
    }

    /// The response in the guest's stack, from its driver: when NAPI has it.
    fn got(&self, path: &mut RequestPath, sent: u64, end: u64) -> Option<Moment> {
        let (polled, packet) = self.guest_packet(C::NetGuestPoll, sent, end, |(_, p)| self.frames.has(p.len))?;
        // The softirq has nothing to do with the task that it interrupts.
        let polled = Moment { interrupt: true, ..polled };
        path.set(C::NetGuestPoll, polled.at, PassedBy::Guest(polled));
        let (received, _) = self.guest_packet(C::NetGuestReceive, polled.at, end, |(_, p)| p.skb == packet.skb)?;
        path.set(C::NetGuestReceive, received.at, PassedBy::Guest(Moment { interrupt: true, ..received }));
        Some(polled)
    }

    /// The system calls of the task that sent the request.
    fn caller(&self, path: &mut RequestPath, (begin, end): (u64, u64), sent: Moment, got: Moment) {
        let queued = path.at(C::NetGuestQueue).unwrap_or(sent.at);
        let calls = || self.guest.calls.within(begin, end);
        let own = calls().take_while(|(at, _)| *at <= queued).filter(|(_, call)| call.tid == sent.tid).last();
        // The stack may have sent it for another task, in a softirq: then whoever called last.
        let Some((enter, call)) = own.or_else(|| calls().take_while(|(at, _)| *at <= queued).last()) else { return };
        let moment = |at, cpu| Moment { at, cpu, tid: call.tid, interrupt: false };
        path.set(C::NetGuestCall, enter, PassedBy::Guest(moment(enter, call.cpu)));
        let received = path.at(C::NetGuestReceive).unwrap_or(got.at);
        let mut exits = calls().filter(|(_, other)| other.tid == call.tid).filter_map(|(_, other)| other.exit);
        if let Some((at, cpu)) = exits.find(|(at, _)| (received..=end).contains(at)) {
            path.set(C::NetGuestReturn, at, PassedBy::Guest(moment(at, cpu)));
        }
    }

    /// The first packet of the host at a checkpoint that is one of these.
    fn host_packet(&self, at: C, from: u64, to: u64, is: impl Fn(&Packet) -> bool) -> Option<(u64, PassingPacket)> {
        self.host.packets.at(at).within(from, to).find(|(_, p)| is(&p.packet)).map(|(at, p)| (at, *p))
    }

    /// From the host's stack to the server and back: when QEMU reads the response, and which of its threads.
    fn in_host(&self, path: &mut RequestPath, received: u64, late: u64) -> Option<(u64, i32)> {
        let mut receives = self.host.passed.at(C::NetServerReceive).within(received, late);
        let (got, server) = receives.find(|(_, p)| self.host.servers.contains(&p.tid)).map(|(at, p)| (at, p.tid))?;
        let send = self.next_send(server, got, late)?;
        path.set(C::NetServerReceive, got, PassedBy::Thread(server));
        path.set(C::NetServerSend, send, PassedBy::Thread(server));
        let (queued, packet) = self.host_packet(C::NetHostQueue, send, late, |p| self.frames.has_with_link(p.len))?;
        path.set(C::NetHostQueue, queued, self.by(&packet));
        let same = |p: &Packet| p.skb == packet.packet.skb;
        let (xmit, by) = self.host_packet(C::NetHostXmit, queued, late, same)?;
        // The queueing discipline passed it on at once, or a timer's softirq did later.
        let waited = by.interrupt && !packet.interrupt;
        path.set(C::NetHostXmit, xmit, if waited { PassedBy::Queue } else { self.by(&by) });
        if self.host.passt.is_empty() {
            let (read, tid) = self.reads(xmit, late, same, |tid| self.is_qemus(tid))?;
            self.read(path, (C::NetRxWake, C::NetTapRead), (xmit, read), tid);
            return Some((read, tid));
        }
        let (read, passt) = self.reads(xmit, late, same, |tid| self.host.passt.contains(&tid))?;
        self.by_passt(path, passt, (xmit, read), late)
    }

    /// When one of these threads reads the packet, and which: its copy, else the next return of a call that receives.
    fn reads(
        &self,
        from: u64,
        to: u64,
        same: impl Fn(&Packet) -> bool,
        is: impl Fn(i32) -> bool,
    ) -> Option<(u64, i32)> {
        let mut copies = self.host.packets.at(C::NetTapRead).within(from, to);
        if let Some((at, copy)) = copies.find(|(_, p)| is(p.tid) && same(&p.packet)) {
            return Some((at, copy.tid));
        }
        let next = |at: C| self.host.passed.at(at).within(from, to).find(|(_, p)| is(p.tid)).map(|(at, p)| (at, p.tid));
        RECEIVES.into_iter().filter_map(next).min_by_key(|(at, _)| *at)
    }

    /// From passt's read of the response to QEMU's: when QEMU reads it, and which of its threads.
    fn by_passt(&self, path: &mut RequestPath, passt: i32, at: (u64, u64), late: u64) -> Option<(u64, i32)> {
        self.read(path, (C::NetPasstReplyWake, C::NetPasstRead), at, passt);
        let write = self.next_send(passt, at.1, late)?;
        path.set(C::NetPasstWrite, write, PassedBy::Thread(passt));
        let mut reads = self.host.packets.at(C::NetTapRead).within(write, late);
        let is = |len: u64| len.checked_sub(STREAM_HEADER).is_some_and(|len| self.frames.has_with_link(len));
        let (read, by) = reads.find(|(_, p)| self.is_qemus(p.tid) && is(p.packet.len)).map(|(at, p)| (at, p.tid))?;
        self.read(path, (C::NetStreamWake, C::NetStreamRead), (write, read), by);
        Some((read, by))
    }

    /// A thread's read of a packet that was sent before, and its wake-up for that.
    fn read(&self, path: &mut RequestPath, (wakes, reads): (C, C), (sent, read): (u64, u64), tid: i32) {
        path.set(reads, read, PassedBy::Thread(tid));
        if let Some(woke) = self.host.woke(tid, sent, read) {
            path.set(wakes, woke, PassedBy::Thread(tid));
        }
    }

    fn is_qemus(&self, tid: i32) -> bool {
        !self.host.servers.contains(&tid) && !self.host.passt.contains(&tid)
    }

    /// When a thread next enters a call that sends.
    fn next_send(&self, tid: i32, from: u64, to: u64) -> Option<u64> {
        let next = |at: C| self.host.passed.at(at).within(from, to).find(|(_, p)| p.tid == tid).map(|(at, _)| at);
        SENDS.into_iter().filter_map(next).min()
    }

    /// When one of these threads last entered a call that sends, and which.
    fn last_send(&self, from: u64, to: u64, is: impl Fn(i32) -> bool) -> Option<(u64, i32)> {
        let last = |at: C| {
            let mut sends = self.host.passed.at(at).until(to).take_while(|(at, _)| *at >= from);
            sends.find(|(_, p)| is(p.tid)).map(|(at, p)| (at, p.tid))
        };
        SENDS.into_iter().filter_map(last).max_by_key(|(at, _)| *at)
    }

    /// Whose work it was that a packet passed. A thread that sends works in the softirq that it raises; any other thread that is
    /// not watched tells nothing.
    fn by(&self, packet: &PassingPacket) -> PassedBy {
        if self.host.threads.contains(&packet.tid) { PassedBy::Thread(packet.tid) } else { PassedBy::Host }
    }

    /// From the guest's driver to the host's stack.
    fn transmit(&self, path: &mut RequestPath, sent: u64, early: u64) {
        let bound = self.params.bound;
        let Some(received) = path.at(C::NetTapReceive) else { return };
        // The last of each before the host's stack has the packet: the packet itself says when that was.
        let last = |at: C, until: u64| {
            let all = self.host.passed.at(at).until(until);
            all.take_while(|(at, _)| *at >= early).map(|(at, p)| (at, p.tid)).next()
        };
        let write = self.write(path, early, received);
        let taken = last(C::NetTx, write.map_or(received, |(at, _)| at));
        if let Some((at, tid)) = taken {
            path.set(C::NetTx, at, PassedBy::Thread(tid));
        }
        let until = taken.or(write).map_or(received, |(at, _)| at);
        let latest = until.saturating_add(bound);
        let kick = self.guest.passed.at(C::NetGuestKick).within(sent, latest).next();
        if let Some((at, kick)) = kick {
            path.set(C::NetGuestKick, at, PassedBy::Guest(*kick));
        }
        let told = kick.map_or(sent, |(at, _)| at);
        if let Some((at, exit)) = self.host.passed.at(C::NetKvmKick).caused(told, until, bound) {
            path.set(C::NetKvmKick, at, PassedBy::Thread(exit.tid));
        }
        let from = path.at(C::NetKvmKick).unwrap_or(told);
        let Some((at, tid)) = taken.or(write) else { return };
        // The first: QEMU transmits in a bottom half, in the next turn of its loop. Within the clocks' error the last.
        let first = self.host.woke_after(tid, from.saturating_sub(1)).filter(|woke| *woke <= at);
        if let Some(woke) = first.or_else(|| self.host.woke(tid, from.saturating_sub(bound), at)) {
            path.set(C::NetTxWake, woke, PassedBy::Thread(tid));
        }
    }

    /// QEMU's write of the request to its backend: when and by which thread. passt passes it on.
    fn write(&self, path: &mut RequestPath, early: u64, received: u64) -> Option<(u64, i32)> {
        if self.host.passt.is_empty() {
            let write = self.last_send(early, received, |tid| self.is_qemus(tid));
            write.into_iter().for_each(|(at, tid)| path.set(C::NetTapWrite, at, PassedBy::Thread(tid)));
            return write;
        }
        let (sent, passt) = self.last_send(early, received, |tid| self.host.passt.contains(&tid))?;
        path.set(C::NetPasstSend, sent, PassedBy::Thread(passt));
        let (write, tid) = self.last_send(early, sent, |tid| self.is_qemus(tid))?;
        path.set(C::NetStreamWrite, write, PassedBy::Thread(tid));
        // The first: it reads what QEMU wrote in the same turn of its loop.
        if let Some(woke) = self.host.woke_after(passt, write.saturating_sub(1)).filter(|woke| *woke <= sent) {
            path.set(C::NetPasstWake, woke, PassedBy::Thread(passt));
        }
        Some((write, tid))
    }

    /// From QEMU's read of the response to the guest's driver.
    fn receive(&self, path: &mut RequestPath, (read, tid): (u64, i32), polled: u64) {
        let bound = self.params.bound;
        let latest = polled.saturating_add(bound);
        let mut from = read;
        for checkpoint in [C::NetRx, C::NetRxFill, C::NetRxNotify] {
            let mut passed = self.host.passed.at(checkpoint).within(from, latest);
            if let Some((at, _)) = passed.find(|(_, p)| p.tid == tid) {
                path.set(checkpoint, at, PassedBy::Thread(tid));
                from = at;
            }
        }
        let interrupt = self.guest.passed.at(C::NetGuestInterrupt).until(polled).next();
        let interrupt = interrupt.filter(|(at, _)| *at >= from.saturating_sub(bound)).map(|(_, moment)| *moment);
        if let Some(moment) = interrupt {
            let moment = Moment { tid: 0, interrupt: true, ..moment };
            path.set(C::NetGuestInterrupt, moment.at, PassedBy::Guest(moment));
        }
        let until = interrupt.map_or(latest, |moment| moment.at.saturating_add(bound));
        if let Some((at, inject)) = self.host.passed.at(C::NetInject).within(from, until).next() {
            path.set(C::NetInject, at, PassedBy::Thread(inject.tid));
        }
    }
}
