//! `cpu`: an event finds all primes from 3 up to `max-prime` by trial division.
//!
//! Reference: sysbench 1.0 `cpu`. A candidate is divided by 2, 3, 4, … up to its square root, which is compared as a
//! double; every division is a 64-bit one.

use crate::descriptor::{Workload, Yield, workload};
use crate::options::{count, must_end};
use crate::sysbench::{self, EVENTS, THREADS, TIME, Worker};
use crate::{Clock, WorkloadError};
use std::arch::asm;
use std::hint::black_box;
use vmtax_model::{Metric, Places, WorkloadName};

workload! {
    Cpu: "prime numbers by trial division, like sysbench's cpu",
        quick [("time", "1")], default [("time", "2")], full [];
    max_prime: u64 = count("max-prime", "10000", 3..=1 << 31, "numbers below this are tested in an event");
    threads: u32 = THREADS;
    time: f64 = TIME;
    events: u64 = EVENTS;
}

/// Number of primes from 3 to below `max`. Division by 2 is a test of the lowest bit, as compilers made it in sysbench.
#[inline(never)]
fn primes(max: u64) -> u64 {
    let mut found = 0;
    for candidate in 3..max {
        // Signed, as sysbench converts: without a sign it takes packed arithmetic, which translation makes dear.
        let root = square_root(candidate as i64 as f64);
        found += u64::from(root < 2.0 || candidate % 2 != 0 && no_divisor_to(root, candidate));
    }
    found
}

/// With the test for a negative operand that C has before the instruction: under TCG it is some percent of an event, since
/// translation calls a function for each comparison of doubles. In assembly, because a compiler may see that it never holds.
#[inline(always)]
fn square_root(of: f64) -> f64 {
    let mut root = of;
    // SAFETY: the block touches registers alone.
    unsafe {
        asm!(
            "ucomisd {zero}, {root}",
            "ja 2f",
            "sqrtsd {root}, {root}",
            "2:",
            zero = in(xmm_reg) 0f64,
            root = inout(xmm_reg) root,
            options(pure, nomem, nostack),
        );
    }
    root
}

/// Returns true if no number from 3 up to `root` divides the candidate.
///
/// In assembly, because compilers test 64-bit operands for being small and then divide in 32 bits, several times
/// faster than sysbench does; and because where the loop lies in a cache line moves the figure by some percent, so
/// that place is fixed here, whatever the rest of the program looks like.
#[inline(always)]
fn no_divisor_to(root: f64, candidate: u64) -> bool {
    let prime: u64;
    // SAFETY: DIV faults on a divisor of 0 and on overflow; divisors start at 3, after the first addition, and the high
    // half is 0. The block touches no memory and no stack.
    unsafe {
        asm!(
            "jmp 6f",
            ".p2align 6",
            ".nops 32",
            "2:",
            "pxor {double}, {double}",
            "cvtsi2sd {double}, {divisor}",
            "comisd {root}, {double}",
            "jb 3f",
            "mov rax, {candidate}",
            "xor edx, edx",
            "div {divisor}",
            "test rdx, rdx",
            "je 4f",
            "6:",
            "add {divisor}, 1",
            "jns 2b",
            "3:",
            "mov {prime:e}, 1",
            "jmp 5f",
            "4:",
            "xor {prime:e}, {prime:e}",
            "5:",
            root = in(xmm_reg) root,
            double = out(xmm_reg) _,
            candidate = in(reg) candidate,
            divisor = inout(reg) 2u64 => _,
            prime = out(reg) prime,
            out("rax") _,
            out("rdx") _,
            options(pure, nomem, nostack),
        );
    }
    prime != 0
}

struct Primes(u64);

impl Worker for Primes {
    type Request = ();

    fn next(&mut self) -> Option<()> {
        Some(())
    }

    fn execute(&mut self, _: Self::Request) -> Result<(), WorkloadError> {
        black_box(primes(self.0));
        Ok(())
    }
}

impl Workload for Cpu {
    fn reconcile(&mut self) -> Result<(), WorkloadError> {
        must_end(WorkloadName::Cpu, self.time, EVENTS.name, self.events)
    }

    fn run(&self, clock: &Clock, _: &Places) -> Result<Yield, WorkloadError> {
        let workers = (0..self.threads).map(|_| Primes(self.max_prime)).collect();
        let (done, mut got) = sysbench::run(clock, self.time, self.events, workers)?;
        got.measure(Metric::CpuEvents, done.events as f64 / done.total_s);
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_primes_are_the_known_ones() {
        // The prime-counting function, less the prime 2 that is not tested.
        for (max, pi) in [
            (3, 1),
            (4, 2),
            (10, 4),
            (100, 25),
            (1_000, 168),
            (10_000, 1_229),
            (100_000, 9_592),
        ] {
            assert_eq!(primes(max), pi - 1, "below {max}");
        }
    }
}
