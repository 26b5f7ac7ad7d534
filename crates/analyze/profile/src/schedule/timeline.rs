//! Threads over time, from the scheduler's events and system calls in their order.

use std::collections::{BTreeMap, BTreeSet};
use vmtax_model::samples;
use vmtax_trace::{
    CallTimes, FUTEX, KernelEvent, Leaves, Moment, Sched, SchedTimeline, ThreadState,
};

/// Object that a thread is blocked on: a system call, and the futex if it is that one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockedOn {
    /// The call's number; none in a page fault and its like.
    pub call: Option<i64>,
    /// Address of the futex.
    pub futex: Option<u64>,
}

/// Why a thread is off its CPU, if it is not runnable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OffCpu {
    Blocked(BlockedOn),
    Ended,
}

/// State and times of a thread.
#[derive(Debug, Clone, Default)]
pub struct Thread {
    /// True if an event showed the thread's state; false if only the sample before did.
    observed: bool,
    /// The call it is in: number and first argument.
    call: Option<(i64, u64)>,
    /// Time on a CPU, ns.
    pub ran: u64,
    /// Time ready without one, ns.
    pub ready: u64,
    /// Number of times that the thread was blocked, and for how long, in ns, by what it was blocked on.
    pub on: BTreeMap<BlockedOn, (u64, u64)>,
}

/// Waits at a futex.
#[derive(Debug, Clone, Default)]
pub struct Futex {
    /// Number of times that a thread was blocked on it.
    pub waits: u64,
    /// Total time of the waits, in ns.
    pub waited: u64,
    /// The longest, ns.
    pub longest: u64,
    /// IDs of the threads that waited.
    pub waiters: BTreeSet<i32>,
    /// Who woke them by a call on it, and how often.
    pub wakers: BTreeMap<i32, u64>,
}

/// All threads of a process, and its futexes by address.
#[derive(Debug, Default)]
pub struct Timeline {
    /// Threads by number.
    pub threads: BTreeMap<i32, Thread>,
    /// Futexes by address.
    pub futexes: BTreeMap<u64, Futex>,
    /// The system calls, by number, ns.
    pub calls: CallTimes<i64>,
    sched: SchedTimeline<OffCpu>,
}

impl Timeline {
    /// Adds a thread as the kernel said before the first event that it is.
    pub fn add(&mut self, tid: i32, state: samples::ThreadState, at: u64) {
        let call = match state {
            samples::ThreadState::Waits {
                call: Some(call),
                argument,
                ..
            } => Some((call, argument)),
            _ => None,
        };
        if let Some((call, _)) = call {
            self.calls.inside(tid, call);
        }
        let state = match state {
            samples::ThreadState::Runs => ThreadState::Running,
            samples::ThreadState::Waits { .. } => ThreadState::Sleeping(OffCpu::Blocked(on(call))),
        };
        self.sched.set(tid, at, 0, state);
        self.threads.insert(
            tid,
            Thread {
                call,
                ..Thread::default()
            },
        );
    }

    /// Takes the next event, of thread `tid`.
    pub fn take(&mut self, at: u64, tid: i32, what: KernelEvent<'_>) {
        match what {
            KernelEvent::Sched(what) => self.scheduled(at, tid, what),
            KernelEvent::SysEnter {
                nr,
                args: [argument, ..],
            } => {
                let Some(thread) = self.running(tid, at) else {
                    return;
                };
                thread.call = Some((nr, argument));
                self.calls.enter(tid, at, nr);
            }
            KernelEvent::SysExit { .. } => {
                let Some(thread) = self.running(tid, at) else {
                    return;
                };
                thread.call = None;
                self.calls.exit(tid, at);
            }
            _ => {}
        }
    }

    fn scheduled(&mut self, at: u64, tid: i32, what: Sched) {
        let call = |tid: i32| self.threads.get(&tid).and_then(|thread| thread.call);
        if let Sched::Waking { tid: woken } = what {
            // Who wakes a thread by a call on the futex that it waits for.
            if let (Some(ThreadState::Sleeping(OffCpu::Blocked(on))), Some((FUTEX, address))) =
                (self.sched.now(woken), call(tid))
            {
                if on.futex == Some(address) {
                    *self
                        .futexes
                        .entry(address)
                        .or_default()
                        .wakers
                        .entry(tid)
                        .or_default() += 1;
                }
            }
        }
        let off = |tid, leaves| match leaves {
            Leaves::Ended => OffCpu::Ended,
            Leaves::Runnable | Leaves::Sleeping => OffCpu::Blocked(on(call(tid))),
        };
        let moment = Moment {
            at,
            cpu: 0,
            tid,
            interrupt: false,
        };
        self.sched
            .take(moment, what, |tid| self.threads.contains_key(&tid), off);
        match what {
            Sched::Switch { prev, next, .. } => {
                [prev, next].into_iter().for_each(|tid| self.count(tid))
            }
            Sched::Waking { tid } => self.count(tid),
        }
    }

    /// Counts what each thread does at the end.
    pub fn end(&mut self, at: u64) {
        let all: Vec<i32> = self.threads.keys().copied().collect();
        for tid in all {
            if let Some(state) = self.sched.now(tid) {
                self.goes_on(tid, at, state);
            }
        }
    }

    /// The thread that makes a system call, which it does on a CPU.
    fn running(&mut self, tid: i32, at: u64) -> Option<&mut Thread> {
        if self.sched.now(tid)? != ThreadState::Running {
            self.goes_on(tid, at, ThreadState::Running); // how it came there was not seen
        }
        self.threads.get_mut(&tid)
    }

