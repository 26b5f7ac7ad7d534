//! Inputs go to a target. What ends in a panic, or takes too much time or memory, is a fault.

use crate::memory;
use crate::mutate::input;
use rustix::time::{ClockId, clock_gettime};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// CPU time that one input may take in its thread; its own tests need not wait so long.
const CPU_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });
/// An input during which none ends for so long does not end, also on a host with much other load.
const END_LIMIT: Duration = Duration::from_secs(120);

/// An input that broke a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What happened.
    pub what: String,
    /// The number of the input; `None` for one of the corpus.
    pub number: Option<u64>,
    /// The input.
    pub input: Vec<u8>,
}

/// Gives a target its corpus, and mutated inputs with these numbers, in a thread of its own; the first fault ends it. A target
/// that does not end leaves its thread behind.
///
/// # Errors
/// The first fault.
pub fn run(
    target: fn(&[u8]),
    corpus: &[Vec<u8>],
    seed: u64,
    numbers: std::ops::Range<u64>,
) -> Result<(), Box<Fault>> {
    let (ends, end) = channel();
    let own = corpus.to_vec();
    let started = numbers.clone();
    // How many are over. Not a message for each: waking this thread takes longer than most inputs.
    let over = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&over);
    let worker = move || {
        let all = own.iter().map(|known| (None, known.clone()));
        let mutated = started.map(|number| (Some(number), input(&own, seed, number)));
        for (number, input) in all.chain(mutated) {
            if let Some(what) = fault(target, &input) {
                // Nobody listens any more: it took too long.
                let _ = ends.send(Fault {
                    what,
                    number,
                    input,
                });
                return;
            }
            counted.fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::Builder::new().spawn(worker).expect("a thread");
    let mut before = None;
    loop {
        match end.recv_timeout(END_LIMIT) {
            Ok(fault) => return Err(Box::new(fault)),
            Err(RecvTimeoutError::Disconnected) => {
                let all = corpus.len() as u64 + (numbers.end - numbers.start);
                assert_eq!(
                    over.load(Ordering::Relaxed) as u64,
                    all,
                    "the thread ended without a word"
                );
                return Ok(());
            }
            Err(RecvTimeoutError::Timeout) => {
                let done = over.load(Ordering::Relaxed);
                if before.replace(done) != Some(done) {
                    continue;
                }
                let number =
                    (done >= corpus.len()).then(|| numbers.start + (done - corpus.len()) as u64);
                let input = number.map_or_else(
                    || corpus[done].clone(),
                    |number| input(corpus, seed, number),
                );
                let what = format!("it did not end within {} s", END_LIMIT.as_secs());
                return Err(Box::new(Fault {
                    what,
                    number,
                    input,
                }));
            }
        }
    }
}

/// Returns the fault of a target at one input; `None` where there is none.
fn fault(target: fn(&[u8]), input: &[u8]) -> Option<String> {
    memory::begin();
    let begun = Instant::now();
    let ended = catch_unwind(AssertUnwindSafe(|| target(input)));
    let peak = memory::peak();
    if let Err(panic) = ended {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text
            .or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()))
            .unwrap_or_default();
        return Some(format!("it panicked: {text}"));
    }
    // The clock of CPU time is a system call. What took long may have waited for a CPU: its own time is measured once more.
    if begun.elapsed() > CPU_LIMIT {
        let took = cpu_time(|| drop(catch_unwind(AssertUnwindSafe(|| target(input)))));
        if took > CPU_LIMIT {
            return Some(format!("it took {:.1} s of CPU time", took.as_secs_f64()));
        }
    }
    (peak > memory::LIMIT).then(|| format!("it took {} MiB of memory", peak >> 20))
}

/// CPU time of this thread for some work.
fn cpu_time(work: impl FnOnce()) -> Duration {
    let before = clock_gettime(ClockId::ThreadCPUTime);
    work();
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime) - before).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(target: fn(&[u8]), corpus: &[&[u8]], inputs: u64) -> Result<(), Box<Fault>> {
        let corpus: Vec<Vec<u8>> = corpus.iter().map(|known| known.to_vec()).collect();
        run(target, &corpus, 1, 0..inputs)
    }

    #[test]
    fn a_panic_that_takes_parts_of_two_inputs_is_found_and_found_again() {
        let target = |data: &[u8]| {
            let has = |word: &[u8]| data.windows(word.len()).any(|part| part == word);
            assert!(!(has(b"first") && has(b"second")), "both");
        };
        let corpus: [&[u8]; 2] = [b"the first of them", b"and the second one"];
        let fault = found(target, &corpus, 10_000).unwrap_err();
        assert!(fault.what.contains("both"), "{fault:?}");
        let number = fault.number.unwrap();
        let corpus: Vec<Vec<u8>> = corpus.iter().map(|known| known.to_vec()).collect();
        assert_eq!(
            *run(target, &corpus, 1, number..number + 1).unwrap_err(),
            *fault
        );
    }

    #[test]
    fn memory_that_an_input_asks_for_is_found() {
        let target = |data: &[u8]| {
            let asked = data.first().map_or(0, |n| usize::from(*n) << 26);
            drop(std::hint::black_box(Vec::<u8>::with_capacity(asked)));
        };
        let fault = found(target, &[b"\x01"], 10_000).unwrap_err();
        assert!(
            fault.what.contains("MiB of memory") && fault.input[0] > 16,
            "{}",
            fault.what
        );
        assert_eq!(
            found(|_| drop(Vec::<u8>::with_capacity(1 << 20)), &[b"a"], 100),
            Ok(())
        );
    }

    #[test]
    fn time_that_an_input_takes_is_found() {
        let target = |_: &[u8]| {
            let end = clock_gettime(ClockId::ThreadCPUTime).tv_sec + 3;
            while clock_gettime(ClockId::ThreadCPUTime).tv_sec < end {}
        };
        let fault = found(target, &[b"a"], 0).unwrap_err();
        assert!(
            fault.what.contains("s of CPU time") && fault.number.is_none(),
            "{fault:?}"
        );
    }
}
