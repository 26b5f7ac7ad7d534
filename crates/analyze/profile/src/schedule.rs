//! Runs, waits and system calls of a process's threads, from the scheduler's events: each switch of a CPU, each
//! wake-up and each system call, not samples.

use crate::{ProfileError, waits};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::time::Duration;
use vmtax_findings::{
    BlockedOn, FutexWaits, NamedThread, ScheduleFindings, ThreadSchedule, WaitFor, Waker,
};
use vmtax_model::samples::{self, ScheduleFacts, WallClock};
use vmtax_trace::{
    CallPhase, CallTimes, Entry, FUTEX, Folder, KernelDecoder, KernelEvent, Leaves, Moment, Sched,
    SchedTimeline, ThreadState, call_rows, system_call_name,
};

/// Threads' runs, waits and system calls.
#[derive(Debug)]
pub struct Schedule {
    timeline: Timeline,
    facts: ScheduleFacts,
    /// Duration of the trace.
    time: Duration,
    /// Events that there was no room for.
    lost: u64,
}

impl Schedule {
    /// Reads the trace in a folder.
    ///
    /// # Errors
    /// [`ProfileError`] when it is damaged.
    pub fn read(folder: &Path, facts: ScheduleFacts) -> Result<Schedule, ProfileError> {
        let mut timeline = Timeline::default();
        facts
            .states
            .iter()
            .for_each(|(tid, state)| timeline.add(*tid, *state, facts.begin));
        let folder = Folder::open(folder)?;
        let lost: u64 = folder
            .stats()
            .iter()
            .map(|cpu| cpu.dropped + cpu.overrun + cpu.commit_overrun)
            .sum();
        let end = if lost == 0 {
            facts.end
        } else {
            whole(&folder, facts.end)?
        };
        let decoder = KernelDecoder::new(folder.formats());
        let mut events = folder.events()?;
        while let Some(entry) = events.next()? {
            let Entry::Event(event) = entry else { continue };
            if event.ticks > end {
                break;
            }
            // Threads that began meanwhile did so with their first event.
            if facts.names.contains_key(&event.pid) && !timeline.threads.contains_key(&event.pid) {
                timeline.add(event.pid, samples::ThreadState::Runs, event.ticks);
            }
            if let Some(what) = decoder.decode(&event) {
                timeline.take(event.ticks, event.pid, what);
            }
        }
        timeline.end(end);
        let time = Duration::from_nanos(end.saturating_sub(facts.begin));
        Ok(Schedule {
            timeline,
            facts,
            time,
            lost,
        })
    }
}

/// Until when no CPU's events are lost: each keeps the first ones.
fn whole(folder: &Folder, end: u64) -> Result<u64, ProfileError> {
    let mut last: HashMap<u32, u64> = HashMap::new();
    let mut events = folder.events()?;
    while let Some(entry) = events.next()? {
        if let Entry::Event(event) = entry {
            last.insert(event.cpu, event.ticks);
        }
    }
    let full = folder
        .stats()
        .iter()
        .filter(|cpu| cpu.dropped + cpu.overrun > 0);
    Ok(full
        .filter_map(|cpu| last.get(&cpu.cpu).copied())
        .fold(end, u64::min))
}

/// The figures. What stands at a futex is named by the stacks that were sampled there by wall-clock.
pub fn findings(schedule: &Schedule, wall: Option<&WallClock>) -> ScheduleFindings {
    let threads = schedule.timeline.threads.iter();
    let mut threads: Vec<ThreadSchedule> = threads
        .map(|(tid, thread)| times(schedule, *tid, thread))
        .collect();
    threads.sort_by(|a, b| b.runs.total_cmp(&a.runs).then(a.tid.cmp(&b.tid)));
    let futexes = schedule.timeline.futexes.iter();
    let futexes = futexes.filter(|(_, futex)| futex.waits > 0);
    let mut futexes: Vec<FutexWaits> = futexes
        .map(|(at, futex)| self::futex(schedule, wall, *at, futex))
        .collect();
    futexes.sort_by(|a, b| {
        b.waited_ns
            .total_cmp(&a.waited_ns)
            .then_with(|| a.address.cmp(&b.address))
    });
    ScheduleFindings {
        seconds: schedule.time.as_secs_f64(),
        lost: schedule.lost,
        threads,
        futexes,
    }
}

