//! `threads`: an event locks one mutex, yields the processor and unlocks, `yields` times.
//!
//! Reference: sysbench 1.0 `threads`. Events take the `locks` mutexes in turn, all threads counting together;
//! mutexes lie next to each other, unpadded.

use super::events::{self, Worker};
use super::locks::Locks;
use super::{EVENTS, THREADS, TIME, common, limits};
use crate::options::{Kind, OptionInfo, Values};
use crate::{Clock, WorkloadError, Yield};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use vmtax_model::Metric;

pub(crate) const OPTIONS: &[OptionInfo] = &[
    OptionInfo {
        name: "yields",
        default: "1000",
        help: "lock, yield, unlock: times in an event",
        kind: Kind::Count { min: 0, max: 1 << 31 },
    },
    OptionInfo {
        name: "locks",
        default: "8",
        help: "mutexes that the events take in turn",
        kind: Kind::Count { min: 1, max: 1 << 20 },
    },
    THREADS,
    TIME,
    EVENTS,
];

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

pub(crate) fn run(values: &Values, clock: &Clock) -> Result<Yield, WorkloadError> {
    let count = values.small("locks")?;
    let yields = values.small("yields")?;
    let (locks, turn) = (Locks::new(count as usize), AtomicU32::new(0));
    let workers = (0..values.small("threads")?).map(|_| Yields { locks: &locks, count, turn: &turn, yields }).collect();
    let mut done = events::run(clock, &limits(values)?, workers)?;
    let mut got = common(&mut done);
    got.measure(Metric::ThreadsEvents, done.events as f64 / done.total_s);
    Ok(got)
}
