//! `memory`: an event passes over a block once, in 64-bit words, reading or writing.
//!
//! Reference: sysbench 1.0 `memory`. `global`: all threads use one block; `local`: each its own. Together the threads
//! do `total-size` / `block-size` events, each thread the same number, unless the time is up before. Sequential writes
//! store each word's distance from the end of the block; `rnd` draws a random word each time; `none` only walks.

use crate::descriptor::{Workload, Yield, workload};
use crate::options::{Word, one_of, size};
use crate::sysbench::{self, Random, THREADS, TIME, Worker};
use crate::{Clock, WorkloadError};
use std::arch::asm;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vmtax_model::{Metric, Places, WorkloadName, WorkloadSpec};

const WORD: u64 = 8;

workload! {
    Memory: "block reads or writes of memory, like sysbench's memory";
    block_size: u64 =
        size(WorkloadSpec::BLOCK_SIZE, "1K", WORD..=1 << 36, WORD, "bytes that an event reads or writes");
    total_size: u64 = size("total-size", "100G", WORD..=1 << 60, 1, "bytes to read or write in all");
    scope: Word = one_of("scope", "global", &["global", "local"], "one block for all threads, or one for each");
    oper: Word = one_of("oper", "write", &["read", "write", "none"], "what to do with the words");
    access_mode: Word = one_of("access-mode", "seq", &["seq", "rnd"], "word after word, or random words");
    threads: u32 = THREADS;
    time: f64 = TIME;
}

/// Hides a value from the optimiser: what is computed from it is computed each time. Costs no instruction.
#[inline(always)]
fn opaque(value: u64) -> u64 {
    let mut hidden = value;
    // SAFETY: an empty instruction sequence.
    unsafe { asm!("/* {0} */", inout(reg) hidden, options(nomem, nostack, preserves_flags)) };
    hidden
}

/// Returns the number of words from `here` to `end`: subtracted and shifted again for each word, as the reference's
/// binary does; a compiler would count down instead and leave less to do than the stores.
#[inline(always)]
fn distance(here: u64, end: u64) -> u64 {
    let words: u64;
    // SAFETY: computes with registers only.
    unsafe {
        asm!(
            "mov {words}, {end}",
            "sub {words}, {here}",
            "sar {words}, 3",
            here = in(reg) here,
            end = in(reg) end,
            words = out(reg) words,
            options(pure, nomem, nostack),
        );
    }
    words
}

const LINE: u64 = 8 * WORD;

/// Visits the block eight words at a time, then the rest one by one. The address is hidden from the optimiser, so that
/// the loop is the reference's: an addition, a comparison with the end and a branch for every eight words. Counting
/// down instead makes the whole pass 6 % faster.
#[inline(always)]
fn pass(block: &[AtomicU64], eight: impl Fn(u64, &[AtomicU64; 8]), one: impl Fn(u64, &AtomicU64)) {
    let (lines, rest) = block.split_at(block.len() & !7);
    let (mut here, end) = (lines.as_ptr() as u64, lines.as_ptr_range().end as u64);
    while here < end {
        // SAFETY: `here` goes through `lines`, whose length is a multiple of eight words, in steps of eight.
        eight(here, unsafe { &*(here as *const [AtomicU64; 8]) });
        here = opaque(here + LINE);
    }
    rest.iter().for_each(|word| one(word.as_ptr() as u64, word));
}

/// Stores are relaxed atomics: plain MOVs, which threads of scope `global` may make to the same word.
#[inline(never)]
fn write_words(block: &[AtomicU64]) {
    let end = block.as_ptr_range().end as u64;
    let store = |here, word: &AtomicU64| word.store(distance(here, end), Relaxed);
    let eight = |here, line: &[AtomicU64; 8]| {
        (0..)
            .zip(line)
            .for_each(|(i, word)| store(here + i * WORD, word))
    };
    pass(block, eight, store);
}

#[inline(never)]
fn read_words(block: &[AtomicU64]) {
    let load = |_, word: &AtomicU64| _ = opaque(word.load(Relaxed));
    pass(
        block,
        |_, line: &[AtomicU64; 8]| line.iter().for_each(|word| load(0, word)),
        load,
    );
}

/// One step for every eight words, as the reference's compiler left of it.
#[inline(never)]
fn walk(block: &[AtomicU64]) {
    pass(block, |_, _| (), |_, _| ());
}

/// Memory accesses of an event.
#[derive(Clone, Copy)]
enum Pass {
    Read,
    Write,
    None,
    RandomRead,
    RandomWrite,
    RandomNone,
}

