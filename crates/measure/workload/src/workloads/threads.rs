//! `threads`: an event locks one mutex, yields the CPU and unlocks, `yields` times.
//!
//! Reference: sysbench 1.0 `threads`. Events take the `locks` mutexes in turn, all threads counting together;
//! mutexes lie next to each other, unpadded.

use crate::descriptor::{Workload, Yield, workload};
use crate::options::{count, must_end};
use crate::sysbench::{self, EVENTS, Locks, THREADS, TIME, Worker};
use crate::{Clock, WorkloadError};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use vmtax_model::{Metric, Places, WorkloadName};

workload! {
    Threads: "yields under contended mutexes, like sysbench's threads",
        quick [("threads", "100"), ("time", "1")], default [("time", "2")], full [];
    yields: u32 = count("yields", "1000", 0..=1 << 31, "lock, yield, unlock: times in an event");
    locks: u32 = count("locks", "8", 1..=1 << 20, "mutexes that the events lock one after another");
    threads: u32 = THREADS;
    time: f64 = TIME;
    events: u64 = EVENTS;
}

struct Yields<'a> {
    locks: &'a Locks<0>,
    count: u32,
    turn: &'a AtomicU32,
    yields: u32,
}

impl Worker for Yields<'_> {
    type Request = usize;

    fn next(&mut self) -> Option<usize> {
        Some((self.turn.fetch_add(1, Relaxed) % self.count) as usize)
    }

    fn execute(&mut self, lock: usize) -> Result<(), WorkloadError> {
        for _ in 0..self.yields {
            self.locks.hold(lock, || {
                // SAFETY: sched_yield has no requirements.
                unsafe { libc::sched_yield() };
            });
        }
        Ok(())
    }
}

impl Workload for Threads {
    fn reconcile(&mut self) -> Result<(), WorkloadError> {
        must_end(WorkloadName::Threads, self.time, EVENTS.name, self.events)
    }

    fn run(&self, clock: &Clock, _: &Places) -> Result<Yield, WorkloadError> {
        let (locks, turn) = (Locks::new(self.locks as usize), AtomicU32::new(0));
        let worker = |_| Yields {
            locks: &locks,
            count: self.locks,
            turn: &turn,
            yields: self.yields,
        };
        let workers = (0..self.threads).map(worker).collect();
        let (done, mut got) = sysbench::run(clock, self.time, self.events, workers)?;
        got.measure(Metric::ThreadsEvents, done.events as f64 / done.total_s);
        Ok(got)
    }
}
