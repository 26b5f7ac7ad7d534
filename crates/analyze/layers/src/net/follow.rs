//! Finds the checkpoints of one round trip in what both sides saw meanwhile. A packet is known within a kernel by the kernel's
//! address for it. Across the border its payload tells where QEMU's functions show that (`by_key`), else its length and,
//! as there is one round trip at a time, its order (`by_order`).

use super::{Frames, SENDS};
use crate::events::moment_at;
use crate::join::sides::HostWindow;
use crate::join::sides::{GuestPacket, GuestWindow};
use crate::join::{MatchParams, Reason, RequestPath, View};
use vmtax_model::{Checkpoint as C, Stamped, thread_of_round_trip};
use vmtax_trace::Moment;

pub(crate) struct Follow<'a> {
    pub host: &'a HostWindow,
    pub guest: &'a GuestWindow,
    pub frames: Frames,
    pub params: MatchParams,
    /// When the host was done with the round trip before: what it did until then is not this one's.
    pub after: u64,
    /// The server's thread that answered this client before.
    pub server: Option<i32>,
}

/// Sets the checkpoints of a packet that a thread of QEMU has read, up to the notification of the guest, and returns
/// the time of the last one.
pub(super) fn filled(
    host: &HostWindow,
    path: &mut RequestPath,
    tid: i32,
    read: u64,
    latest: u64,
) -> u64 {
    let own = |at: C, from: u64| host.first_by(at, from, latest, |by| by == tid);
    // The next packet's is not this one's.
    let next = own(C::NetRx, read)
        .and_then(|(at, _)| own(C::NetRx, at.saturating_add(1)))
        .map_or(u64::MAX, |(at, _)| at);
    let mut last = read;
    for checkpoint in [C::NetRx, C::NetRxFill, C::NetRxNotify] {
        if let Some((at, _)) = own(checkpoint, last).filter(|(at, _)| *at < next) {
            path.set_thread(checkpoint, at, tid);
            last = at;
        }
    }
    last
}

/// A thread's read of a packet that was sent before, and its wake-up for that. A vhost worker does both in place of QEMU's
/// event loop.
pub(super) fn set_read(
    host: &HostWindow,
    path: &mut RequestPath,
    reads: C,
    tid: i32,
    sent: u64,
    read: u64,
) {
    let (wakes, reads) = match reads {
        _ if host.vhost.contains(&tid) => (C::NetVhostReplyWake, C::NetVhostRead),
        C::NetStreamRead => (C::NetStreamWake, reads),
        C::NetPasstRead => (C::NetPasstReplyWake, reads),
        _ => (C::NetRxWake, reads),
    };
    path.set_thread(reads, read, tid);
    if let Some(woke) = host.resumed(tid, sent, read) {
        path.set_thread(wakes, woke, tid);
    }
}

/// The vhost worker's work on a packet that it handed to the host's stack at `handed`: since it woke for a kick at
/// `from`, or was done with the packet before it, at `previous`.
pub(super) fn by_vhost(
    host: &HostWindow,
    path: &mut RequestPath,
    tid: i32,
    from: u64,
    previous: u64,
    handed: u64,
) {
    path.set_thread(C::NetVhostSend, handed, tid);
    let woke = host.woke(tid, from.max(previous), handed);
    if let Some(woke) = woke {
        path.set_thread(C::NetVhostWake, woke, tid);
    }
    if let Some(taken) = woke.or(Some(previous).filter(|previous| *previous > 0)) {
        path.set_thread(C::NetVhostTake, taken, tid);
    }
}

/// The wake-up of the thread that took a packet at `taken`, for a kick at `from`. The first: QEMU transmits in a bottom
/// half, in the next turn of its loop. Within the clocks' error the last.
pub(super) fn woken_by_kick(
    host: &HostWindow,
    path: &mut RequestPath,
    tid: i32,
    from: u64,
    taken: u64,
    bound: u64,
) {
    let first = host.woke_first(tid, from, taken);
    if let Some(woke) = first.or_else(|| host.woke(tid, from.saturating_sub(bound), taken)) {
        path.set_thread(C::NetTxWake, woke, tid);
    }
}

