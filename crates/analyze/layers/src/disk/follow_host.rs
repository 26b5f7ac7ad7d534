//! Finds the checkpoints of a request of which the host alone tells: from its kick, as far as that is seen, to the delivery of
//! its interrupt. All are on the host's clock.

use super::follow::Follow;
use super::{GuestRequest, NOWHERE};
use crate::join::host::Passing;
use crate::join::{Reason, RequestPath};
use vmtax_model::{Checkpoint, RequestKind};

impl Follow<'_> {
    /// The checkpoints of a request that QEMU popped when it was issued, and pushed when it was complete. Where and how long it is becomes
    /// known with its submission.
    pub fn host_path(&self, part: &mut GuestRequest) -> Result<RequestPath, Reason> {
        let mut path = RequestPath::new();
        let (popped, pushed) = (part.issue, part.complete);
        let mut pops = self
            .host
            .passed
            .within(Checkpoint::QemuPop, popped.at, popped.at);
        let (_, pop) = pops
            .find(|(_, p)| p.tid == popped.tid)
            .ok_or(Reason::Violation)?;
        path.set_thread(Checkpoint::QemuPop, popped.at, popped.tid);
        path.set_thread(Checkpoint::QemuPush, pushed.at, pushed.tid);
        let submit = self.submitted(part, pop);
        if let Some((at, submit)) = submit {
            path.set_thread(Checkpoint::QemuSubmit, at, submit.tid);
            let begin = submit.mark.offset.unwrap_or(0);
            // An account does not say where.
            if part.offset == NOWHERE {
                part.offset = begin;
            }
            // It is done when all is that was merged with it, or, where it is submitted in pieces, all that was asked for.
            let end = begin.saturating_add(submit.mark.bytes);
            part.bytes = end.saturating_sub(part.offset).max(pop.mark.bytes);
        }
        self.device(part, &mut path)?;
        self.call(part, &mut path, submit.map(|(_, submit)| submit));
        if path.at(Checkpoint::HostCall).is_none() && part.alone {
            self.only_call(submit.map_or(popped.at, |(at, _)| at), pushed.at, &mut path);
        }
        self.kicked(pop, popped.at, &mut path);
        if let Some(reaped) = self.reaped(&path, pushed.at, pushed.tid) {
            path.set_thread(Checkpoint::QemuReap, reaped, pushed.tid);
        }
        self.notified(pop, pushed.at, &mut path);
        path.in_order(0)
    }

    /// The submission of a request: its own, or that of the neighbours with which it was merged. Of one that QEMU accounts for, the next
    /// by the same thread, rather one of as many bytes.
    fn submitted(&self, part: &GuestRequest, pop: &Passing) -> Option<(u64, Passing)> {
        let submits = || {
            self.host
                .passed
                .within(Checkpoint::QemuSubmit, part.issue.at, part.complete.at)
        };
        let own =
            submits().find(|(_, s)| s.mark.address.is_some() && s.mark.address == pop.mark.address);
        let of_thread = || submits().filter(|(_, s)| s.tid == pop.tid);
        let merged = || of_thread().find(|(_, s)| s.mark.covers(part.offset));
        let is_transfer = matches!(part.kind, RequestKind::Read | RequestKind::Write);
        let next = || {
            let same_length = of_thread().find(|(_, s)| s.mark.bytes == pop.mark.bytes);
            same_length
                .or_else(|| of_thread().next())
                .filter(|_| is_transfer && pop.mark.offset.is_none())
        };
        own.or_else(merged)
            .or_else(next)
            .map(|(at, submit)| (at, *submit))
    }

    /// The first call that transfers bytes of the disk's file: of a request that is alone it is the request's, wherever the
    /// image's format has its bytes.
    fn only_call(&self, from: u64, to: u64, path: &mut RequestPath) {
        let is_of_file = |descriptor: u64| {
            let mut own = self.host.descriptors.iter();
            own.any(|own| descriptor == *own as u64)
        };
        let calls = self.host.all_calls_within(from, to);
        let transfers = calls
            .filter(|(_, _, c)| c.kind.position(&c.args).is_some() && is_of_file(c.args[0]))
            .map(|(tid, enter, _)| (enter, tid));
        if let Some((enter, tid)) = transfers.min() {
            path.set_thread(Checkpoint::HostCall, enter, tid);
        }
    }

    /// From the kick to the event loop, for a request that the loop popped because of it. One that it found by itself was in
    /// the ring for an unknown time, so it begins with its pop.
    fn kicked(&self, pop: &Passing, popped: u64, path: &mut RequestPath) {
        let Some(woke) = self.host.woke(pop.tid, 0, popped) else {
            return;
        };
        // The loop pops all that it was woken for, and then submits it.
        let is_of_queue = |submit: &Passing| {
            let mut earlier = self.host.passed.back(Checkpoint::QemuPop, woke, popped);
            earlier.any(|(_, p)| {
                p.mark.queue == pop.mark.queue && p.mark.address == submit.mark.address
            })
        };
        let mut submits = self.host.passed.back(Checkpoint::QemuSubmit, woke, popped);
        if submits.any(|(_, submit)| is_of_queue(submit)) {
            return;
        }
        let since = self.host.woke_before(pop.tid, 0, woke).unwrap_or(0);
        let after = since.saturating_add(1);
        let seen = self
            .host
            .first_by(Checkpoint::KvmNotify, after, woke, |_| true);
        if let Some((at, tid)) = seen.or_else(|| self.host.waking_vcpu(pop.tid, woke, since)) {
            path.set_thread(Checkpoint::KvmNotify, at, tid);
        } else if self.host.passed.seen(Checkpoint::KvmNotify) {
            return;
        }
        path.set_thread(Checkpoint::QemuWake, woke, pop.tid);
    }

    /// From the push to the interrupt that the same thread delivers, before it waits for other work; of a virtqueue after its
    /// notification. Without one the guest had not asked for it.
    fn notified(&self, pop: &Passing, pushed: u64, path: &mut RequestPath) {
        let until = pushed.saturating_add(self.params.slack);
        let told = if pop.mark.queue.is_some() {
            let mut notifies = self
                .host
                .passed
                .within(Checkpoint::QemuNotify, pushed, until);
            let notify = notifies.find(|(_, p)| p.mark.queue == pop.mark.queue);
            if let Some((at, notify)) = notify {
                path.set_thread(Checkpoint::QemuNotify, at, notify.tid);
            }
            path.thread(Checkpoint::QemuNotify)
        } else {
            path.thread(Checkpoint::QemuPush)
        };
        let Some((at, tid)) = told else { return };
        let until = self.host.woke_after(tid, at).unwrap_or(until);
        if let Some((at, _)) = self
            .host
            .first_by(Checkpoint::Inject, at, until, |by| by == tid)
        {
            path.set_thread(Checkpoint::Inject, at, tid);
        }
    }
}
