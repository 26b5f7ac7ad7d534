//! Requests to a disk of a VM whose VMM no probe shows. Each is a system call that transfers bytes of the disk's file, or what
//! a call hands to the host's block device. From there the scheduler leads back to the vCPU that kicked, and on to the thread
//! that delivers the interrupt.

use super::follow::Follow;
use super::{Ended, GuestRequest, NOWHERE};
use crate::events::{CallKind, Event, HostEvent, Mark};
use crate::join::sides::{Call, HostWindow};
use crate::join::{PassedBy, Reason, RequestPath, deferred};
use std::collections::HashMap;
use vmtax_findings::RequestKind;
use vmtax_model::Checkpoint;

/// Requests that the host's kernel has and has not completed. `complete` is not valid yet.
#[derive(Debug, Default)]
pub(crate) struct InCalls {
    /// Transfers and flushes that last as long as their call, by the thread that made it.
    calls: HashMap<i32, GuestRequest>,
    /// Transfers that the host's device has while their caller goes on, by their place on the disk.
    submitted: HashMap<u64, GuestRequest>,
}

impl InCalls {
    /// Takes an event, which `host` has taken before; gives the request that it ends.
    pub fn take(&mut self, event: &Event<HostEvent>, host: &HostWindow) -> Option<Ended> {
        let now = event.moment();
        match event.what {
            HostEvent::Enter { nr, args } => {
                // The return of the call before may have been lost.
                self.calls.remove(&event.tid);
                let kind = CallKind::from_call(nr, &args);
                if let Some(request) = kind.transfers().filter(|_| host.is_of_disk(args[0])) {
                    let request = GuestRequest {
                        offset: kind.position(&args).unwrap_or(NOWHERE),
                        bytes: u64::from(request != RequestKind::Flush),
                        ..GuestRequest::new(request, now)
                    };
                    self.calls.insert(event.tid, request);
                }
                None
            }
            HostEvent::Exit => {
                let done = self.calls.remove(&event.tid)?;
                Some(Ended::Done(done.completed(now)))
            }
            // What a kernel thread issues may be of any process that has the file.
            HostEvent::OnDevice(Checkpoint::HostIssue, mark) => {
                let is_own = !event.interrupt && host.threads.contains(&event.tid);
                if is_own && !self.calls.contains_key(&event.tid) {
                    // One that spans two extents of the file is known by the first.
                    let request = host.in_file(mark).find_map(|mark| submitted(mark, now))?;
                    self.submitted.insert(request.offset, request);
                }
                None
            }
            HostEvent::OnDevice(Checkpoint::HostComplete, mark) => {
                let mut places = host.in_file(mark).filter_map(|mark| mark.offset);
                let done = places.find_map(|offset| self.submitted.remove(&offset))?;
                Some(Ended::Done(done.completed(now)))
            }
            _ => None,
        }
    }

    /// When the oldest began.
    pub fn oldest(&self) -> Option<u64> {
        let requests = self.calls.values().chain(self.submitted.values());
        requests.map(|request| request.issue.at).min()
    }
}

/// The interrupt by which a thread of the VMM tells the guest.
enum Interrupt {
    /// Delivered by the thread, at this time.
    Delivered(u64),
    /// Left to a worker of the kernel.
    Left(deferred::Interrupt),
}

/// Makes a request from the range that the host's block layer issues.
fn submitted(mark: Mark, now: vmtax_trace::Moment) -> Option<GuestRequest> {
    Some(GuestRequest {
        offset: mark.offset?,
        bytes: mark.bytes,
        ..GuestRequest::new(mark.kind.unwrap_or(RequestKind::Other), now)
    })
}

