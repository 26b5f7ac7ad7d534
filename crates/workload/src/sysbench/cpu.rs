//! `cpu`: an event finds all primes from 3 up to `max-prime` by trial division.
//!
//! Reference: sysbench 1.0 `cpu`. A candidate is divided by 2, 3, 4, … up to its square root, which is compared as a
//! double; every division is a 64-bit one.

use super::events::{self, Worker};
use super::{EVENTS, THREADS, TIME, common, limits};
use crate::options::{Kind, OptionInfo, Values};
use crate::{Clock, WorkloadError, Yield};
use std::arch::asm;
use std::hint::black_box;
use vmtax_model::Metric;

pub(crate) const OPTIONS: &[OptionInfo] = &[
    OptionInfo {
        name: "max-prime",
        default: "10000",
        help: "numbers below this are tested in an event",
        kind: Kind::Count { min: 3, max: 1 << 31 },
    },
    THREADS,
    TIME,
    EVENTS,
];

/// Remainder by the 64-bit DIV. Compilers test for small operands and divide in 32 bits, several times faster.
#[inline(always)]
fn remainder(dividend: u64, divisor: u64) -> u64 {
    let rest: u64;
    // SAFETY: DIV faults on a divisor of 0 and on overflow; divisors start at 2 and the high half is 0.
    unsafe {
        asm!(
            "xor edx, edx",
            "div {divisor}",
            divisor = in(reg) divisor,
            inout("rax") dividend => _,
            out("rdx") rest,
            options(pure, nomem, nostack),
        );
    }
    rest
}

/// Number of primes from 3 to below `max`. Division by 2 is a test of the lowest bit, as compilers made it in sysbench.
#[inline(never)]
fn primes(max: u64) -> u64 {
    let mut found = 0;
    for candidate in 3..max {
        let root = to_double(candidate).sqrt();
        found += u64::from(root < 2.0 || candidate % 2 != 0 && no_divisor_to(root, candidate));
    }
    found
}

#[inline(always)]
fn no_divisor_to(root: f64, candidate: u64) -> bool {
    let mut divisor = 3;
    while root >= to_double(divisor) {
        if remainder(candidate, divisor) == 0 {
            return false;
        }
        divisor += 1;
    }
    true
}

/// An unsigned number as a double, by testing the sign and converting as signed: what C compilers make of it. Rust's
/// takes five instructions.
#[inline(always)]
fn to_double(n: u64) -> f64 {
    if (n as i64) < 0 { huge_to_double(n) } else { n as i64 as f64 }
}

/// Out of line, so that the loop falls through where it has to.
#[cold]
#[inline(never)]
fn huge_to_double(n: u64) -> f64 {
    n as f64
}

struct Primes(u64);

impl Worker for Primes {
    type Request = ();

    fn next(&mut self) -> Option<()> {
        Some(())
    }

    fn execute(&mut self, (): ()) -> Result<(), WorkloadError> {
        black_box(primes(self.0));
        Ok(())
    }
}

pub(crate) fn run(values: &Values, clock: &Clock) -> Result<Yield, WorkloadError> {
    let max = values.number("max-prime")?;
    let workers = (0..values.small("threads")?).map(|_| Primes(max)).collect();
    let mut done = events::run(clock, &limits(values)?, workers)?;
    let mut got = common(&mut done);
    got.measure(Metric::CpuEvents, done.events as f64 / done.total_s);
    Ok(got)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_primes_are_the_known_ones() {
        // The prime-counting function, less the prime 2 that is not tested.
        for (max, pi) in [(3, 1), (4, 2), (10, 4), (100, 25), (1_000, 168), (10_000, 1_229), (100_000, 9_592)] {
            assert_eq!(primes(max), pi - 1, "below {max}");
        }
    }
}
