//! What the guest saw lately: its block requests from issue to completion, and what lies around them.

use super::critical_path::Sleep;
use super::passed::Passed;
use crate::disk::request::GuestRequest;
use crate::events::event::{Event, Guest};
use std::collections::HashMap;
use vmtax_trace::{EventWindow, Moment, SchedTimeline};

/// A system call of the workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub cpu: u32,
    pub tid: i32,
    pub exit: Option<(u64, u32)>,
}

#[derive(Debug, Default)]
pub(crate) struct GuestWindow {
    pub tasks: SchedTimeline<Sleep>,
    /// By entry.
    pub calls: EventWindow<Call>,
    pub passed: Passed<Moment>,
    /// Taken in and not issued, by offset. One that was merged with another is never issued.
    inserted: HashMap<u64, u64>,
    /// Issued and not complete, by offset: without the completion yet.
    under_way: HashMap<u64, GuestRequest>,
}

impl GuestWindow {
    /// Takes an event; gives the request that it completes.
    pub fn take(&mut self, event: &Event<Guest>) -> Option<GuestRequest> {
        let &Event { at, cpu, tid, what, .. } = event;
        let now = event.moment();
        match what {
            // 0 is every CPU's idle task at once.
            Guest::Sched(what) => self.tasks.take(now, what, |tid| tid != 0, |_, _| Sleep::Other),
            Guest::Enter => self.calls.push(at, Call { cpu, tid, exit: None }),
            Guest::Exit => {
                if let Some(call) = self.calls.latest_mut().find(|c| c.tid == tid) {
                    call.exit.get_or_insert((at, cpu));
                }
            }
            // A driver whose ring is full gives a request back, and it is issued again: the last time counts, but it
            // began when it was first there.
            Guest::Issue { offset, bytes, kind } => {
                let first = self.under_way.get(&offset).map(GuestRequest::begin);
                let inserted = self.inserted.remove(&offset).or(first);
                let part = GuestRequest { offset, bytes, kind, inserted, issue: now, complete: now };
                self.under_way.insert(offset, part);
            }
            Guest::Insert { offset } => _ = self.inserted.insert(offset, at),
            Guest::Complete { offset } => {
                let part = self.under_way.remove(&offset).map(|part| GuestRequest { complete: now, ..part })?;
                // What was merged with it is over, too.
                self.inserted.retain(|at, _| !part.overlaps(*at, 1));
                return Some(part);
            }
            Guest::Passes(checkpoint) => self.passed.push(checkpoint, at, now),
        }
        None
    }

    /// When the oldest request began that is under way, or that was taken in since `since` and may be.
    pub fn oldest(&self, since: u64) -> Option<u64> {
        let waiting = self.inserted.values().copied().filter(|at| *at >= since);
        self.under_way.values().map(GuestRequest::begin).chain(waiting).min()
    }

    #[cfg(test)]
    pub fn remembers(&self) -> usize {
        self.tasks.remembers() + self.calls.len() + self.passed.len() + self.under_way.len()
    }

    /// Forgets what was over before `at`.
    pub fn forget(&mut self, at: u64) {
        self.tasks.forget(at);
        self.calls.forget(at);
        self.passed.forget(at);
        self.inserted.retain(|_, inserted| *inserted >= at);
        self.under_way.retain(|_, part| part.issue.at >= at);
    }
}
