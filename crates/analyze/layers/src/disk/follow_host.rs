//! Finds the checkpoints of a request of which the host alone tells: from its kick, as far as that is seen, to the delivery of
//! its interrupt. All are on the host's clock.

use super::follow::Follow;
use super::request::{GuestRequest, NOWHERE};
use crate::join::host::{Call, Passing};
use crate::join::match_params::Violation;
use crate::join::request_path::{PassedBy, RequestPath};
use vmtax_model::{Checkpoint, RequestKind};

impl Follow<'_> {
    /// The checkpoints of a request that QEMU popped when it was issued, and pushed when it was complete. Where and how long it is becomes
    /// known with its submission.
    pub fn host_path(&self, part: &mut GuestRequest) -> Result<RequestPath, Violation> {
        let mut path = RequestPath::new();
        let (popped, pushed) = (part.issue, part.complete);
        let passing_at = |checkpoint, at, tid| {
            self.host
                .passed
                .at(checkpoint)
                .within(at, at)
                .find(move |(_, p)| p.tid == tid)
        };
        let pop = passing_at(Checkpoint::QemuPop, popped.at, popped.tid)
            .map(|(_, p)| *p)
            .ok_or(Violation)?;
        path.set(Checkpoint::QemuPop, popped.at, PassedBy::Thread(popped.tid));
        path.set(
            Checkpoint::QemuPush,
            pushed.at,
            PassedBy::Thread(pushed.tid),
        );
        let submit = self.submitted(part, &pop);
        if let Some((at, submit)) = submit {
            path.set(Checkpoint::QemuSubmit, at, PassedBy::Thread(submit.tid));
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
        self.kicked(&pop, popped.at, &mut path);
        if let Some(reaped) = self.reaped(&path, pushed.at, pushed.tid) {
            path.set(Checkpoint::QemuReap, reaped, PassedBy::Thread(pushed.tid));
        }
        self.notified(&pop, pushed.at, &mut path);
        if path.in_order(0) {
            Ok(path)
        } else {
            Err(Violation)
        }
    }

    /// The submission of a request: its own, or that of the neighbours with which it was merged. Of one that QEMU accounts for, the next
    /// by the same thread, rather one of as many bytes.
    fn submitted(&self, part: &GuestRequest, pop: &Passing) -> Option<(u64, Passing)> {
        let submits = || {
            self.host
                .passed
                .at(Checkpoint::QemuSubmit)
                .within(part.issue.at, part.complete.at)
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
        let calls = self.host.threads.iter().flat_map(|&tid| {
            let calls = self
                .host
                .calls_from(tid, from)
                .take_while(|(enter, _)| *enter <= to);
            let of_file = |call: &Call| {
                self.host
                    .descriptors
                    .iter()
                    .any(|own| call.args[0] == *own as u64)
            };
            let transfers =
                move |call: &Call| call.kind.position(&call.args).is_some() && of_file(call);
            calls
                .filter(move |(_, call)| transfers(call))
                .map(move |(enter, _)| (enter, tid))
        });
        if let Some((enter, tid)) = calls.min() {
            path.set(Checkpoint::HostCall, enter, PassedBy::Thread(tid));
        }
    }

    /// From the kick to the event loop, for a request that the loop popped because of it. One that it found by itself was in
    /// the ring for an unknown time, so it begins with its pop.
    fn kicked(&self, pop: &Passing, popped: u64, path: &mut RequestPath) {
        let Some(woke) = self.host.woke(pop.tid, 0, popped) else {
            return;
        };
        let (pops, submits) = (
            self.host.passed.at(Checkpoint::QemuPop),
            self.host.passed.at(Checkpoint::QemuSubmit),
        );
        // The loop pops all that it was woken for, and then submits it.
        let of_queue = |submit: &Passing| {
            let mut earlier = pops.until(popped).take_while(|(at, _)| *at >= woke);
            earlier.any(|(_, p)| {
                p.mark.queue == pop.mark.queue && p.mark.address == submit.mark.address
            })
        };
        if submits
            .until(popped)
            .take_while(|(at, _)| *at >= woke)
            .any(|(_, submit)| of_queue(submit))
        {
            return;
        }
        let kicks = self.host.passed.at(Checkpoint::KvmNotify);
        let since = woke
            .checked_sub(1)
            .and_then(|before| self.host.woke(pop.tid, 0, before))
            .unwrap_or(0);
        let seen = kicks
            .within(since.saturating_add(1), woke)
            .next()
            .map(|(at, kick)| (at, kick.tid));
        let kick = seen.or_else(|| self.host.waking_vcpu(pop.tid, woke, since));
        if let Some((at, tid)) = kick {
            path.set(Checkpoint::KvmNotify, at, PassedBy::Thread(tid));
        } else if self.host.passed.seen(Checkpoint::KvmNotify) {
            return;
        }
        path.set(Checkpoint::QemuWake, woke, PassedBy::Thread(pop.tid));
    }

    /// From the push to the interrupt that the same thread delivers, before it waits for other work; of a virtqueue after its
    /// notification. Without one the guest had not asked for it.
    fn notified(&self, pop: &Passing, pushed: u64, path: &mut RequestPath) {
        let until = pushed.saturating_add(self.params.slack);
        let told = if pop.mark.queue.is_some() {
            let mut notifies = self
                .host
                .passed
                .at(Checkpoint::QemuNotify)
                .within(pushed, until);
            let Some((at, notify)) = notifies.find(|(_, p)| p.mark.queue == pop.mark.queue) else {
                return;
            };
            path.set(Checkpoint::QemuNotify, at, PassedBy::Thread(notify.tid));
            Some((at, notify.tid))
        } else {
            path.thread(Checkpoint::QemuPush)
        };
        let Some((at, tid)) = told else { return };
        let until = self.host.woke_after(tid, at).unwrap_or(until);
        let mut injects = self.host.passed.at(Checkpoint::Inject).within(at, until);
        if let Some((at, inject)) = injects.find(|(_, p)| p.tid == tid) {
            path.set(Checkpoint::Inject, at, PassedBy::Thread(inject.tid));
        }
    }
}
