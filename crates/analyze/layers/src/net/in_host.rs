//! The host's part of a round trip: by its key, with which the payload of its request and of its response begins, as QEMU's
//! functions show it; where they do not, by the order of packets and their length.

use super::follow::{Follow, SendCall, set_read};
use super::{RECEIVES, SENDS};
use crate::join::sides::PassingPacket;
use crate::join::{Reason, RequestPath};
use vmtax_model::{Checkpoint as C, Stamped};
use vmtax_trace::{Moment, Packet};

/// A response in QEMU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Response {
    /// When QEMU read it from its backend, and which thread.
    pub read: u64,
    pub tid: i32,
    /// When the backend handed it to virtio-net.
    pub received: u64,
}

impl Follow<'_> {
    /// The host's part of the round trip with the operation's key, from QEMU's bottom half to its read of the response;
    /// that, if it was seen.
    pub(super) fn by_key(&self, path: &mut RequestPath, operation: &Stamped) -> Option<Response> {
        let key = operation.key;
        // One that carries the key but lies outside of the clocks' error shows that these do not agree.
        let early = operation.begin.saturating_sub(self.params.slack);
        let late = operation.end.saturating_add(self.params.slack);
        let (transmitted, tid) = self.first(C::NetTx, key, early, late)?;
        path.set_thread(C::NetTx, transmitted, tid);
        // Who hands it to the host's stack does that within its system call, before QEMU transmits the next.
        let after = transmitted.saturating_add(1);
        let next = self.host.first_by(C::NetTx, after, late, |_| true);
        let next = next.map_or(late, |(at, _)| at);
        if self.shares_passt() {
            let write = self.next_send(tid, transmitted, next)?;
            return self.around_passt(path, key, tid, write, late);
        }
        let is_direct = self.host.passt.is_empty();
        let is_own = |p: &PassingPacket| {
            let is_senders = if is_direct {
                p.tid == tid
            } else {
                self.host.passt.contains(&p.tid)
            };
            self.frames.has(p.packet.len) && is_senders
        };
        let until = if is_direct { next } else { late };
        let mut received = self
            .host
            .packets
            .within(C::NetTapReceive, transmitted, until);
        let (received, packet) = received.find(|(_, p)| is_own(p))?;
        path.set(C::NetTapReceive, received, self.host.by(packet.tid));
        let (answered, tid) = self.first(C::NetRx, key, received, late)?;
        let read = self.response(path, tid, received, answered)?;
        Some(Response {
            read,
            tid,
            received: answered,
        })
    }

    /// QEMU's part of it alone, from a thread's write to passt. What passt reads of several connections it passes on in
    /// an order of its own.
    fn around_passt(
        &self,
        path: &mut RequestPath,
        key: u64,
        tid: i32,
        write: u64,
        late: u64,
    ) -> Option<Response> {
        path.set_thread(C::NetStreamWrite, write, tid);
        let (received, tid) = self.first(C::NetRx, key, write, late)?;
        let (read, _) = self.last_read(write, received, |by| by == tid)?;
        set_read(self.host, path, C::NetStreamRead, tid, write, read);
        Some(Response {
            read,
            tid,
            received,
        })
    }

    /// The first packet with a key that QEMU passes on: when, and by which thread. TCP may send it again: as no layer
    /// overtakes, it is the first that arrives.
    fn first(&self, at: C, key: u64, from: u64, to: u64) -> Option<(u64, i32)> {
        let mut all = self.host.passed.within(at, from, to);
        let (at, passing) = all.find(|(_, p)| p.mark.round_trip == Some(key))?;
        Some((at, passing.tid))
    }

    /// Back from the response in QEMU to the server's receipt of the request: when QEMU read it.
    fn response(
        &self,
        path: &mut RequestPath,
        tid: i32,
        request: u64,
        answered: u64,
    ) -> Option<u64> {
        let (read, skb) = self.last_read(request, answered, |by| by == tid)?;
        let (read_from_stack, skb, reader) = if self.host.passt.is_empty() {
            (read, skb, tid)
        } else {
            let (write, passt) =
                self.last_send(request, read, |by| self.host.passt.contains(&by))?;
            let (passt_read, skb) = self.last_read(request, write, |by| by == passt)?;
            path.set_thread(C::NetPasstWrite, write, passt);
            set_read(self.host, path, C::NetStreamRead, tid, write, read);
            (passt_read, skb, passt)
        };
        let Some((xmit, packet)) = self.transmitted(request, read_from_stack, skb) else {
            // A datagram of slirp's, by the return of the call alone: with several connections it may be any.
            set_read(self.host, path, C::NetTapRead, tid, request, read);
            return Some(read);
        };
        let same = |p: &PassingPacket| p.packet.skb == packet.packet.skb;
        let mut queued = self.host.packets.back(C::NetHostQueue, request, xmit);
        let (queued, by) = queued.find(|(_, p)| same(p)).map(|(at, p)| (at, *p))?;
        // TCP may send it later, in a softirq of whoever has the CPU: then for the server that answered the connection before.
        let server = Some(by.tid)
            .filter(|tid| self.host.servers.contains(tid))
            .or(self.server);
        let (sent, server) = self.last_send(request, queued, |by| match server {
            Some(server) => by == server,
            None => self.guest.clients.len() == 1 && self.host.servers.contains(&by),
        })?;
        let is_server = |by| by == server;
        let (got, _) = self
            .host
            .last_by(C::NetServerReceive, request, sent, is_server)?;
        path.set_thread(C::NetServerReceive, got, server);
        path.set_thread(C::NetServerSend, sent, server);
        path.set(C::NetHostQueue, queued, self.host.by(by.tid));
        path.set(C::NetHostXmit, xmit, self.host.by_queue(&by, &packet));
        let read_as = if self.host.passt.is_empty() {
            C::NetTapRead
        } else {
            C::NetPasstRead
        };
        set_read(self.host, path, read_as, reader, xmit, read_from_stack);
        Some(read)
    }

    /// When a thread last read a packet, by its copy or by the return of a call that receives: with the packet, if that is told.
    fn last_read(
        &self,
        from: u64,
        to: u64,
        is: impl Fn(i32) -> bool,
    ) -> Option<(u64, Option<u64>)> {
        let mut copies = self.host.packets.back(C::NetTapRead, from, to);
        let copy = copies
            .find(|(_, p)| is(p.tid))
            .map(|(at, p)| (at, Some(p.packet.skb)));
        copy.or_else(|| {
            let returns = RECEIVES
                .into_iter()
                .filter_map(|at| self.host.last_by(at, from, to, &is));
            returns.map(|(at, _)| (at, None)).max_by_key(|(at, _)| *at)
        })
    }

    /// The response as the device's driver took it, last before it was read.
    fn transmitted(&self, from: u64, to: u64, skb: Option<u64>) -> Option<(u64, PassingPacket)> {
        let all = || self.host.packets.back(C::NetHostXmit, from, to);
        let same = all().find(|(_, p)| Some(p.packet.skb) == skb);
        // A socket's reader has another packet, or none: the last of a server.
        let is_servers = |p: &PassingPacket| p.interrupt || self.host.servers.contains(&p.tid);
        let found = same.or_else(|| {
            let mut all = all().filter(|_| self.guest.clients.len() == 1);
            all.find(|(_, p)| self.frames.has_with_link(p.packet.len) && is_servers(p))
        });
        found.map(|(at, packet)| (at, *packet))
    }
}

