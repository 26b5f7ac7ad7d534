//! `mutex`: each thread does one event: `locks` times it counts to `loops`, then locks a random one of
//! `num` mutexes to add one to a shared number.
//!
//! Reference: sysbench 1.0 `mutex`. Mutexes lie 256 bytes apart. The figure is the total time.

use crate::descriptor::{Workload, Yield, workload};
use crate::options::count;
use crate::sysbench::{self, Locks, Random, THREADS, TIME, Worker};
use crate::{Clock, WorkloadError};
use std::arch::asm;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use vmtax_model::{Metric, Places};

workload! {
    Mutex: "locking and unlocking random mutexes, like sysbench's mutex";
    num: u64 = count("num", "4096", 1..=1 << 20, "mutexes to choose from");
    locks: u32 = count("locks", "50000", 1..=1 << 31, "locks that each thread takes");
    loops: u32 = count("loops", "10000", 0..=1 << 31, "empty loops before each lock");
    threads: u32 = THREADS;
    time: f64 = TIME;
}

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

    fn execute(&mut self, _: Self::Request) -> Result<(), WorkloadError> {
        for _ in 0..self.repeats {
            let lock = self.random.below(self.count) as usize;
            count_to(&self.loops);
            // Different mutexes guard the same number, so additions may be lost: so it is in the reference.
            self.locks.hold(lock, || {
                self.shared
                    .store(self.shared.load(Relaxed).wrapping_add(1), Relaxed)
            });
        }
        Ok(())
    }
}

impl Workload for Mutex {
    fn run(&self, clock: &Clock, _: &Places) -> Result<Yield, WorkloadError> {
        let (locks, shared) = (Locks::new(self.num as usize), AtomicU32::new(0));
        let worker = |thread| Locker {
            locks: &locks,
            count: self.num,
            repeats: self.locks,
            loops: self.loops,
            shared: &shared,
            random: Random::of_thread(thread),
            done: false,
        };
        let workers = (0..self.threads).map(worker).collect();
        let (done, mut got) = sysbench::run(clock, self.time, 0, workers)?;
        got.measure(Metric::MutexTime, done.total_s);
        Ok(got)
    }
}
