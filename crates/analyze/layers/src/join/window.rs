//! The events of one side lately: by checkpoint, and what each cost the thread that passed it; and the critical path, from
//! the end of an interval back along who woke whom.

use crate::RecordedEvents;
use crate::events::Event;
use std::collections::HashMap;
use vmtax_findings::EventCosts;
use vmtax_model::{Checkpoint, EventCost, EventKind};
use vmtax_trace::{EventWindow, Sched, SchedTimeline, ThreadState};

#[derive(Debug)]
pub(crate) struct Passed<T> {
    /// Events of each checkpoint, at the index of the checkpoint.
    windows: Vec<EventWindow<T>>,
    seen: [bool; Checkpoint::COUNT],
}

impl<T> Default for Passed<T> {
    fn default() -> Self {
        let windows = Checkpoint::ALL
            .iter()
            .map(|_| EventWindow::default())
            .collect();
        Passed {
            windows,
            seen: [false; Checkpoint::COUNT],
        }
    }
}

impl<T> Passed<T> {
    pub fn push(&mut self, checkpoint: Checkpoint, at: u64, what: T) {
        self.seen[checkpoint as usize] = true;
        self.windows[checkpoint as usize].push(at, what);
    }

    pub fn at(&self, checkpoint: Checkpoint) -> &EventWindow<T> {
        &self.windows[checkpoint as usize]
    }