impl Follow<'_> {
    /// The checkpoints of a request that began with a system call of the VMM. `part` gets the length that the device shows.
    pub fn call_path(&self, part: &mut GuestRequest) -> Result<RequestPath, Reason> {
        let (issue, done) = (part.issue, part.complete.at);
        let found = self.host.call_until(issue.tid, issue.at);
        let (enter, call) = found.ok_or(Reason::Missing(Checkpoint::HostCall))?;
        let mut path = RequestPath::new();
        path.set_thread(Checkpoint::HostCall, enter, issue.tid);
        let lasts = call.kind.transfers().is_some();
        if lasts {
            self.issued_in(issue.tid, enter..done, part, &mut path);
        } else {
            path.set_thread(Checkpoint::HostIssue, issue.at, issue.tid);
            path.set(Checkpoint::HostComplete, done, PassedBy::Host);
        }
        self.kicked_before(issue.tid, enter, &mut path);
        if let Some((reaped, reaper)) = self.reaped_by(issue.tid, call, done, &path) {
            path.set_thread(Checkpoint::QemuReap, reaped, reaper);
            self.delivered(reaped, reaper, &mut path);
        }
        path.in_order(0)
    }

    /// The part of a call that the host's device takes: from the first range of the disk that its thread issues meanwhile, to
    /// the last of them that completes. There is none where the page cache answers.
    fn issued_in(
        &self,
        tid: i32,
        call: std::ops::Range<u64>,
        part: &mut GuestRequest,
        path: &mut RequestPath,
    ) {
        let passed = &self.host.passed;
        let issues: Vec<(u64, Mark)> = passed
            .within(Checkpoint::HostIssue, call.start, call.end)
            .filter(|(_, passing)| passing.tid == tid)
            .map(|(at, passing)| (at, passing.mark))
            .collect();
        let Some((first, _)) = issues.first() else {
            return;
        };
        path.set_thread(Checkpoint::HostIssue, *first, tid);
        let is_own = |of: &Mark| issues.iter().any(|(_, own)| own.offset == of.offset);
        let completes = passed.within(Checkpoint::HostComplete, *first, call.end);
        if let Some((at, _)) = completes.filter(|(_, done)| is_own(&done.mark)).last() {
            path.set(Checkpoint::HostComplete, at, PassedBy::Host);
        }
        part.bytes = issues.iter().map(|(_, own)| own.bytes).sum();
    }

    /// From the vCPU's kick to the call that `tid` enters: the thread returned from its wait because of it, or another did and
    /// woke it. A thread that has made another call of the disk's since found this request by itself, after an unknown time.
    fn kicked_before(&self, tid: i32, enter: u64, path: &mut RequestPath) {
        let is_new = |since: u64| {
            let mut between = self.host.calls_within(tid, since, enter.saturating_sub(1));
            !between.any(|(_, call)| self.is_of_disk(call))
        };
        if let Some(woke) = self.host.woke(tid, 0, enter) {
            if is_new(woke) {
                self.woken(tid, woke, path);
            }
            return;
        }
        let Some((at, by)) = self.host.woken_by(tid, enter).filter(|(at, _)| is_new(*at)) else {
            return;
        };
        if self.host.vcpus.contains(&by) {
            path.set_thread(Checkpoint::KvmNotify, at, by);
            return;
        }
        path.set_thread(Checkpoint::QemuSubmit, at, by);
        if let Some(woke) = self.host.woke(by, 0, at) {
            // With another kick since, whether this request came with the first is unknown.
            let kicks = self.host.passed.within(Checkpoint::KvmNotify, woke, at);
            if kicks.count() == 0 {
                self.woken(by, woke, path);
            }
        }
    }

    /// When the completion reached a thread of the VMM, and which: the one that handed the request to its caller, or the caller
    /// that went on meanwhile, when it returns from its wait; a caller whose own call lasted so long, when that returns.
    fn reaped_by(
        &self,
        caller: i32,
        call: &Call,
        done: u64,
        path: &RequestPath,
    ) -> Option<(u64, i32)> {
        let until = done.saturating_add(self.params.slack);
        let handed = path.thread(Checkpoint::QemuSubmit).map(|(_, by)| by);
        if handed.is_none() && call.kind.transfers().is_some() {
            return Some((done, caller));
        }
        let reaper = handed.unwrap_or(caller);
        let woke = self.host.woke_first(reaper, done, until);
        // One that was done before its submission returned may be told at once.
        let returned = call.exit.filter(|exit| handed.is_none() && *exit >= done);
        let at_once = returned.filter(|exit| {
            self.interrupt(*exit, woke.unwrap_or(until), reaper)
                .is_some()
        });
        Some((at_once.or(woke)?, reaper))
    }

    /// To the interrupt that a thread delivers from `from` on, before it waits again. Without one the guest had not asked for it.
    fn delivered(&self, from: u64, tid: i32, path: &mut RequestPath) {
        let until = from.saturating_add(self.params.slack);
        let waits = self.host.woke_after(tid, from).unwrap_or(until).min(until);
        match self.interrupt(from, waits, tid) {
            Some(Interrupt::Delivered(at)) => path.set_thread(Checkpoint::Inject, at, tid),
            Some(Interrupt::Left(interrupt)) => {
                // Of one that was on its way already, no event shows that the thread asked for it again.
                if interrupt.queued >= from {
                    path.set_thread(Checkpoint::QemuNotify, interrupt.queued, tid);
                }
                if let Some((at, worker)) = interrupt.begun {
                    path.set_thread(Checkpoint::Inject, at, worker);
                }
            }
            None => {}
        }
    }

    /// The first interrupt that a thread delivers, or leaves to a worker of the kernel, from `from` up to and with `to`.
    fn interrupt(&self, from: u64, to: u64, tid: i32) -> Option<Interrupt> {
        let delivered = self
            .host
            .first_by(Checkpoint::Inject, from, to, |by| by == tid);
        let left = self.host.deferred.first(tid, from, to);
        match (delivered, left) {
            (Some((at, _)), left) if left.is_none_or(|left| at < left.queued) => {
                Some(Interrupt::Delivered(at))
            }
            (_, left) => left.map(Interrupt::Left),
        }
    }

    /// Returns true for a call that transfers, flushes or submits, of the disk as far as it says.
    fn is_of_disk(&self, call: &Call) -> bool {
        let transfers = call.kind.transfers().is_some() && self.host.is_of_disk(call.args[0]);
        transfers || call.kind.submits(&call.args)
    }
}
