//! States of one kernel's threads over time, from its scheduler's events: running, runnable, sleeping.

use super::{Leaves, Sched};
use std::collections::{HashMap, VecDeque};

/// Where and when an event was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Time of the event, ticks.
    pub at: u64,
    /// On which CPU.
    pub cpu: u32,
    /// The current thread.
    pub tid: i32,
    /// In an interrupt, so that the current thread has nothing to do with it.
    pub interrupt: bool,
}

/// State of a thread from some moment on; `S` says why one sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadState<S> {
    /// On a CPU.
    Running,
    /// In a run queue: preempted, or woken.
    Runnable {
        /// Who woke it; `None` where it was preempted.
        waker: Option<Waker>,
        /// The CPU had nothing else to do: what takes time is its own waking up.
        idle: bool,
    },
    /// Until it is woken.
    Sleeping(S),
}

/// Who woke a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waker {
    /// The thread; `None`: an interrupt did.
    pub tid: Option<i32>,
    /// On which CPU.
    pub cpu: u32,
}

/// The kernel's own thread for a CPU that has nothing to do.
const IDLE: i32 = 0;

#[derive(Debug)]
struct History<S> {
    /// Each state until the next, with the CPU that was told.
    states: EventWindow<(ThreadState<S>, u32)>,
    /// A waking that came before the thread had left its CPU: it counts if no other comes until it is back.
    early: Option<Waker>,
}

impl<S> History<S> {
    /// It is on a CPU, which was idle or not: whether it had been woken. A waking that came before it had left its CPU is what
    /// ended its sleep.
    fn was_woken(&mut self, from_idle: bool) -> bool {
        let waker = self.early.take();
        let Some((_, (state, _))) = self.states.last_mut() else {
            return false;
        };
        let waker = match *state {
            ThreadState::Sleeping(_) => waker,
            ThreadState::Runnable { waker, .. } => waker,
            ThreadState::Running => None,
        };
        if waker.is_some() {
            let idle = from_idle;
            *state = ThreadState::Runnable { waker, idle };
        }
        waker.is_some()
    }

    /// It is woken: at once, or once it has left its CPU.
    fn wake(&mut self, at: u64, cpu: u32, waker: Waker) {
        match self.states.last() {
            Some((_, (ThreadState::Running, _))) => self.early = Some(waker),
            Some((_, (ThreadState::Runnable { .. }, _))) => {}
            Some((_, (ThreadState::Sleeping(_), _))) | None => {
                self.early = None;
                let state = ThreadState::Runnable {
                    waker: Some(waker),
                    idle: false,
                };
                self.states.push(at, (state, cpu));
            }
        }
    }

    /// It is on a CPU; if no event said so and it was woken before, that CPU was idle, else an event would have.
    fn on_cpu(&mut self, at: u64, cpu: u32) {
        let runs = matches!(self.states.last(), Some((_, (ThreadState::Running, _))));
        if !runs && self.was_woken(true) {
            self.states.push(at, (ThreadState::Running, cpu));
        }
    }
}

impl<S> Default for History<S> {
    fn default() -> Self {
        History {
            states: EventWindow::default(),
            early: None,
        }
    }
}

/// The threads of one kernel that matter, each with what it did lately.
#[derive(Debug)]
pub struct SchedTimeline<S>(HashMap<i32, History<S>>);

impl<S> Default for SchedTimeline<S> {
    fn default() -> Self {
        SchedTimeline(HashMap::new())
    }
}

impl<S: Copy> SchedTimeline<S> {
    /// Takes an event. `followed` says which threads matter, `sleeps` why one sleeps from now on, or that it ended.
    pub fn take(
        &mut self,
        moment: Moment,
        what: Sched,
        followed: impl Fn(i32) -> bool,
        sleeps: impl Fn(i32, Leaves) -> S,
    ) {
        let Moment { at, cpu, .. } = moment;
        match what {
            Sched::Switch { prev, leaves, next } => {
                if followed(prev) {
                    let thread = self.0.entry(prev).or_default();
                    thread.on_cpu(at, cpu);
                    let state = match leaves {
                        Leaves::Runnable => ThreadState::Runnable {
                            waker: None,
                            idle: false,
                        },
                        Leaves::Sleeping | Leaves::Ended => {
                            ThreadState::Sleeping(sleeps(prev, leaves))
                        }
                    };
                    thread.states.push(at, (state, cpu));
                }
                if followed(next) {
                    let thread = self.0.entry(next).or_default();
                    thread.was_woken(prev == IDLE);
                    thread.states.push(at, (ThreadState::Running, cpu));
                }
            }
            Sched::Waking { tid } if followed(tid) => {
                let waker = Waker {
                    tid: (!moment.interrupt).then_some(moment.tid),
                    cpu,
                };
                self.0.entry(tid).or_default().wake(at, cpu, waker);
            }
            Sched::Waking { .. } => {}
        }
    }