impl Pass {
    fn from_options(memory: &Memory) -> Pass {
        match (memory.oper, memory.access_mode) {
            ("read", "seq") => Pass::Read,
            ("read", _) => Pass::RandomRead,
            ("write", "seq") => Pass::Write,
            ("write", _) => Pass::RandomWrite,
            (_, "seq") => Pass::None,
            (_, _) => Pass::RandomNone,
        }
    }
}

struct Mover {
    block: Arc<Vec<AtomicU64>>,
    pass: Pass,
    left: u64,
    random: Random,
}

impl Mover {
    #[inline(always)]
    fn random_pass(&mut self, visit: impl Fn(&AtomicU64, u64)) {
        let words = self.block.len() as u64;
        for i in 0..words {
            let chosen = self.random.below(words);
            visit(&self.block[chosen as usize], i);
        }
    }
}

impl Worker for Mover {
    type Request = ();

    fn next(&mut self) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        Some(())
    }

    fn execute(&mut self, _: Self::Request) -> Result<(), WorkloadError> {
        match self.pass {
            Pass::Read => read_words(&self.block),
            Pass::Write => write_words(&self.block),
            Pass::None => walk(&self.block),
            Pass::RandomRead => self.random_pass(|word, _| {
                opaque(word.load(Relaxed));
            }),
            Pass::RandomWrite => self.random_pass(|word, i| word.store(i * WORD, Relaxed)),
            Pass::RandomNone => self.random_pass(|word, _| {
                opaque(word as *const AtomicU64 as u64);
            }),
        }
        Ok(())
    }
}

fn block(bytes: u64) -> Result<Arc<Vec<AtomicU64>>, WorkloadError> {
    let mut words: Vec<AtomicU64> = Vec::new();
    words
        .try_reserve_exact((bytes / WORD) as usize)
        .map_err(|_| WorkloadError::NoMemory {
            workload: WorkloadName::Memory,
            bytes,
            option: WorkloadSpec::BLOCK_SIZE,
        })?;
    words.extend((0..bytes / WORD).map(|_| AtomicU64::new(0)));
    Ok(Arc::new(words))
}

impl Workload for Memory {
    /// Every thread has to have at least one block to do.
    fn reconcile(&mut self) -> Result<(), WorkloadError> {
        if self.total_size / self.block_size < u64::from(self.threads) {
            return Err(WorkloadError::conflict(
                WorkloadName::Memory,
                "total-size is less than one block for each thread: give a larger total-size or a smaller \
                 block-size",
            ));
        }
        Ok(())
    }

    fn run(&self, clock: &Clock, _: &Places) -> Result<Yield, WorkloadError> {
        let bytes = self.block_size;
        let left = self.total_size / bytes / u64::from(self.threads);
        let shared = (self.scope == "global").then(|| block(bytes)).transpose()?;
        let workers = (0..self.threads)
            .map(|thread| {
                let block = shared.clone().map_or_else(|| block(bytes), Ok)?;
                Ok(Mover {
                    block,
                    pass: Pass::from_options(self),
                    left,
                    random: Random::of_thread(thread),
                })
            })
            .collect::<Result<Vec<_>, WorkloadError>>()?;
        let (done, mut got) = sysbench::run(clock, self.time, 0, workers)?;
        got.measure(Metric::MemoryOperations, done.events as f64 / done.total_s);
        if self.oper != "none" {
            let mebibytes = (done.events * bytes) as f64 / (1 << 20) as f64;
            got.measure(Metric::MemoryBandwidth, mebibytes / done.total_s);
        }
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_leaves_each_word_its_distance_from_the_end() {
        for words in [1u64, 7, 8, 9, 64, 100] {
            let block = block(words * WORD).unwrap();
            write_words(&block);
            let left: Vec<u64> = block.iter().map(|w| w.load(Relaxed)).collect();
            assert_eq!(left, (1..=words).rev().collect::<Vec<_>>());
        }
    }

    #[test]
    fn random_writes_go_all_over_the_block() {
        let block = block(64 * WORD).unwrap();
        let mut mover = Mover {
            block,
            pass: Pass::RandomWrite,
            left: 50,
            random: Random::of_thread(0),
        };
        while mover.next().is_some() {
            mover.execute(()).unwrap();
        }
        // Each word is drawn 50 times on average; only the very first draw stores 0.
        assert!(mover.block.iter().filter(|w| w.load(Relaxed) == 0).count() <= 8);
    }
}
