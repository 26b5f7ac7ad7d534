//! What the tasks of one kernel did, from its scheduler's events, and the way back along who woke whom.

use crate::event::{Event, Sched};
use crate::past::Past;
use std::collections::HashMap;

/// What a task does from some moment on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    On,
    /// Thrown off its processor, or woken.
    Ready {
        woken: Option<Waker>,
    },
    Asleep {
        lock: bool,
    },
}

/// Who woke a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waker {
    /// `None`: an interrupt did.
    tid: Option<i32>,
    cpu: u32,
}

#[derive(Debug, Default)]
struct Task {
    past: Past<(Doing, u32)>,
    /// A waking that came before the task had left its processor: it counts if no other comes until it is back.
    early: Option<Waker>,
}

/// The tasks of one kernel that matter.
#[derive(Debug, Default)]
pub(crate) struct Tasks(HashMap<i32, Task>);

/// A part of the critical path: what the task did on whose work the end of a stretch hung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub from: u64,
    pub to: u64,
    pub tid: i32,
    pub cpu: u32,
    pub doing: Doing,
}

impl Tasks {
    /// Takes an event. `followed` says which tasks matter, `locked` whether one sleeps for a lock from now on.
    pub fn take(&mut self, event: &Event<Sched>, followed: impl Fn(i32) -> bool, locked: impl Fn(i32) -> bool) {
        let (at, cpu) = (event.at, event.cpu);
        match event.what {
            Sched::Switch { prev, preempted, next } => {
                if followed(prev) {
                    let doing =
                        if preempted { Doing::Ready { woken: None } } else { Doing::Asleep { lock: locked(prev) } };
                    self.0.entry(prev).or_default().past.push(at, (doing, cpu));
                }
                if followed(next) {
                    let task = self.0.entry(next).or_default();
                    if let (Some(woken), Some((_, (doing @ Doing::Asleep { .. }, _)))) =
                        (task.early, task.past.last_mut())
                    {
                        *doing = Doing::Ready { woken: Some(woken) };
                    }
                    task.early = None;
                    task.past.push(at, (Doing::On, cpu));
                }
            }
            Sched::Waking { tid } if followed(tid) => {
                let waker = Waker { tid: (!event.interrupt).then_some(event.tid), cpu };
                let task = self.0.entry(tid).or_default();
                match task.past.last_mut() {
                    Some((_, (Doing::On, _))) => task.early = Some(waker),
                    Some((_, (Doing::Ready { .. }, _))) => {}
                    Some((_, (Doing::Asleep { .. }, _))) | None => {
                        task.early = None;
                        task.past.push(at, (Doing::Ready { woken: Some(waker) }, cpu));
                    }
                }
            }
            Sched::Waking { .. } => {}
        }
    }

    /// The critical path to `to`, where `tid` was at work on `cpu`, back to `from`: latest first, without a gap. A task
    /// that was woken by another leads on to that one; one that was woken by an interrupt, or by nobody known, slept.
    /// A wait for a lock is that, whoever ended it.
    pub fn walk(&self, tid: i32, cpu: u32, from: u64, to: u64) -> Vec<Step> {
        let mut steps = Vec::new();
        let (mut tid, mut cpu, mut to) = (tid, cpu, to);
        while to > from {
            let Some((since, &(doing, at_cpu))) = self.0.get(&tid).and_then(|t| t.past.before(to).next()) else {
                // Before its first event it can only have run: whatever else it did would end with one.
                steps.push(Step { from, to, tid, cpu, doing: Doing::On });
                break;
            };
            // A sleeper is on no processor: what matters is the one on which it was woken.
            cpu = if matches!(doing, Doing::Asleep { .. }) { cpu } else { at_cpu };
            let since = since.max(from);
            steps.push(Step { from: since, to, tid, cpu, doing });
            // Each step begins before the one after it, so this ends.
            to = since;
            let Doing::Ready { woken: Some(waker) } = doing else { continue };
            cpu = waker.cpu;
            if !self.slept_for_lock(tid, to) {
                tid = waker.tid.filter(|t| self.0.contains_key(t)).unwrap_or(tid);
            }
        }
        steps
    }

    fn slept_for_lock(&self, tid: i32, until: u64) -> bool {
        let sleep = self.0.get(&tid).and_then(|t| t.past.before(until).next());
        matches!(sleep, Some((_, (Doing::Asleep { lock: true }, _))))
    }

    #[cfg(test)]
    pub fn remembers(&self) -> usize {
        self.0.values().map(|t| t.past.len()).sum()
    }

    /// Forgets what was over before `at`.
    pub fn forget(&mut self, at: u64) {
        for task in self.0.values_mut() {
            task.past.forget_but_one(at);
        }
    }
}