    /// Sets the state of a thread from `at` on, where it is known from another source.
    pub fn set(&mut self, tid: i32, at: u64, cpu: u32, state: ThreadState<S>) {
        self.0.entry(tid).or_default().states.push(at, (state, cpu));
    }

    /// A thread that was woken is seen at work, and no event said that it was switched to: some kernels do not say that
    /// where the CPU was idle (6.18 is one).
    pub fn at_work(&mut self, tid: i32, at: u64, cpu: u32) {
        let Some(thread) = self.0.get_mut(&tid) else {
            return;
        };
        thread.on_cpu(at, cpu);
        // Whoever works after an early waking did not leave its CPU at all.
        thread.early = None;
    }

    /// Returns true if anything is known of a thread.
    pub fn knows(&self, tid: i32) -> bool {
        self.0.contains_key(&tid)
    }

    /// The state of a thread right before a moment, since when, and the CPU that was told.
    pub fn before(&self, tid: i32, at: u64) -> Option<(u64, ThreadState<S>, u32)> {
        let (since, &(state, cpu)) = self.0.get(&tid)?.states.before(at).next()?;
        Some((since, state, cpu))
    }

    /// Returns the present state of a thread; `None` if nothing is known of it.
    pub fn now(&self, tid: i32) -> Option<ThreadState<S>> {
        self.0
            .get(&tid)?
            .states
            .last()
            .map(|(_, (state, _))| *state)
    }

    /// Takes out the oldest state of a thread that is over: from when, until when.
    pub fn over(&mut self, tid: i32) -> Option<(ThreadState<S>, u64, u64)> {
        let (begin, (state, _), end) = self.0.get_mut(&tid)?.states.pop_over()?;
        Some((state, begin, end))
    }

    /// Forgets what was over before `at`.
    pub fn forget(&mut self, at: u64) {
        self.0
            .values_mut()
            .for_each(|thread| thread.states.forget_but_one(at));
    }

    /// Returns the number of states that it remembers, over all threads.
    pub fn remembers(&self) -> usize {
        self.0.values().map(|thread| thread.states.len()).sum()
    }
}

/// Events of one kind, each with its time; the oldest are forgotten.
#[derive(Debug, Clone)]
pub struct EventWindow<T>(VecDeque<(u64, T)>);

impl<T> Default for EventWindow<T> {
    fn default() -> Self {
        EventWindow(VecDeque::new())
    }
}

impl<T> EventWindow<T> {
    /// Adds an event that is no earlier than those before it.
    pub fn push(&mut self, at: u64, what: T) {
        self.0.push_back((at, what));
    }

    /// Returns the latest event with its time; `None` if there is none.
    pub fn last(&self) -> Option<(u64, &T)> {
        self.0.back().map(|(at, what)| (*at, what))
    }

    /// The latest, to change.
    pub fn last_mut(&mut self) -> Option<(u64, &mut T)> {
        self.0.back_mut().map(|(at, what)| (*at, what))
    }

