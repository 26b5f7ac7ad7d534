//! What threads did when, from the scheduler's events and system calls in their order.

use std::collections::{BTreeMap, BTreeSet};
use vmtax_model::Moments;
use vmtax_model::samples::ThreadState;
use vmtax_trace::FUTEX;

/// What an event tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A processor goes from one thread to another.
    Switch {
        /// From this one.
        from: i32,
        /// How that one goes on.
        leaves: Leaves,
        /// To this one.
        to: i32,
    },
    /// The thread wakes another one up.
    Waking(i32),
    /// It begins a system call, with its first argument.
    Enter(i64, u64),
    /// It ends it.
    Exit,
}

/// How a thread goes on that leaves a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaves {
    /// It would have run on.
    Ready,
    /// It waits.
    Blocked,
    /// It ended.
    Ended,
}

/// What a thread is blocked on: a system call, and the futex if it is that one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct On {
    /// The call's number; none in a page fault and its like.
    pub call: Option<i64>,
    /// The futex.
    pub futex: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Runs,
    Ready,
    Blocked(On),
    Ended,
}

/// One thread.
#[derive(Debug, Clone)]
pub struct Thread {
    doing: Doing,
    since: u64,
    /// Whether an event said what it does, or only the look before.
    told: bool,
    /// The call it is in: number, first argument, and when it began, if that was seen.
    call: Option<(i64, u64, Option<u64>)>,
    /// The call it was in last, and when that ended.
    left: Option<(i64, u64)>,
    /// Time on a processor, ns.
    pub ran: u64,
    /// Time ready without one, ns.
    pub ready: u64,
    /// How often it was blocked, and how long, ns.
    pub on: BTreeMap<On, (u64, u64)>,
    /// Its calls by number, and the user time after each (`true`), ns.
    pub calls: BTreeMap<(i64, bool), Moments>,
}

/// One futex.
#[derive(Debug, Clone, Default)]
pub struct Futex {
    /// How often a thread was blocked on it.
    pub waits: u64,
    /// How long in all, ns.
    pub waited: u64,
    /// The longest, ns.
    pub longest: u64,
    /// Who.
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
}

impl Timeline {
    /// Adds a thread as the kernel said before the first event that it is.
    pub fn add(&mut self, tid: i32, state: ThreadState, at: u64) {
        let call = match state {
            ThreadState::Waits { call: Some(call), argument, .. } => Some((call, argument, None)),
            _ => None,
        };
        let doing = if state == ThreadState::Runs { Doing::Runs } else { Doing::Blocked(on(call)) };
        let mut thread = Thread::new(doing, at);
        thread.call = call;
        self.threads.insert(tid, thread);
    }

    /// Takes the next event, of thread `tid`.
    pub fn take(&mut self, at: u64, tid: i32, what: What) {
        match what {
            What::Switch { from, leaves, to } => {
                let call = self.threads.get(&from).and_then(|thread| thread.call);
                self.goes_on(
                    from,
                    at,
                    match leaves {
                        Leaves::Ready => Doing::Ready,
                        Leaves::Blocked => Doing::Blocked(on(call)),
                        Leaves::Ended => Doing::Ended,
                    },
                );
                self.goes_on(to, at, Doing::Runs);
            }
            What::Waking(whom) => {
                let Some(Doing::Blocked(on)) = self.threads.get(&whom).map(|thread| thread.doing) else { return };
                let by = self.threads.get(&tid).and_then(|thread| thread.call);
                let woken = |&futex: &u64| matches!(by, Some((FUTEX, address, _)) if address == futex);
                if let Some(futex) = on.futex.filter(woken) {
                    *self.futexes.entry(futex).or_default().wakers.entry(tid).or_default() += 1;
                }
                self.goes_on(whom, at, Doing::Ready);
            }
            What::Enter(call, argument) => {
                let Some(thread) = self.running(tid, at) else { return };
                if let Some((last, since)) = thread.left.take() {
                    thread.calls.entry((last, true)).or_default().add(at.saturating_sub(since) as f64);
                }
                thread.call = Some((call, argument, Some(at)));
            }
            What::Exit => {
                let Some(thread) = self.running(tid, at) else { return };
                let Some((call, _, since)) = thread.call.take() else { return };
                if let Some(since) = since {
                    thread.calls.entry((call, false)).or_default().add(at.saturating_sub(since) as f64);
                }
                thread.left = Some((call, at));
            }
        }
    }

    /// Counts what each thread does at the end.
    pub fn end(&mut self, at: u64) {
        let all: Vec<(i32, Doing)> = self.threads.iter().map(|(tid, thread)| (*tid, thread.doing)).collect();
        for (tid, doing) in all {
            self.goes_on(tid, at, doing);
        }
    }