fn times(schedule: &Schedule, tid: i32, thread: &Thread) -> ThreadSchedule {
    let share = |ns: u64| ns as f64 / schedule.time.as_nanos().max(1) as f64;
    let mut on: Vec<BlockedOn> = (thread.on.iter())
        .map(|(on, (count, ns))| BlockedOn {
            call: on
                .call
                .map(system_call_name)
                .unwrap_or_default()
                .into_owned(),
            futex: on.futex.map(address),
            count: *count,
            share: share(*ns),
        })
        .collect();
    on.sort_by(|a, b| b.share.total_cmp(&a.share));
    let first = CallPhase {
        call: i64::MIN,
        after: false,
    };
    let calls = schedule.timeline.calls.times.range((tid, first)..);
    let calls = calls
        .take_while(|((of, _), _)| *of == tid)
        .map(|((_, phase), moments)| (*phase, moments));
    let calls = call_rows(calls, system_call_name);
    let blocked = share(thread.on.values().map(|(_, ns)| ns).sum());
    ThreadSchedule {
        tid,
        name: name(schedule, tid),
        runs: share(thread.ran),
        ready: share(thread.ready),
        blocked,
        on,
        calls,
    }
}

fn futex(schedule: &Schedule, wall: Option<&WallClock>, at: u64, futex: &Futex) -> FutexWaits {
    let seen = wall.and_then(|wall| waits::at_futex(&wall.profile, *wall.futexes.get(&at)?));
    let (what, below) = seen.map_or((None, String::new()), |(what, below)| (Some(what), below));
    let named = |tid: i32| NamedThread {
        tid,
        name: name(schedule, tid),
    };
    let waker = |(tid, count): (&i32, &u64)| Waker {
        thread: named(*tid),
        count: *count,
    };
    let mut wakers: Vec<Waker> = futex.wakers.iter().map(waker).collect();
    wakers.sort_by_key(|waker| std::cmp::Reverse(waker.count));
    // A condition is no lock, whatever lies beside it.
    let is_lock = matches!(what, None | Some(WaitFor::Lock | WaitFor::BigLock));
    let holder = schedule.facts.holders.get(&at);
    FutexWaits {
        address: address(at),
        what,
        below,
        waits: futex.waits,
        waited_ns: futex.waited as f64,
        longest_ns: futex.longest as f64,
        waiters: futex.waiters.iter().map(|tid| named(*tid)).collect(),
        wakers,
        holder: holder.filter(|_| is_lock).map(|tid| named(*tid)),
    }
}

fn name(schedule: &Schedule, tid: i32) -> String {
    let name = schedule.facts.names.get(&tid).cloned();
    name.unwrap_or_else(|| "ended".to_owned())
}

fn address(at: u64) -> String {
    format!("{at:#x}")
}

/// Object that a thread is blocked on: a system call, and the futex if it is that one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockingCall {
    /// The call's number; none in a page fault and its like.
    pub call: Option<i64>,
    /// Address of the futex.
    pub futex: Option<u64>,
}

/// Why a thread is off its CPU, if it is not runnable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OffCpu {
    Blocked(BlockingCall),
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
    pub on: BTreeMap<BlockingCall, (u64, u64)>,
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

fn on(call: Option<(i64, u64)>) -> BlockingCall {
    let futex = call
        .filter(|(call, _)| *call == FUTEX)
        .map(|(_, address)| address);
    BlockingCall {
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

    const EXIT: KernelEvent<'_> = KernelEvent::SysExit {
        single: None,
        interrupted: false,
    };

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
        let blocked_on = |address| BlockingCall {
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