    /// Latest first, to change.
    pub fn latest_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().rev().map(|(_, what)| what)
    }

    fn index(&self, at: u64) -> usize {
        self.0.partition_point(|(t, _)| *t < at)
    }

    /// Oldest first, from `at` on.
    pub fn from(&self, at: u64) -> impl Iterator<Item = (u64, &T)> {
        self.0.range(self.index(at)..).map(|(t, what)| (*t, what))
    }

    /// Oldest first, from `from` up to and with `to`.
    pub fn within(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, &T)> {
        self.from(from).take_while(move |(at, _)| *at <= to)
    }

    /// The first after a cause at `at`, up to and with `until`; where there is none, the last before it, as another clock
    /// may have it that agrees within `bound`.
    pub fn caused(&self, at: u64, until: u64, bound: u64) -> Option<(u64, &T)> {
        let earliest = at.saturating_sub(bound);
        self.within(at, until).next().or_else(|| {
            self.before(at)
                .next()
                .filter(|(t, _)| *t >= earliest && *t <= until)
        })
    }

    /// Latest first, before `at`.
    pub fn before(&self, at: u64) -> impl Iterator<Item = (u64, &T)> {
        self.0
            .range(..self.index(at))
            .rev()
            .map(|(t, what)| (*t, what))
    }

    /// Latest first, up to and with `at`.
    pub fn until(&self, at: u64) -> impl Iterator<Item = (u64, &T)> {
        self.before(at.saturating_add(1))
    }

    /// Returns the number of events that it remembers.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks for that")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes the oldest out, with the time of the one after it; `None` while that is not there.
    pub fn pop_over(&mut self) -> Option<(u64, T, u64)> {
        let end = self.0.get(1)?.0;
        self.0.pop_front().map(|(begin, what)| (begin, what, end))
    }

    /// Forgets what was before `at`.
    pub fn forget(&mut self, at: u64) {
        while self.0.front().is_some_and(|(t, _)| *t < at) {
            self.0.pop_front();
        }
    }

    /// Forgets what was before `at`, except the last: what lasts until the next.
    pub fn forget_but_one(&mut self, at: u64) {
        while self.0.get(1).is_some_and(|(t, _)| *t <= at) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREAD: i32 = 7;
    const SLEEPS: Sched = Sched::Switch {
        prev: THREAD,
        leaves: Leaves::Sleeping,
        next: IDLE,
    };

    fn comes(prev: i32) -> Sched {
        Sched::Switch {
            prev,
            leaves: Leaves::Runnable,
            next: THREAD,
        }
    }

    fn take(timeline: &mut SchedTimeline<()>, at: u64, tid: i32, what: Sched) {
        let moment = Moment {
            at,
            cpu: 1,
            tid,
            interrupt: tid == IDLE,
        };
        timeline.take(moment, what, |tid| tid == THREAD, |_, _| ());
    }

    /// The states of the thread, each with its length.
    fn states(timeline: &mut SchedTimeline<()>, end: u64) -> Vec<(ThreadState<()>, u64)> {
        timeline.set(THREAD, end, 0, ThreadState::Running);
        std::iter::from_fn(|| timeline.over(THREAD))
            .map(|(state, from, to)| (state, to - from))
            .collect()
    }

    fn woken_by(tid: Option<i32>, idle: bool) -> ThreadState<()> {
        ThreadState::Runnable {
            waker: Some(Waker { tid, cpu: 1 }),
            idle,
        }
    }

    #[test]
    fn an_idle_cpu_that_wakes_up_is_no_busy_one() {
        use ThreadState::{Running, Sleeping};
        let woken = |then: &dyn Fn(&mut SchedTimeline<()>)| {
            let mut timeline = SchedTimeline::default();
            take(&mut timeline, 10, THREAD, SLEEPS);
            take(&mut timeline, 20, IDLE, Sched::Waking { tid: THREAD });
            then(&mut timeline);
            states(&mut timeline, 40)
        };
        let expected_states = |idle| [(Sleeping(()), 10), (woken_by(None, idle), 15), (Running, 5)];
        assert_eq!(
            woken(&|t| take(t, 35, IDLE, comes(IDLE))),
            expected_states(true)
        );
        assert_eq!(woken(&|t| take(t, 35, 5, comes(5))), expected_states(false));
        // No event said that it was switched to, but it is seen at work.
        assert_eq!(woken(&|t| t.at_work(THREAD, 35, 1)), expected_states(true));
        assert_eq!(woken(&|_| ()).len(), 2);
    }

    #[test]
    fn a_waking_before_the_thread_has_left_its_cpu_counts_as_soon_as_it_has() {
        let mut timeline = SchedTimeline::default();
        take(&mut timeline, 0, 5, comes(5));
        take(&mut timeline, 8, 5, Sched::Waking { tid: THREAD });
        take(&mut timeline, 10, THREAD, SLEEPS);
        take(&mut timeline, 30, 5, comes(5));
        let running = ThreadState::Running;
        assert_eq!(
            states(&mut timeline, 31),
            [(running, 10), (woken_by(Some(5), false), 20), (running, 1)]
        );
    }

    #[test]
    fn one_that_was_woken_early_is_back_when_it_is_seen_at_work() {
        use ThreadState::{Running, Sleeping};
        let woken = |then: &dyn Fn(&mut SchedTimeline<()>)| {
            let mut timeline = SchedTimeline::default();
            take(&mut timeline, 0, IDLE, comes(IDLE));
            take(&mut timeline, 8, 5, Sched::Waking { tid: THREAD });
            then(&mut timeline);
            states(&mut timeline, 50)
        };
        // No event says that it was switched to.
        let left = woken(&|t| {
            take(t, 10, THREAD, SLEEPS);
            t.at_work(THREAD, 30, 1);
        });
        assert_eq!(
            left,
            [(Running, 10), (woken_by(Some(5), true), 20), (Running, 20)]
        );
        // Nothing was seen of it until it left again.
        let again = woken(&|t| {
            take(t, 10, THREAD, SLEEPS);
            take(t, 30, THREAD, SLEEPS);
            t.at_work(THREAD, 40, 1);
        });
        let was_back = [
            (Running, 10),
            (woken_by(Some(5), true), 20),
            (Running, 0),
            (Sleeping(()), 20),
        ];
        assert_eq!(again, was_back);
        // It went on, and left its CPU later for another reason.
        let stayed = woken(&|t| {
            t.at_work(THREAD, 9, 1);
            take(t, 10, THREAD, SLEEPS);
            t.at_work(THREAD, 30, 1);
        });
        assert_eq!(stayed, [(Running, 10), (Sleeping(()), 40)]);
    }

    #[test]
    fn only_a_thread_that_was_woken_is_put_to_work() {
        let mut timeline: SchedTimeline<()> = SchedTimeline::default();
        timeline.at_work(THREAD, 5, 0);
        assert_eq!(timeline.remembers(), 0);
    }
}
