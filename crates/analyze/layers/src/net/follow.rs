//! Finds the checkpoints of one round trip in what both sides saw meanwhile. A packet is known within a kernel by the kernel's
//! address for it, across the border by its length and, as there is one round trip at a time, by its order.

use super::frames::Frames;
use crate::join::guest::GuestWindow;
use crate::join::host::{HostWindow, PassingPacket};
use crate::join::joined::Reason;
use crate::join::match_params::MatchParams;
use crate::join::request_path::{PassedBy, RequestPath};
use vmtax_model::{Checkpoint as C, Stamped};
use vmtax_trace::{Moment, Packet};

/// A packet of the guest: when and by whom it passed, and which.
type GuestPacket = (Moment, Packet);

pub(crate) struct Follow<'a> {
    pub host: &'a HostWindow,
    pub guest: &'a GuestWindow,
    pub frames: Frames,
    pub params: MatchParams,
}

impl Follow<'_> {
    /// The checkpoints of an operation, host ticks.
    pub fn path(&self, operation: &Stamped) -> Result<RequestPath, Reason> {
        let mut path = RequestPath::new();
        let Stamped { begin, end, .. } = *operation;
        let sent = self.sent(&mut path, begin, end).ok_or(Reason::NoPacket)?;
        let got = self.got(&mut path, sent.at, end).ok_or(Reason::NoPacket)?;
        self.caller(&mut path, (begin, end), sent, got);
        let (early, late) = (begin.saturating_sub(self.params.bound), end.saturating_add(self.params.bound));
        let response = self.in_host(&mut path, early, late);
        self.transmit(&mut path, sent.at, early);
        if let Some((read, tid)) = response {
            self.receive(&mut path, (read, tid), got.at);
        }
        if path.in_order(self.params.bound) { Ok(path) } else { Err(Reason::Violation) }
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

    /// From the tap through the host's stack to the server and back to the tap: when QEMU reads the response from there, and
    /// which of its threads.
    fn in_host(&self, path: &mut RequestPath, early: u64, late: u64) -> Option<(u64, i32)> {
        let (received, packet) = self.host_packet(C::NetTapReceive, early, late, |p| self.frames.has(p.len))?;
        path.set(C::NetTapReceive, received, self.by(&packet));
        let server = |at| self.host.passed.at(at).within(path.at(C::NetTapReceive).unwrap_or(early), late);
        let (got, server_thread) = server(C::NetServerReceive).next().map(|(at, p)| (at, p.tid))?;
        let send = server(C::NetServerSend).find(|(at, p)| *at >= got && p.tid == server_thread).map(|(at, _)| at)?;
        path.set(C::NetServerReceive, got, PassedBy::Thread(server_thread));
        path.set(C::NetServerSend, send, PassedBy::Thread(server_thread));
        let (queued, packet) = self.host_packet(C::NetHostQueue, send, late, |p| self.frames.has_with_link(p.len))?;
        path.set(C::NetHostQueue, queued, self.by(&packet));
        let same = |p: &Packet| p.skb == packet.packet.skb;
        let (xmit, by) = self.host_packet(C::NetHostXmit, queued, late, same)?;
        // The queueing discipline passed it on at once, or a timer's softirq did later.
        let waited = by.interrupt && !packet.interrupt;
        path.set(C::NetHostXmit, xmit, if waited { PassedBy::Queue } else { self.by(&by) });
        let (read, by) = self.host_packet(C::NetTapRead, xmit, late, same)?;
        path.set(C::NetTapRead, read, PassedBy::Thread(by.tid));
        if let Some(woke) = self.host.woke(by.tid, xmit, read) {
            path.set(C::NetRxWake, woke, PassedBy::Thread(by.tid));
        }
        Some((read, by.tid))
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
        let write = last(C::NetTapWrite, received);
        let taken = last(C::NetTx, write.map_or(received, |(at, _)| at));
        for (checkpoint, found) in [(C::NetTapWrite, write), (C::NetTx, taken)] {
            if let Some((at, tid)) = found {
                path.set(checkpoint, at, PassedBy::Thread(tid));
            }
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
        let from = path.at(C::NetKvmKick).unwrap_or(told.saturating_sub(bound));
        let Some((at, tid)) = taken.or(write) else { return };
        // The first: QEMU transmits in a bottom half, in the next turn of its loop.
        if let Some(woke) = self.host.woke_after(tid, from.saturating_sub(1)).filter(|woke| *woke <= at) {
            path.set(C::NetTxWake, woke, PassedBy::Thread(tid));
        }
    }

    /// From QEMU's read of the tap to the guest's driver.
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
