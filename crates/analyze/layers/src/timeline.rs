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
        /// The processor had nothing else to do: what takes time is its own waking up.
        idle: bool,
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

/// The kernel's own task for a processor that has nothing to do.
const IDLE: i32 = 0;

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
                    let doing = if preempted {
                        Doing::Ready { woken: None, idle: false }
                    } else {
                        Doing::Asleep { lock: locked(prev) }
                    };
                    self.0.entry(prev).or_default().past.push(at, (doing, cpu));
                }
                if followed(next) {
                    let task = self.0.entry(next).or_default();
                    if let (Some(woken), Some((_, (doing @ Doing::Asleep { .. }, _)))) =
                        (task.early, task.past.last_mut())
                    {
                        *doing = Doing::Ready { woken: Some(woken), idle: false };
                    }
                    if let Some((_, (Doing::Ready { idle, woken: Some(_) }, _))) = task.past.last_mut() {
                        *idle = prev == IDLE;
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
                        task.past.push(at, (Doing::Ready { woken: Some(waker), idle: false }, cpu));
                    }
                }
            }
            Sched::Waking { .. } => {}
        }
    }

    /// A task that was woken is seen at work, and nothing told of the switch to it: some kernels do not where the
    /// processor was idle (6.18 is one).
    pub fn at_work(&mut self, tid: i32, at: u64, cpu: u32) {
        let Some(past) = self.0.get_mut(&tid).map(|task| &mut task.past) else { return };
        if let Some((_, (Doing::Ready { woken: Some(_), idle }, _))) = past.last_mut() {
            *idle = true;
            past.push(at, (Doing::On, cpu));
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
            let Doing::Ready { woken: Some(waker), .. } = doing else { continue };
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

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: i32 = 7;

    /// Asleep from 10, woken by an interrupt at 20; then what follows, and what the task did until 40.
    fn woken(current: i32, then: &dyn Fn(&mut Tasks)) -> Vec<(u64, Doing)> {
        let mut tasks = Tasks::default();
        let mut take = |at, tid, interrupt, what| {
            tasks.take(&Event { at, cpu: 1, tid, interrupt, what }, |tid| tid == TASK, |_| false);
        };
        take(10, TASK, false, Sched::Switch { prev: TASK, preempted: false, next: current });
        take(20, current, true, Sched::Waking { tid: TASK });
        then(&mut tasks);
        let steps = tasks.walk(TASK, 1, 10, 40);
        steps.iter().map(|s| (s.to - s.from, s.doing)).collect()
    }

    fn switch(tasks: &mut Tasks, prev: i32) {
        let what = Sched::Switch { prev, preempted: false, next: TASK };
        tasks.take(&Event { at: 35, cpu: 1, tid: prev, interrupt: false, what }, |tid| tid == TASK, |_| false);
    }

    #[test]
    fn an_idle_processor_that_wakes_is_told_from_a_busy_one() {
        let ready = |steps: Vec<(u64, Doing)>| match steps[..] {
            [(5, Doing::On), (15, Doing::Ready { idle, .. }), (10, Doing::Asleep { lock: false })] => idle,
            _ => panic!("{steps:?}"),
        };
        assert!(ready(woken(IDLE, &|tasks| switch(tasks, IDLE))));
        assert!(!ready(woken(5, &|tasks| switch(tasks, 5))));
        // The switch was not told, but the task is seen at work.
        assert!(ready(woken(IDLE, &|tasks| tasks.at_work(TASK, 35, 1))));
    }

    #[test]
    fn only_one_that_was_woken_is_put_to_work() {
        let mut tasks = Tasks::default();
        tasks.at_work(TASK, 5, 0);
        assert_eq!(tasks.remembers(), 0);
        assert_eq!(woken(IDLE, &|_| ()).len(), 2);
    }
}
