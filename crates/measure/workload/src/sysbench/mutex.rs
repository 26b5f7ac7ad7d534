//! `mutex`: each thread does one event: `locks` times it counts to `loops`, then locks a random one of
//! `num` mutexes to add one to a shared number.
//!
//! Reference: sysbench 1.0 `mutex`. Mutexes lie 256 bytes apart. The figure is the total time.

use super::events::{self, Limits, Worker};
use super::locks::Locks;
use super::random::Random;
use super::{THREADS, TIME, common};
use crate::options::{Kind, OptionInfo, Values};
use crate::{Clock, WorkloadError, Yield};
use std::arch::asm;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use vmtax_model::Metric;

pub(crate) const OPTIONS: &[OptionInfo] = &[
    OptionInfo {
        name: "num",
        default: "4096",
        help: "mutexes to choose from",
        kind: Kind::Count { min: 1, max: 1 << 20 },
    },
    OptionInfo {
        name: "locks",
        default: "50000",
        help: "locks that each thread takes",
        kind: Kind::Count { min: 1, max: 1 << 31 },
    },
    OptionInfo {
        name: "loops",
        default: "10000",
        help: "empty loops before each lock",
        kind: Kind::Count { min: 0, max: 1 << 31 },
    },
    THREADS,
    TIME,
];

/// Counts to `limit` as sysbench's binary does: add, compare with memory, branch.
#[inline(always)]
fn count_to(limit: &u32) {
    if *limit == 0 {
        return;
    }
    // SAFETY: reads one u32 through a live reference; registers and flags are declared.
    unsafe {
        asm!(
            ".p2align 4",
            "2:",
            "add {i:e}, 1",
            "cmp dword ptr [{limit}], {i:e}",
            "ja 2b",
            i = inout(reg) 0u32 => _,
            limit = in(reg) limit,
            options(readonly, nostack),
        );
    }
}

struct Locker<'a> {
    locks: &'a Locks<256>,
    count: u64,
    repeats: u32,
    loops: u32,
    shared: &'a AtomicU32,
    random: Random,
    done: bool,
}

impl Worker for Locker<'_> {
    type Request = ();

    fn next(&mut self) -> Option<()> {
        (!std::mem::replace(&mut self.done, true)).then_some(())
    }

    fn execute(&mut self, (): ()) -> Result<(), WorkloadError> {
        for _ in 0..self.repeats {
            let lock = self.random.below(self.count) as usize;
            count_to(&self.loops);
            // Different mutexes guard the same number, so additions may be lost: so it is in the reference.
            self.locks.hold(lock, || self.shared.store(self.shared.load(Relaxed).wrapping_add(1), Relaxed));
        }
        Ok(())
    }
}

pub(crate) fn run(values: &Values, clock: &Clock) -> Result<Yield, WorkloadError> {
    let count = values.number("num")?;
    let (repeats, loops) = (values.small("locks")?, values.small("loops")?);
    let (locks, shared) = (Locks::new(count as usize), AtomicU32::new(0));
    let workers = (0..values.small("threads")?)
        .map(|thread| Locker {
            locks: &locks,
            count,
            repeats,
            loops,
            shared: &shared,
            random: Random::of_thread(thread),
            done: false,
        })
        .collect();
    let limits = Limits { time_ns: values.nanoseconds("time")?, events: 0 };
    let mut done = events::run(clock, &limits, workers)?;
    let mut got = common(&mut done);
    got.measure(Metric::MutexTime, done.total_s);
    Ok(got)
}
