//! Finds the checkpoints of one request: in what both sides saw lately, by what identifies it where there is such a thing, by
//! order where there is not; or in what the host alone tells, from its kick, as far as that is seen, to the delivery of its
//! interrupt, all on the host's clock.

use super::{GuestRequest, NOWHERE};
use crate::join::sides::GuestWindow;
use crate::join::sides::{Call, HostWindow, Passing};
use crate::join::{MatchParams, PassedBy, Reason, RequestPath, View};
use vmtax_findings::RequestKind;
use vmtax_model::Checkpoint;
use vmtax_trace::{EventWindow, Moment};

/// Event that was found, with its time; `None` if there is none.
type Found<T> = Result<Option<(u64, T)>, Reason>;

pub(crate) struct Follow<'a> {
    pub host: &'a HostWindow,
    pub guest: &'a GuestWindow,
    /// The guest's requests that completed lately.
    pub done: &'a EventWindow<GuestRequest>,
    pub params: MatchParams,
}

impl Follow<'_> {
    /// The checkpoints of a request that completed in the guest.
    pub fn path(&self, part: &GuestRequest) -> Result<RequestPath, Reason> {
        let mut path = RequestPath::new();
        let issued = match self.params.view {
            View::Kernel => Some(Checkpoint::GuestIssue),
            View::Driver => Some(Checkpoint::GuestNotify),
            View::Blind | View::Host => None,
        };
        if let Some(issued) = issued {
            path.set_guest(issued, part.issue);
            path.set_guest(Checkpoint::GuestComplete, part.complete);
        }
        let popped = self.popped(part)?;
        let pushed = self.pushed(part, popped)?;
        let submit =
            self.identified(Checkpoint::QemuSubmit, part, |p| p.mark.covers(part.offset))?;
        let taken = [
            (Checkpoint::QemuPop, popped),
            (Checkpoint::QemuSubmit, submit),
            (Checkpoint::QemuPush, pushed),
        ];
        for (checkpoint, found) in taken {
            if let Some((at, passing)) = found {
                path.set_thread(checkpoint, at, passing.tid);
            }
        }
        self.device(part, &mut path)?;
        self.call(part, &mut path, submit.map(|(_, submit)| submit));
        self.down(part, &mut path);
        self.up(
            part,
            &mut path,
            pushed.and_then(|(_, push)| push.mark.queue),
        );
        path.in_order(self.params.bound)
    }

    /// The request's pop. Where the probe does not tell, and there is one request at a time: the first of its queue.
    fn popped(&self, part: &GuestRequest) -> Found<Passing> {
        let named = |p: &Passing| p.mark.offset == Some(part.at_device());
        let popped = self.identified(Checkpoint::QemuPop, part, named)?;
        if popped.is_some() || !self.params.alone {
            return Ok(popped);
        }
        let pushed = self.identified(Checkpoint::QemuPush, part, named)?;
        let Some(queue) = pushed.and_then(|(_, push)| push.mark.queue) else {
            return Ok(None);
        };
        self.identified(Checkpoint::QemuPop, part, |p| {
            p.mark.offset.is_none() && p.mark.queue == Some(queue)
        })
    }

    /// The request's push: the first since its pop at the address that no other has from pop to push; by its offset where
    /// that is not known.
    fn pushed(&self, part: &GuestRequest, popped: Option<(u64, Passing)>) -> Found<Passing> {
        let Some((at, Some(address))) = popped.map(|(at, pop)| (at, pop.mark.address)) else {
            return self.identified(Checkpoint::QemuPush, part, |p| {
                p.mark.offset == Some(part.at_device())
            });
        };
        let own = |p: &Passing| p.mark.address == Some(address);
        let since = self
            .host
            .passed
            .within(Checkpoint::QemuPush, at, self.late(part))
            .find(|(_, p)| own(p));
        since.map_or_else(
            || self.identified(Checkpoint::QemuPush, part, own),
            |(at, push)| Ok(Some((at, *push))),
        )
    }

    fn early(&self, part: &GuestRequest) -> u64 {
        part.issue.at.saturating_sub(self.params.bound)
    }

    fn late(&self, part: &GuestRequest) -> u64 {
        part.complete.at.saturating_add(self.params.bound)
    }

    /// The first event that is the request's by what identifies it, while the request is in flight as well as the
    /// clocks can tell. One that lies outside of that shows that the clocks, or causes and effects, are not in order.
    fn identified(
        &self,
        at: Checkpoint,
        part: &GuestRequest,
        is: impl Fn(&Passing) -> bool,
    ) -> Found<Passing> {
        let past = self.host.passed.at(at);
        let (early, late) = (self.early(part), self.late(part));
        if let Some((at, event)) = past.within(early, late).find(|(_, e)| is(e)) {
            return Ok(Some((at, *event)));
        }
        if self.params.view == View::Host {
            return Ok(None); // on one clock nothing is outside
        }
        let slack = self.params.slack;
        let outside = past
            .within(early.saturating_sub(slack), late.saturating_add(slack))
            .find(|(_, e)| is(e));
        // It may be another request's, for the same bytes shortly before or after.
        let twice =
            |(_, p): (u64, &GuestRequest)| *p != *part && p.overlaps(part.offset, part.bytes);
        match outside {
            Some(_) if !self.done.from(early.saturating_sub(slack)).any(twice) => {
                Err(Reason::Violation)
            }
            _ => Ok(None),
        }
    }

    /// Adds the checkpoints of the host's block layer to the request's path.
    fn device(&self, part: &GuestRequest, path: &mut RequestPath) -> Result<(), Reason> {
        let mine = |p: &Passing| p.mark.overlaps(part.offset, part.bytes);
        let Some((at, issue)) = self.identified(Checkpoint::HostIssue, part, mine)? else {
            return Ok(());
        };
        path.set(Checkpoint::HostIssue, at, self.host.by(issue.tid));
        // The host may have split it: it is done when its last segment is.
        let completes = &self.host.passed;
        let completes = completes.within(Checkpoint::HostComplete, at, self.late(part));
        if let Some((at, _)) = completes.filter(|(_, p)| mine(p)).last() {
            path.set(Checkpoint::HostComplete, at, PassedBy::Host);
        }
        Ok(())
    }

    /// The system call that handed it to the host's kernel.
    fn call(&self, part: &GuestRequest, path: &mut RequestPath, submit: Option<Passing>) {
        let from = path
            .first_of(&[Checkpoint::QemuSubmit, Checkpoint::QemuPop])
            .unwrap_or(self.early(part));
        let to = path
            .first_of(&[Checkpoint::HostIssue, Checkpoint::QemuPush])
            .unwrap_or(self.late(part));
        let begin = submit.and_then(|s| s.mark.offset).unwrap_or(part.offset);
        let is_flush = part.kind == RequestKind::Flush;
        // During which call was it issued? Else, which call names its place? Else, the next that submits.
        let found = self
            .issuing_call(path, from)
            .or_else(|| {
                let mut calls = self.host.all_calls_within(from, to);
                let named = calls.find(|(_, _, c)| c.kind.position(&c.args) == Some(begin));
                named.map(|(tid, enter, _)| (enter, tid))
            })
            .or_else(|| {
                let calls = self.host.all_calls_within(from, to);
                let flushes = calls.filter(|(_, _, c)| is_flush && c.kind.flushes());
                flushes.map(|(tid, enter, _)| (enter, tid)).min()
            })
            .or_else(|| {
                // A flush has no submission of its own: since QEMU 10 with `aio=native`, and with `io_uring`, whoever
                // popped it submits it.
                let popper = path.thread(Checkpoint::QemuPop).filter(|_| is_flush);
                let tid = submit.map_or_else(|| popper.map(|(_, tid)| tid), |s| Some(s.tid))?;
                let mut calls = self.host.calls_within(tid, from, to);
                let (enter, _) = calls.find(|(_, c)| c.kind.submits(&c.args))?;
                Some((enter, tid))
            });
        if let Some((enter, tid)) = found {
            path.set_thread(Checkpoint::HostCall, enter, tid);
        }
    }

    /// The system call, entered at `from` or later, during which a thread issued the request to the host's device: when it
    /// was entered, and by which thread.
    fn issuing_call(&self, path: &RequestPath, from: u64) -> Option<(u64, i32)> {
        let (at, tid) = path.thread(Checkpoint::HostIssue)?;
        let (enter, call) = self.host.call_until(tid, at)?;
        let is_open = call.exit.is_none_or(|exit| exit >= at);
        let submits = call.kind.submits(&call.args) || call.kind.position(&call.args).is_some();
        (is_open && submits && enter >= from).then_some((enter, tid))
    }

    /// From the guest's notification to QEMU's event loop.
    fn down(&self, part: &GuestRequest, path: &mut RequestPath) {
        let bound = self.params.bound;
        let takers = [
            Checkpoint::QemuPop,
            Checkpoint::QemuSubmit,
            Checkpoint::HostCall,
        ];
        let taken = takers.into_iter().find_map(|s| path.thread(s));
        let until = taken.map_or(part.complete.at, |(at, _)| at);
        if self.params.view == View::Kernel {
            // Whoever issued it also notifies, once for all that it issued together.
            let mut notifies = self.guest.passed.within(
                Checkpoint::GuestNotify,
                part.issue.at,
                until.saturating_add(bound),
            );
            if let Some((_, notify)) = notifies.find(|(_, n)| n.tid == part.issue.tid) {
                path.set_guest(Checkpoint::GuestNotify, *notify);
            }
        }
        let told = path.at(Checkpoint::GuestNotify);
        let notifies_seen =
            self.params.view == View::Driver || self.guest.passed.seen(Checkpoint::GuestNotify);
        if told.is_some() || !notifies_seen {
            let kicks = self.host.passed.at(Checkpoint::KvmNotify);
            if let Some((at, kick)) = kicks.caused(told.unwrap_or(part.issue.at), until, bound) {
                path.set_thread(Checkpoint::KvmNotify, at, kick.tid);
            }
        }
        let kicked = path.at(Checkpoint::KvmNotify);
        let kicks_seen = notifies_seen || self.host.passed.seen(Checkpoint::KvmNotify);
        if kicks_seen && told.or(kicked).is_none() {
            path.in_ring = Some(Checkpoint::GuestIssue);
            return;
        }
        let from = kicked.unwrap_or_else(|| told.unwrap_or(part.issue.at).saturating_sub(bound));
        if let Some((woke, tid)) =
            taken.and_then(|(at, tid)| Some((self.host.woke(tid, from, at)?, tid)))
        {
            path.set_thread(Checkpoint::QemuWake, woke, tid);
        }
    }

    /// From the host's completion to the guest's interrupt handler.
    fn up(&self, part: &GuestRequest, path: &mut RequestPath, queue: Option<u64>) {
        let bound = self.params.bound;
        if let Some((at, tid)) = path.thread(Checkpoint::QemuPush) {
            if let Some(reaped) = self.reaped(path, at, tid) {
                path.set_thread(Checkpoint::QemuReap, reaped, tid);
            }
        }
        let Some(done) = path.first_of(&[Checkpoint::QemuPush, Checkpoint::HostComplete]) else {
            return;
        };
        // A notification after the guest has seen the completion was not what told it: it polled, or was at it anyway.
        let mut notifies = self
            .host
            .passed
            .within(Checkpoint::QemuNotify, done, part.complete.at);
        let of_queue = |p: &Passing| queue.is_none_or(|queue| p.mark.queue.unwrap_or(0) == queue);
        if let Some((at, notify)) = notifies.find(|(_, p)| of_queue(p)) {
            path.set_thread(Checkpoint::QemuNotify, at, notify.tid);
        }
        let told = if self.host.passed.seen(Checkpoint::QemuNotify) {
            path.at(Checkpoint::QemuNotify)
        } else {
            Some(done)
        };
        let Some(told) = told else { return };
        let interrupts = self.guest.passed.at(Checkpoint::GuestInterrupt);
        let interrupt = interrupts.caused(told, part.complete.at, bound);
        let until = interrupt.map_or(part.complete.at, |(at, _)| at.saturating_add(bound));
        if let Some((_, moment)) = interrupt {
            let moment = Moment {
                tid: 0,
                interrupt: true,
                ..*moment
            };
            path.set_guest(Checkpoint::GuestInterrupt, moment);
        }
        if let Some((at, tid)) = self
            .host
            .first_by(Checkpoint::Inject, told, until, |_| true)
        {
            path.set_thread(Checkpoint::Inject, at, tid);
        }
    }

    /// When the thread that filled the used ring learned that the host had done it.
    fn reaped(&self, path: &RequestPath, pushed: u64, tid: i32) -> Option<u64> {
        let called = path.thread(Checkpoint::HostCall);
        let call = called.and_then(|(at, tid)| {
            Some((tid, *self.host.calls_within(tid, at, u64::MAX).next()?.1))
        });
        // A call that does it all by itself is not done before it returns.
        let whole = |c: &Call| c.kind.position(&c.args).is_some() || c.kind.flushes();
        let returned = call.filter(|(_, c)| whole(c)).and_then(|(_, c)| c.exit);
        let done = path
            .at(Checkpoint::HostComplete)
            .or(returned)
            .or(called.map(|(at, _)| at))?;
        let own = call
            .filter(|(caller, _)| *caller == tid)
            .and_then(|(_, c)| c.exit);
        self.host
            .woke(tid, done, pushed)
            .or(own.filter(|exit| (done..=pushed).contains(exit)))
    }
}