/// The guest's interrupt for a packet that QEMU was done with at `from`, until NAPI polled it: when it was, if there was one.
pub(super) fn interrupted(
    guest: &GuestWindow,
    path: &mut RequestPath,
    from: u64,
    polled: u64,
    bound: u64,
) -> Option<u64> {
    let (at, moment) = guest.passed.at(C::NetGuestInterrupt).until(polled).next()?;
    (at >= from.saturating_sub(bound)).then(|| {
        let moment = Moment {
            tid: 0,
            interrupt: true,
            ..*moment
        };
        path.set_guest(C::NetGuestInterrupt, moment);
        at
    })
}

/// A moment of the softirq, which has nothing to do with the task that it interrupts.
pub(super) fn in_softirq(moment: Moment) -> Moment {
    Moment {
        interrupt: true,
        ..moment
    }
}

/// A round trip's system call that sends, in the guest.
#[derive(Debug, Clone, Copy)]
pub(super) struct SendCall {
    pub enter: u64,
    pub exit: Option<u64>,
    pub tid: i32,
}

impl Follow<'_> {
    /// The checkpoints of an operation, host ticks.
    ///
    /// # Errors
    /// Why it cannot be followed.
    pub fn path(&self, operation: &Stamped) -> Result<RequestPath, Reason> {
        if self.params.view == View::Driver {
            return self.of_driver(operation);
        }
        let mut path = RequestPath::new();
        let Stamped { begin, end, key } = *operation;
        let sent = self.sent(&mut path, operation).ok_or(Reason::NoPacket)?;
        let call = self.send_call(&mut path, operation, sent);
        if self.host.tells_round_trips && thread_of_round_trip(key) != 0 {
            let response = self.by_key(&mut path, operation);
            let answered = response.map(|response| response.received);
            let got = self.got(&mut path, operation, sent.at, answered)?;
            self.returns(&mut path, call, got, end);
            self.transmit(&mut path, sent, call, begin);
            if let Some(response) = response {
                self.receive(&mut path, response.tid, response.read, got.at);
            }
            return path.in_order(self.params.bound);
        }
        // Without a sign of their own, packets are known by their order alone.
        if self.guest.clients.len() > 1 {
            return Err(Reason::Ambiguous);
        }
        let got = self.got(&mut path, operation, sent.at, None)?;
        self.returns(&mut path, call, got, end);
        self.by_order(path, operation, sent, call, got)
    }

    /// Returns the path of a round trip of the micro-guest, whose stamps are its driver's: right before the kick, and
    /// when it sees the response.
    fn of_driver(&self, operation: &Stamped) -> Result<RequestPath, Reason> {
        let mut path = RequestPath::new();
        let Stamped { begin, end, .. } = *operation;
        let (sent, got) = (moment_at(begin), moment_at(end));
        path.set_guest(C::NetGuestKick, sent);
        path.set_guest(C::NetGuestPoll, got);
        if !self.host.tells_round_trips {
            return self.by_order(path, operation, sent, None, got);
        }
        let response = self.by_key(&mut path, operation);
        self.transmit(&mut path, sent, None, begin);
        if let Some(response) = response {
            self.receive(&mut path, response.tid, response.read, end);
        }
        path.in_order(self.params.bound)
    }

    /// When the host was done with a round trip.
    pub fn done(path: &RequestPath) -> u64 {
        let last = [
            C::NetPasstNotify,
            C::NetStreamRead,
            C::NetTapRead,
            C::NetVhostRead,
            C::NetHostXmit,
        ];
        path.first_of(&last).unwrap_or(0)
    }

    /// The first packet of the guest at a checkpoint that is one of these.
    fn guest_packet(
        &self,
        at: C,
        from: u64,
        to: u64,
        is: impl Fn(&GuestPacket) -> bool,
    ) -> Option<GuestPacket> {
        let packets = self.guest.packets.within(at, from, to);
        packets.map(|(_, packet)| *packet).find(is)
    }

    /// The request in the guest's stack, up to its driver: when that has it. The client that makes the operation sends it itself.
    fn sent(&self, path: &mut RequestPath, operation: &Stamped) -> Option<Moment> {
        let Stamped { begin, end, key } = *operation;
        let client = thread_of_round_trip(key);
        let is = |p: &GuestPacket| {
            self.frames.has_with_link(p.packet.len)
                && (p.moment.tid == client || self.guest.clients.len() <= 1)
        };
        let queued = self.guest_packet(C::NetGuestQueue, begin, end, is)?;
        path.set_guest(C::NetGuestQueue, queued.moment);
        let same = |p: &GuestPacket| p.packet.skb == queued.packet.skb;
        let xmit = self
            .guest_packet(C::NetGuestXmit, queued.moment.at, end, same)?
            .moment;
        path.set_guest(C::NetGuestXmit, xmit);
        Some(xmit)
    }

    /// The system call that sent the request.
    fn send_call(
        &self,
        path: &mut RequestPath,
        operation: &Stamped,
        sent: Moment,
    ) -> Option<SendCall> {
        let queued = path.at(C::NetGuestQueue).unwrap_or(sent.at);
        let client = thread_of_round_trip(operation.key);
        let until = operation.end.min(queued);
        let calls = || self.guest.calls.within(operation.begin, until);
        let last_call_of = |tid: i32| calls().filter(|(_, call)| call.tid == tid).last();
        // The stack may have sent it for another task, in a softirq: then the client's, or where that is not known whoever
        // called last.
        let own = if client == 0 {
            last_call_of(sent.tid).or_else(|| calls().last())
        } else {
            last_call_of(client).or_else(|| last_call_of(sent.tid))
        };
        let (enter, call) = own?;
        let by = Moment {
            at: enter,
            cpu: call.cpu,
            tid: call.tid,
            interrupt: false,
        };
        path.set_guest(C::NetGuestCall, by);
        Some(SendCall {
            enter,
            exit: call.exit.map(|(at, _)| at),
            tid: call.tid,
        })
    }

    /// When the client's system call returns that received the response: one that it made after that which sent the request. An
    /// interrupt may bring the response before that one returns.
    fn returns(&self, path: &mut RequestPath, send: Option<SendCall>, got: Moment, end: u64) {
        let Some(send) = send else { return };
        let received = path
            .first_of(&[C::NetGuestRead, C::NetGuestReceive])
            .unwrap_or(got.at);
        let later = self
            .guest
            .calls
            .within(send.enter.saturating_add(1), end)
            .filter(|(_, call)| call.tid == send.tid);
        let mut exits = later.filter_map(|(_, call)| call.exit);
        if let Some((at, cpu)) = exits.find(|(at, _)| (received..=end).contains(at)) {
            let moment = Moment {
                at,
                cpu,
                tid: send.tid,
                interrupt: false,
            };
            path.set_guest(C::NetGuestReturn, moment);
        }
    }

    /// Returns true if several connections go through passt.
    pub(super) fn shares_passt(&self) -> bool {
        !self.host.passt.is_empty() && self.guest.clients.len() > 1
    }

    /// When one of these threads last entered a call that sends, and which.
    pub(super) fn last_send(
        &self,
        from: u64,
        to: u64,
        is: impl Fn(i32) -> bool,
    ) -> Option<(u64, i32)> {
        let last = |at: C| self.host.last_by(at, from, to, &is);
        SENDS.into_iter().filter_map(last).max_by_key(|(at, _)| *at)
    }

    /// From the guest's driver to the host's stack. `earliest`: nothing of it was before. Where the packet itself told when QEMU
    /// transmitted it, that is in the path.
    pub(super) fn transmit(
        &self,
        path: &mut RequestPath,
        sent: Moment,
        call: Option<SendCall>,
        earliest: u64,
    ) {
        let bound = self.params.bound;
        let Some(received) = path.first_of(&[C::NetTapReceive, C::NetStreamWrite]) else {
            return;
        };
        let known = path.thread(C::NetTx);
        let early = known.map_or(earliest, |(at, _)| at);
        let write = self.write(path, early, received);
        // The last before the host's stack has the packet: the packet itself says when that was.
        let until = write.map_or(received, |(at, _)| at);
        let taken = known.or_else(|| self.host.last_by(C::NetTx, early, until, |_| true));
        if let Some((at, tid)) = taken {
            path.set_thread(C::NetTx, at, tid);
        }
        let until = taken.or(write).map_or(received, |(at, _)| at);
        let from = self.kicked(path, sent, call, until);
        let worker = path
            .thread(C::NetTapReceive)
            .filter(|(_, tid)| self.host.vhost.contains(tid));
        if let Some((handed, tid)) = worker {
            by_vhost(self.host, path, tid, from.saturating_sub(bound), 0, handed);
        } else if let Some((taken, tid)) = taken.or(write) {
            woken_by_kick(self.host, path, tid, from, taken, bound);
        }
    }

    /// The guest's kick for a packet that was taken at `until`, and its doorbell in KVM: when the last of these was that the
    /// traces show, else when the driver had the packet.
    fn kicked(
        &self,
        path: &mut RequestPath,
        sent: Moment,
        call: Option<SendCall>,
        until: u64,
    ) -> u64 {
        let bound = self.params.bound;
        let several = self.guest.clients.len() > 1;
        // Of several connections a later kick may be another's: one's own is within the call that sends.
        let exit = call
            .and_then(|call| call.exit)
            .filter(|_| several)
            .unwrap_or(u64::MAX);
        let latest = until.saturating_add(bound).min(exit);
        let mut kicks = self.guest.passed.within(C::NetGuestKick, sent.at, latest);
        let kick = kicks.find(|(_, kick)| !several || kick.tid == sent.tid);
        if let Some((_, kick)) = kick {
            path.set_guest(C::NetGuestKick, *kick);
        }
        let told = kick.map_or(sent.at, |(at, _)| at);
        let suppressed = several && kick.is_none() && self.guest.passed.seen(C::NetGuestKick);
        let latest = until.min(exit.saturating_add(bound));
        let doorbell = self
            .host
            .passed
            .at(C::NetKvmKick)
            .caused(told, latest, bound);
        if let Some((at, exit)) = doorbell.filter(|_| !suppressed) {
            path.set_thread(C::NetKvmKick, at, exit.tid);
        }
        path.at(C::NetKvmKick).unwrap_or(told)
    }

    /// The write of the request by whoever took it from the queue, QEMU or passt: when and by which thread. passt passes
    /// on what QEMU writes to it.
    fn write(&self, path: &mut RequestPath, early: u64, received: u64) -> Option<(u64, i32)> {
        if self.shares_passt() {
            return path.thread(C::NetStreamWrite);
        }
        if self.host.passt.is_empty() {
            let (at, tid) = self.last_send(early, received, |tid| self.host.is_qemus(tid))?;
            path.set_thread(C::NetTapWrite, at, tid);
            return Some((at, tid));
        }
        let (sent, passt) =
            self.last_send(early, received, |tid| self.host.passt.contains(&tid))?;
        path.set_thread(C::NetPasstSend, sent, passt);
        if self.host.passt_has_queues {
            return Some((sent, passt));
        }
        let (write, tid) = self.last_send(early, sent, |tid| self.host.is_qemus(tid))?;
        path.set_thread(C::NetStreamWrite, write, tid);
        // The first: it reads what QEMU wrote in the same turn of its loop.
        if let Some(woke) = self.host.woke_first(passt, write, sent) {
            path.set_thread(C::NetPasstWake, woke, passt);
        }
        Some((write, tid))
    }

    /// From QEMU's read of the response, or passt's notification, to the guest's driver.
    pub(super) fn receive(&self, path: &mut RequestPath, tid: i32, read: u64, polled: u64) {
        let bound = self.params.bound;
        let latest = polled.saturating_add(bound);
        let from = filled(self.host, path, tid, read, latest);
        let interrupt = interrupted(self.guest, path, from, polled, bound);
        // Of several connections the stack may have found it without an interrupt of its own.
        if interrupt.is_none() && self.guest.clients.len() > 1 {
            return;
        }
        let until = interrupt.map_or(latest, |at| at.saturating_add(bound));
        let Some((at, by)) = self.host.first_by(C::NetInject, from, until, |_| true) else {
            return;
        };
        path.set_thread(C::NetInject, at, by);
        // Without KVM it is QEMU that interrupts the guest.
        let woke = self.host.woke(by, from, at);
        if let Some(woke) = woke.filter(|_| self.host.passt.contains(&tid)) {
            path.set_thread(C::NetStreamWake, woke, by);
        }
    }
}