    /// The thread that makes a system call, which it does on a processor.
    fn running(&mut self, tid: i32, at: u64) -> Option<&mut Thread> {
        let thread = self.threads.get(&tid)?;
        if thread.doing != Doing::Runs {
            self.goes_on(tid, at, Doing::Runs); // how it came there was not seen
        }
        self.threads.get_mut(&tid)
    }

    /// Counts what a thread did until now.
    fn goes_on(&mut self, tid: i32, at: u64, next: Doing) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let time = at.saturating_sub(thread.since);
        match thread.doing {
            // One that was said to run, and is given a processor, waited for that.
            Doing::Runs if next == Doing::Runs && !thread.told => thread.ready += time,
            Doing::Runs => thread.ran += time,
            Doing::Ready => thread.ready += time,
            Doing::Blocked(on) => {
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
            Doing::Ended => {}
        }
        (thread.doing, thread.since, thread.told) = (next, at.max(thread.since), true);
    }
}

impl Thread {
    fn new(doing: Doing, since: u64) -> Thread {
        let (on, calls) = Default::default();
        Thread { doing, since, told: false, call: None, left: None, ran: 0, ready: 0, on, calls }
    }
}

fn on(call: Option<(i64, u64, Option<u64>)>) -> On {
    let futex = call.filter(|(call, ..)| *call == FUTEX).map(|(_, address, _)| address);
    On { call: call.map(|(call, ..)| call), futex }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WAITS: ThreadState = ThreadState::Waits { call: Some(FUTEX), argument: 0x100, sp: 0, ip: 0 };

    #[test]
    fn a_lock_that_goes_from_one_to_the_other() {
        let mut line = Timeline::default();
        line.add(1, ThreadState::Runs, 0);
        line.add(2, WAITS, 0);
        line.add(3, WAITS, 0);
        line.take(10, 1, What::Enter(FUTEX, 0x100));
        line.take(12, 1, What::Waking(2));
        line.take(13, 1, What::Exit);
        line.take(15, 1, What::Switch { from: 1, leaves: Leaves::Ready, to: 2 });
        line.take(16, 2, What::Exit);
        line.take(20, 2, What::Enter(FUTEX, 0x200));
        line.take(21, 2, What::Switch { from: 2, leaves: Leaves::Blocked, to: 1 });
        line.end(31);
        let [one, two, three] = [1, 2, 3].map(|tid| &line.threads[&tid]);
        assert_eq!((one.ran, one.ready), (15 + 10, 6));
        assert_eq!((two.ran, two.ready), (6, 3));
        let of = |address| On { call: Some(FUTEX), futex: Some(address) };
        assert_eq!((two.on[&of(0x100)], two.on[&of(0x200)]), ((1, 12), (1, 10)));
        assert_eq!(three.on[&of(0x100)], (1, 31));
        // Of the call that began before, only what came after it is known.
        let row = |thread: &Thread, after| thread.calls.get(&(FUTEX, after)).map(|m| m.row(String::new()).total_ns);
        assert_eq!(
            (row(one, false), row(one, true), row(two, false), row(two, true)),
            (Some(3.0), None, None, Some(4.0))
        );
        let lock = &line.futexes[&0x100];
        assert_eq!((lock.waits, lock.waited, lock.longest, lock.wakers[&1]), (2, 43, 31, 1));
        assert_eq!(lock.waiters, BTreeSet::from([2, 3]));
    }

    #[test]
    fn ready_at_first_and_ended_at_last() {
        let mut line = Timeline::default();
        line.add(1, ThreadState::Runs, 0);
        line.take(7, 0, What::Switch { from: 0, leaves: Leaves::Ready, to: 1 });
        line.take(9, 1, What::Switch { from: 1, leaves: Leaves::Ended, to: 0 });
        line.end(100);
        assert_eq!((line.threads[&1].ready, line.threads[&1].ran), (7, 2));
    }

    proptest! {
        #[test]
        fn all_time_is_counted_once(events in proptest::collection::vec((0u64..50, 1i32..4, 0u8..6, 1i32..4), 0..60)) {
            let mut line = Timeline::default();
            line.add(1, ThreadState::Runs, 0);
            line.add(2, WAITS, 0);
            line.add(3, ThreadState::Runs, 0);
            let mut now = 0;
            for (later, tid, kind, other) in events {
                now += later;
                line.take(now, tid, match kind {
                    0 => What::Switch { from: tid, leaves: Leaves::Ready, to: other },
                    1 => What::Switch { from: tid, leaves: Leaves::Blocked, to: other },
                    2 => What::Waking(other),
                    3 => What::Enter(FUTEX, 0x300),
                    4 => What::Enter(1, 2),
                    _ => What::Exit,
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
