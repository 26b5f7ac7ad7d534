//! The events that were recorded lately, and what each cost the thread that passed it.

use crate::events::event::Event;
use crate::request::RecordedEvents;
use std::collections::HashMap;
use vmtax_model::{EventCost, EventCosts, EventKind};
use vmtax_trace::{EventWindow, Sched};

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
            costs: EventCosts::of(costs),
            mhz,
            ..RecordedWindow::default()
        }
    }

    pub fn take<W>(&mut self, event: &Event<W>, sched: Option<Sched>) {
        let Some(costs) = self.costs else { return };
        let about = sched.map(|sched| match sched {
            Sched::Switch { next, .. } => next,
            Sched::Waking { tid } => tid,
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
        let &Event {
            at,
            cpu,
            tid,
            interrupt,
            kind,
            ..
        } = event;
        self.events.push(
            at,
            Recorded {
                cpu,
                tid,
                interrupt,
                about,
                kind,
                ticks,
            },
        );
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

    /// Forgets what was before `at`.
    pub fn forget(&mut self, at: u64) {
        self.events.forget(at);
    }
}

/// The kernel's own thread for a CPU that has nothing to do.
const IDLE: i32 = 0;