    fn goes_on(&mut self, tid: i32, at: u64, state: ThreadState<OffCpu>) {
        self.sched.set(tid, at, 0, state);
        self.count(tid);
    }

    /// Counts what is over of a thread's states.
    fn count(&mut self, tid: i32) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        while let Some((state, begin, end)) = self.sched.over(tid) {
            let time = end.saturating_sub(begin);
            let runs_on = self.sched.now(tid) == Some(ThreadState::Running);
            match state {
                // One that was said to run, and is given a CPU, waited for that.
                ThreadState::Running if !thread.observed && runs_on => thread.ready += time,
                ThreadState::Running => thread.ran += time,
                ThreadState::Runnable { .. } => thread.ready += time,
                ThreadState::Sleeping(OffCpu::Blocked(on)) => {
                    let sum = thread.on.entry(on).or_default();
                    *sum = (sum.0 + 1, sum.1 + time);
                    if let Some(address) = on.futex {
                        let futex = self.futexes.entry(address).or_default();
                        futex.waits += 1;
                        futex.waited += time;
                        futex.longest = futex.longest.max(time);
                        futex.waiters.insert(tid);
                    }
                }
                ThreadState::Sleeping(OffCpu::Ended) => {}
            }
            thread.observed = true;
        }
    }
}

fn on(call: Option<(i64, u64)>) -> BlockedOn {
    let futex = call
        .filter(|(call, _)| *call == FUTEX)
        .map(|(_, address)| address);
    BlockedOn {
        call: call.map(|(call, _)| call),
        futex,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vmtax_trace::CallPhase;

    const WAITS: samples::ThreadState = samples::ThreadState::Waits {
        call: Some(FUTEX),
        argument: 0x100,
        sp: 0,
        ip: 0,
    };

    const EXIT: KernelEvent<'_> = KernelEvent::SysExit { single: None };

    fn enter(nr: i64, argument: u64) -> KernelEvent<'static> {
        KernelEvent::SysEnter {
            nr,
            args: [argument, 0, 0, 0],
        }
    }

    fn switch(prev: i32, leaves: Leaves, next: i32) -> KernelEvent<'static> {
        KernelEvent::Sched(Sched::Switch { prev, leaves, next })
    }

    #[test]
    fn a_lock_that_goes_from_one_to_the_other() {
        let mut line = Timeline::default();
        line.add(1, samples::ThreadState::Runs, 0);
        line.add(2, WAITS, 0);
        line.add(3, WAITS, 0);
        line.take(10, 1, enter(FUTEX, 0x100));
        line.take(12, 1, KernelEvent::Sched(Sched::Waking { tid: 2 }));
        line.take(13, 1, EXIT);
        line.take(15, 1, switch(1, Leaves::Runnable, 2));
        line.take(16, 2, EXIT);
        line.take(20, 2, enter(FUTEX, 0x200));
        line.take(21, 2, switch(2, Leaves::Sleeping, 1));
        line.end(31);
        let [one, two, three] = [1, 2, 3].map(|tid| &line.threads[&tid]);
        assert_eq!((one.ran, one.ready), (15 + 10, 6));
        assert_eq!((two.ran, two.ready), (6, 3));
        let blocked_on = |address| BlockedOn {
            call: Some(FUTEX),
            futex: Some(address),
        };
        assert_eq!(
            (two.on[&blocked_on(0x100)], two.on[&blocked_on(0x200)]),
            ((1, 12), (1, 10))
        );
        assert_eq!(three.on[&blocked_on(0x100)], (1, 31));
        // Of the call that began before, only what came after it is known.
        let row = |tid, after| {
            line.calls
                .times
                .get(&(tid, CallPhase { call: FUTEX, after }))
                .map(|m| m.row(String::new()).total_ns)
        };
        assert_eq!(
            (row(1, false), row(1, true), row(2, false), row(2, true)),
            (Some(3.0), None, None, Some(4.0))
        );
        let lock = &line.futexes[&0x100];
        assert_eq!(
            (lock.waits, lock.waited, lock.longest, lock.wakers[&1]),
            (2, 43, 31, 1)
        );
        assert_eq!(lock.waiters, BTreeSet::from([2, 3]));
    }

    #[test]
    fn ready_at_first_and_ended_at_last() {
        let mut line = Timeline::default();
        line.add(1, samples::ThreadState::Runs, 0);
        line.take(7, 0, switch(0, Leaves::Runnable, 1));
        line.take(9, 1, switch(1, Leaves::Ended, 0));
        line.end(100);
        assert_eq!((line.threads[&1].ready, line.threads[&1].ran), (7, 2));
    }

    proptest! {
        #[test]
        fn all_time_is_counted_once(events in proptest::collection::vec((0u64..50, 1i32..4, 0u8..6, 1i32..4), 0..60)) {
            let mut line = Timeline::default();
            line.add(1, samples::ThreadState::Runs, 0);
            line.add(2, WAITS, 0);
            line.add(3, samples::ThreadState::Runs, 0);
            let mut now = 0;
            for (later, tid, kind, other) in events {
                now += later;
                line.take(now, tid, match kind {
                    0 => switch(tid, Leaves::Runnable, other),
                    1 => switch(tid, Leaves::Sleeping, other),
                    2 => KernelEvent::Sched(Sched::Waking { tid: other }),
                    3 => enter(FUTEX, 0x300),
                    4 => enter(1, 2),
                    _ => EXIT,
                });
            }
            line.end(now + 5);
            for thread in line.threads.values() {
                let blocked: u64 = thread.on.values().map(|(_, time)| time).sum();
                prop_assert_eq!(thread.ran + thread.ready + blocked, now + 5);
            }
        }
    }
}