impl Follow<'_> {
    /// The checkpoints of a request that QEMU popped when it was issued, and pushed when it was complete. Where and how
    /// long it is becomes known with its submission.
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

    /// The submission of a request: its own, or that of the neighbors with which it was merged. Of one that QEMU accounts
    /// for, the next by the same thread, rather one of as many bytes.
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
        let calls = self.host.all_calls_within(from, to);
        let transfers = calls
            .filter(|(_, _, c)| {
                c.kind.position(&c.args).is_some() && self.host.is_of_disk(c.args[0])
            })
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
        self.woken(pop.tid, woke, path);
    }

    /// From the kick to the thread that it woke, which returned from its wait at `woke`. Where KVM shows kicks and none of the
    /// disk's came since its wait before, something else woke it.
    pub(super) fn woken(&self, tid: i32, woke: u64, path: &mut RequestPath) {
        let since = self.host.woke_before(tid, 0, woke).unwrap_or(0);
        let after = since.saturating_add(1);
        let seen = self
            .host
            .first_by(Checkpoint::KvmNotify, after, woke, |_| true);
        if let Some((at, tid)) = seen.or_else(|| self.host.waking_vcpu(tid, woke, since)) {
            path.set_thread(Checkpoint::KvmNotify, at, tid);
        } else if self.host.passed.seen(Checkpoint::KvmNotify) {
            return;
        }
        path.set_thread(Checkpoint::QemuWake, woke, tid);
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
