//! Follows a round trip by the order of packets and their length: where QEMU's functions do not show what a packet carries.

use super::RECEIVES;
use super::SENDS;
use super::follow::{Follow, SendCall, set_read};
use crate::join::host::PassingPacket;
use crate::join::joined::Reason;
use crate::join::request_path::{PassedBy, RequestPath};
use vmtax_model::{Checkpoint as C, Stamped};
use vmtax_trace::{Moment, Packet};

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
        let packets = self.host.packets.at(C::NetTapReceive).within(early, late);
        let requests: Vec<(u64, &PassingPacket)> = packets
            .filter(|(_, p)| self.frames.has(p.packet.len))
            .collect();
        if requests.is_empty() {
            return if path.in_order(self.params.bound) {
                Ok(path)
            } else {
                Err(Reason::Violation)
            };
        }
        let path_through = |(received, packet): (u64, &PassingPacket)| {
            let mut path = path;
            path.set(C::NetTapReceive, received, self.host.by(packet));
            let response = self.in_host(&mut path, received, late);
            self.transmit(&mut path, sent, call, early);
            if let Some((read, tid)) = response {
                self.receive(&mut path, tid, read, got.at);
            }
            (path, response.is_some())
        };
        let paths = requests
            .into_iter()
            .map(path_through)
            .filter(|(path, _)| path.in_order(self.params.bound));
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
        self.host
            .packets
            .at(at)
            .within(from, to)
            .find(|(_, p)| is(&p.packet))
            .map(|(at, p)| (at, *p))
    }

    /// From the host's stack to the server and back: when QEMU reads the response, and which of its threads.
    fn in_host(&self, path: &mut RequestPath, received: u64, late: u64) -> Option<(u64, i32)> {
        let mut receives = self
            .host
            .passed
            .at(C::NetServerReceive)
            .within(received, late);
        let (got, server) = receives
            .find(|(_, p)| self.host.servers.contains(&p.tid))
            .map(|(at, p)| (at, p.tid))?;
        let send = self.next_send(server, got, late)?;
        path.set(C::NetServerReceive, got, PassedBy::Thread(server));
        path.set(C::NetServerSend, send, PassedBy::Thread(server));
        let (queued, packet) = self.host_packet(C::NetHostQueue, send, late, |p| {
            self.frames.has_with_link(p.len)
        })?;
        path.set(C::NetHostQueue, queued, self.host.by(&packet));
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
        let mut copies = self.host.packets.at(C::NetTapRead).within(from, to);
        if let Some((at, copy)) = copies.find(|(_, p)| is(p.tid) && same(&p.packet)) {
            return Some((at, copy.tid));
        }
        let next = |at: C| {
            self.host
                .passed
                .at(at)
                .within(from, to)
                .find(|(_, p)| is(p.tid))
                .map(|(at, p)| (at, p.tid))
        };
        RECEIVES
            .into_iter()
            .filter_map(next)
            .min_by_key(|(at, _)| *at)
    }

    /// From passt's read of the response to QEMU's: when QEMU reads it, and which of its threads; or to passt's notification of the guest.
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
            let mut notifies = self.host.passed.at(C::NetPasstNotify).within(read, late);
            let (notify, by) = notifies
                .find(|(_, p)| p.tid == passt)
                .map(|(at, p)| (at, p.tid))?;
            path.set(C::NetPasstNotify, notify, PassedBy::Thread(by));
            return Some((notify, by));
        }
        let write = self.next_send(passt, read, late)?;
        path.set(C::NetPasstWrite, write, PassedBy::Thread(passt));
        let mut reads = self.host.packets.at(C::NetTapRead).within(write, late);
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
        let next = |at: C| {
            self.host
                .passed
                .at(at)
                .within(from, to)
                .find(|(_, p)| p.tid == tid)
                .map(|(at, _)| at)
        };
        SENDS.into_iter().filter_map(next).min()
    }
}