    /// Events of a checkpoint from `from` up to and with `to`, oldest first.
    pub fn within(
        &self,
        checkpoint: Checkpoint,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = (u64, &T)> {
        self.at(checkpoint).within(from, to)
    }

    /// Events of a checkpoint from `to` back to and with `from`, latest first.
    pub fn back(
        &self,
        checkpoint: Checkpoint,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = (u64, &T)> {
        self.at(checkpoint)
            .until(to)
            .take_while(move |(at, _)| *at >= from)
    }

    /// Returns true if the checkpoint was ever observed.
    pub fn seen(&self, checkpoint: Checkpoint) -> bool {
        self.seen[checkpoint as usize]
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.windows.iter().map(EventWindow::len).sum()
    }

    /// Forgets what was before `at`.
    pub fn forget(&mut self, at: u64) {
        self.windows.iter_mut().for_each(|window| window.forget(at));
    }
}

/// The kernel's own thread for a CPU that has nothing to do.
const IDLE: i32 = 0;

/// A recorded event.
#[derive(Debug, Clone, Copy)]
struct Recorded {
    cpu: u32,
    tid: i32,
    interrupt: bool,
    /// The thread that is woken, or switched to: it does not go on before the event is recorded.
    about: Option<i32>,
    kind: EventKind,
    ticks: u32,
}

/// The events of one side; none where it is not known what they cost.
#[derive(Debug, Default)]
pub(crate) struct RecordedWindow {
    costs: Option<EventCosts>,
    /// Ticks per microsecond.
    mhz: f64,
    events: EventWindow<Recorded>,
    /// By thread, a bit for each kind of which it passed an event since it slept.
    passed: HashMap<i32, u8>,
}

impl RecordedWindow {
    pub fn new(costs: &[EventCost], mhz: f64) -> RecordedWindow {
        RecordedWindow {
            costs: EventCosts::medians(costs),
            mhz,
            ..RecordedWindow::default()
        }
    }

    pub fn take<W>(&mut self, event: &Event<W>, sched: Option<Sched>) {
        let Some(costs) = self.costs else { return };
        let about = sched.map(|sched| match sched {
            Sched::Switch { next: tid, .. } | Sched::Waking { tid } => tid,
        });
        if let Some(about) = about {
            self.passed.remove(&about);
            // An interrupt of an idle CPU ends with a wake-up.
            self.passed.remove(&IDLE);
        }
        let passed = self.passed.entry(event.tid).or_default();
        let bit = 1 << event.kind as u8;
        // Threads are woken, and switched to, once each time.
        let first = event.kind == EventKind::Schedule || *passed & bit == 0;
        *passed |= bit;
        let ticks = (costs.ns(event.kind, first) * self.mhz / 1000.0) as u32;
        let recorded = Recorded {
            cpu: event.cpu,
            tid: event.tid,
            interrupt: event.interrupt,
            about,
            kind: event.kind,
            ticks,
        };
        self.events.push(event.at, recorded);
    }

    /// The events that a thread passed, or waited for, in a part of a path. An event at its edge is in the part that it
    /// delays: a tracepoint is stamped before it is recorded, so that is the part that it begins; a probe's trap comes
    /// before its stamp. `tid` is `None` for the disk's part, which an event begins.
    pub fn on_path(&self, tid: Option<i32>, cpu: u32, from: u64, to: u64) -> RecordedEvents {
        let mine = |at: u64, event: &Recorded| {
            let edge = if matches!(event.kind, EventKind::Uprobe | EventKind::Kprobe) {
                to
            } else {
                from
            };
            let by = tid.is_some_and(|tid| {
                event.about == Some(tid) || (event.tid == tid && (tid != IDLE || event.cpu == cpu))
            });
            // A thread that sleeps goes on after an interrupt, which says nothing of it.
            if at == edge {
                by || tid.is_none() || event.interrupt
            } else {
                by && from < at && at < to
            }
        };
        let events = self
            .events
            .within(from, to)
            .filter(|(at, event)| mine(*at, event));
        let sum = events.fold(RecordedEvents::default(), |sum, (_, event)| {
            sum.and(RecordedEvents {
                count: 1,
                ticks: event.ticks,
            })
        });
        sum.within(to - from)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// The events of a step of a critical path, likewise.
    pub fn in_step(&self, step: PathStep) -> RecordedEvents {
        self.on_path(Some(step.tid), step.cpu, step.from, step.to)
    }

    /// Forgets what was before `at`.
    pub fn forget(&mut self, at: u64) {
        self.events.forget(at);
    }
}

/// Why a thread sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// For a lock.
    Lock,
    /// For anything else.
    Other,
}

/// A part of the path: what the thread did on whose work the end of an interval hung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PathStep {
    pub from: u64,
    pub to: u64,
    pub tid: i32,
    pub cpu: u32,
    pub state: ThreadState<Sleep>,
}

/// The critical path to `to`, where `tid` was at work on `cpu`, back to `from`: latest first, without a gap. A thread that
/// was woken by another leads on to that one; one that was woken by an interrupt, or by nobody known, slept. A wait for a
/// lock is that, whoever ended it.
pub(crate) fn critical_path(
    threads: &SchedTimeline<Sleep>,
    tid: i32,
    cpu: u32,
    from: u64,
    to: u64,
) -> Vec<PathStep> {
    let mut steps = Vec::new();
    let (mut tid, mut cpu, mut to) = (tid, cpu, to);
    while to > from {
        // Before its first event it can only have run: whatever else it did would end with one.
        let (since, state, at_cpu) =
            threads
                .before(tid, to)
                .unwrap_or((from, ThreadState::Running, cpu));
        // A sleeper is on no CPU: what matters is the one on which it was woken.
        cpu = if matches!(state, ThreadState::Sleeping(_)) {
            cpu
        } else {
            at_cpu
        };
        let since = since.max(from);
        steps.push(PathStep {
            from: since,
            to,
            tid,
            cpu,
            state,
        });
        // Each step begins before the one after it, so this ends.
        to = since;
        let ThreadState::Runnable {
            waker: Some(waker), ..
        } = state
        else {
            continue;
        };
        cpu = waker.cpu;
        let lock = matches!(
            threads.before(tid, to),
            Some((_, ThreadState::Sleeping(Sleep::Lock), _))
        );
        if !lock {
            tid = waker.tid.filter(|tid| threads.knows(*tid)).unwrap_or(tid);
        }
    }
    steps
}
