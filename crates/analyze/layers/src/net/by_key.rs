//! Follows a round trip by its key, with which the payload of its request and of its response begins, as QEMU's functions show it.

use super::RECEIVES;
use super::follow::{Follow, set_read};
use crate::join::host::PassingPacket;
use crate::join::request_path::{PassedBy, RequestPath};
use vmtax_model::{Checkpoint as C, Stamped};

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
        path.set(C::NetTx, transmitted, PassedBy::Thread(tid));
        // Who hands it to the host's stack does that within its system call, before QEMU transmits the next.
        let next = self
            .host
            .passed
            .at(C::NetTx)
            .within(transmitted.saturating_add(1), late)
            .next();
        let next = next.map_or(late, |(at, _)| at);
        if self.shares_passt() {
            let write = self.next_send(tid, transmitted, next)?;
            return self.around_passt(path, key, tid, write, late);
        }
        let until = if self.host.passt.is_empty() {
            next
        } else {
            late
        };
        let is_own = |p: &PassingPacket| {
            let is_senders = if self.host.passt.is_empty() {
                p.tid == tid
            } else {
                self.host.passt.contains(&p.tid)
            };
            self.frames.has(p.packet.len) && is_senders
        };
        let mut received = self
            .host
            .packets
            .at(C::NetTapReceive)
            .within(transmitted, until);
        let (received, packet) = received.find(|(_, p)| is_own(p))?;
        path.set(C::NetTapReceive, received, self.host.by(packet));
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
        path.set(C::NetStreamWrite, write, PassedBy::Thread(tid));
        let (received, tid) = self.first(C::NetRx, key, write, late)?;
        let (read, _) = self.last_read(write, received, |by| by == tid)?;
        set_read(self.host, path, C::NetStreamRead, tid, write, read);
        Some(Response {
            read,
            tid,
            received,
        })
    }

    /// The first packet with a key that QEMU passes on: when, and by which thread. TCP may send it again: as no layer overtakes, it is the
    /// first that arrives.
    fn first(&self, at: C, key: u64, from: u64, to: u64) -> Option<(u64, i32)> {
        let mut all = self
            .host
            .passed
            .at(at)
            .within(from, to)
            .filter(|(_, p)| p.mark.round_trip == Some(key));
        all.next().map(|(at, p)| (at, p.tid))
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
            path.set(C::NetPasstWrite, write, PassedBy::Thread(passt));
            set_read(self.host, path, C::NetStreamRead, tid, write, read);
            (passt_read, skb, passt)
        };
        let Some((xmit, packet)) = self.transmitted(request, read_from_stack, skb) else {
            // A datagram of slirp's, by the return of the call alone: with several connections it may be any.
            set_read(self.host, path, C::NetTapRead, tid, request, read);
            return Some(read);
        };
        let same = |p: &PassingPacket| p.packet.skb == packet.packet.skb;
        let mut queued = self
            .host
            .packets
            .at(C::NetHostQueue)
            .until(xmit)
            .take_while(|(at, _)| *at >= request);
        let (queued, by) = queued.find(|(_, p)| same(p)).map(|(at, p)| (at, *p))?;
        // TCP may send it later, in a softirq of whoever has the CPU: then for the server that answered the connection before.
        let server = Some(by.tid)
            .filter(|tid| self.host.servers.contains(tid))
            .or(self.server);
        let (sent, server) = self.last_send(request, queued, |by| match server {
            Some(server) => by == server,
            None => self.guest.clients.len() == 1 && self.host.servers.contains(&by),
        })?;
        let mut got = self
            .host
            .passed
            .at(C::NetServerReceive)
            .until(sent)
            .take_while(|(at, _)| *at >= request);
        let (got, _) = got.find(|(_, p)| p.tid == server)?;
        path.set(C::NetServerReceive, got, PassedBy::Thread(server));
        path.set(C::NetServerSend, sent, PassedBy::Thread(server));
        path.set(C::NetHostQueue, queued, self.host.by(&by));
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
        let mut copies = self
            .host
            .packets
            .at(C::NetTapRead)
            .until(to)
            .take_while(|(at, _)| *at >= from);
        let copy = copies
            .find(|(_, p)| is(p.tid))
            .map(|(at, p)| (at, Some(p.packet.skb)));
        let last = |at: C| {
            let mut all = self
                .host
                .passed
                .at(at)
                .until(to)
                .take_while(|(at, _)| *at >= from);
            all.find(|(_, p)| is(p.tid)).map(|(at, _)| (at, None))
        };
        copy.or_else(|| {
            RECEIVES
                .into_iter()
                .filter_map(last)
                .max_by_key(|(at, _)| *at)
        })
    }

    /// The response as the device's driver took it, last before it was read.
    fn transmitted(&self, from: u64, to: u64, skb: Option<u64>) -> Option<(u64, PassingPacket)> {
        let all = || {
            self.host
                .packets
                .at(C::NetHostXmit)
                .until(to)
                .take_while(|(at, _)| *at >= from)
        };
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