/// Bytes of a packet's length, which precedes it in the stream between QEMU and passt.
const STREAM_HEADER: u64 = 4;

impl Follow<'_> {
    /// The host's part of a round trip, with that in the guest: its request in the driver, the call that sent it, the response.
    pub(super) fn by_order(
        &self,
        path: RequestPath,
        operation: &Stamped,
        sent: Moment,
        call: Option<SendCall>,
        got: Moment,
    ) -> Result<RequestPath, Reason> {
        let early = operation
            .begin
            .saturating_sub(self.params.bound)
            .max(self.after.saturating_add(1));
        let late = operation.end.saturating_add(self.params.bound);
        // Within the clocks' error there may be packets of others.
        let packets = self.host.packets.within(C::NetTapReceive, early, late);
        let requests: Vec<(u64, &PassingPacket)> = packets
            .filter(|(_, p)| self.frames.has(p.packet.len))
            .collect();
        if requests.is_empty() {
            return path.in_order(self.params.bound);
        }
        let path_through = |(received, packet): (u64, &PassingPacket)| {
            let mut path = path;
            path.set(C::NetTapReceive, received, self.host.by(packet.tid));
            let response = self.in_host(&mut path, received, late);
            self.transmit(&mut path, sent, call, early);
            if let Some((read, tid)) = response {
                self.receive(&mut path, tid, read, got.at);
            }
            Some((path.in_order(self.params.bound).ok()?, response.is_some()))
        };
        let paths = requests.into_iter().filter_map(path_through);
        let (whole, partial): (Vec<_>, Vec<_>) = paths.partition(|(_, is_whole)| *is_whole);
        match whole[..] {
            [(path, _)] => Ok(path),
            // The first that is in order says what is missing.
            [] => partial
                .first()
                .map(|(path, _)| *path)
                .ok_or(Reason::Violation),
            // Nothing contradicts either: the clocks do not resolve it.
            _ => Err(Reason::Ambiguous),
        }
    }

    /// The first packet of the host at a checkpoint that is one of these.
    fn host_packet(
        &self,
        at: C,
        from: u64,
        to: u64,
        is: impl Fn(&Packet) -> bool,
    ) -> Option<(u64, PassingPacket)> {
        let mut packets = self.host.packets.within(at, from, to);
        let (at, passing) = packets.find(|(_, p)| is(&p.packet))?;
        Some((at, *passing))
    }

    /// From the host's stack to the server and back: when QEMU reads the response, and which of its threads.
    fn in_host(&self, path: &mut RequestPath, received: u64, late: u64) -> Option<(u64, i32)> {
        let is_server = |by| self.host.servers.contains(&by);
        let (got, server) = self
            .host
            .first_by(C::NetServerReceive, received, late, is_server)?;
        let send = self.next_send(server, got, late)?;
        path.set_thread(C::NetServerReceive, got, server);
        path.set_thread(C::NetServerSend, send, server);
        let (queued, packet) = self.host_packet(C::NetHostQueue, send, late, |p| {
            self.frames.has_with_link(p.len)
        })?;
        path.set(C::NetHostQueue, queued, self.host.by(packet.tid));
        let same = |p: &Packet| p.skb == packet.packet.skb;
        let (xmit, by) = self.host_packet(C::NetHostXmit, queued, late, same)?;
        path.set(C::NetHostXmit, xmit, self.host.by_queue(&packet, &by));
        if self.host.passt.is_empty() {
            let (read, tid) = self.reads(xmit, late, same, |tid| self.host.is_qemus(tid))?;
            set_read(self.host, path, C::NetTapRead, tid, xmit, read);
            return Some((read, tid));
        }
        let (read, passt) = self.reads(xmit, late, same, |tid| self.host.passt.contains(&tid))?;
        self.by_passt(path, passt, xmit, read, late)
    }

    /// When one of these threads reads the packet, and which: its copy, else the next return of a call that receives.
    fn reads(
        &self,
        from: u64,
        to: u64,
        same: impl Fn(&Packet) -> bool,
        is: impl Fn(i32) -> bool,
    ) -> Option<(u64, i32)> {
        let mut copies = self.host.packets.within(C::NetTapRead, from, to);
        if let Some((at, copy)) = copies.find(|(_, p)| is(p.tid) && same(&p.packet)) {
            return Some((at, copy.tid));
        }
        RECEIVES
            .into_iter()
            .filter_map(|at| self.host.first_by(at, from, to, &is))
            .min_by_key(|(at, _)| *at)
    }

    /// From passt's read of the response to QEMU's: when QEMU reads it, and which of its threads; or to passt's
    /// notification of the guest.
    fn by_passt(
        &self,
        path: &mut RequestPath,
        passt: i32,
        xmit: u64,
        read: u64,
        late: u64,
    ) -> Option<(u64, i32)> {
        set_read(self.host, path, C::NetPasstRead, passt, xmit, read);
        if self.host.passt_has_queues {
            let is_passt = |by| by == passt;
            let (notify, by) = self
                .host
                .first_by(C::NetPasstNotify, read, late, is_passt)?;
            path.set_thread(C::NetPasstNotify, notify, by);
            return Some((notify, by));
        }
        let write = self.next_send(passt, read, late)?;
        path.set_thread(C::NetPasstWrite, write, passt);
        let mut reads = self.host.packets.within(C::NetTapRead, write, late);
        let is = |len: u64| {
            len.checked_sub(STREAM_HEADER)
                .is_some_and(|len| self.frames.has_with_link(len))
        };
        let (read, by) = reads
            .find(|(_, p)| self.host.is_qemus(p.tid) && is(p.packet.len))
            .map(|(at, p)| (at, p.tid))?;
        set_read(self.host, path, C::NetStreamRead, by, write, read);
        Some((read, by))
    }

    /// When a thread next enters a call that sends.
    pub(super) fn next_send(&self, tid: i32, from: u64, to: u64) -> Option<u64> {
        let next = |at: C| Some(self.host.first_by(at, from, to, |by| by == tid)?.0);
        SENDS.into_iter().filter_map(next).min()
    }
}
