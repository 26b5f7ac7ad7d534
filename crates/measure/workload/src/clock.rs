//! The clock that stamps operations: the time stamp counter where it will do, `clock_gettime` where not.
//!
//! TSC ticks become nanoseconds by one multiplication and a shift. The factor is calibrated against
//! `CLOCK_MONOTONIC_RAW` (the clock that nobody disciplines) twice in a row; whether the TSC will do is found out by
//! trying, not from CPU flags: emulators run a good TSC and do not say so.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::arch::x86_64::{_mm_lfence, _rdtsc};
use std::time::Duration;
use vmtax_model::{Latency, Timer, TimerSource};

/// Length of one calibration.
const WINDOW: Duration = Duration::from_millis(20);
/// Two calibrations that differ by more than this share distrust the TSC.
const AGREEMENT: f64 = 1e-3;
/// TSCs of two CPUs may differ by this much, ns: more than reading two clocks takes, less than what would show.
const SKEW_NS: f64 = 2_000.0;

/// A calibrated clock.
pub struct Clock {
    /// Nanoseconds per tick, times 2^32; 0 means that `clock_gettime` is read instead.
    factor: u64,
    about: Timer,
}

impl Clock {
    /// Calibrates (40 ms) and falls back to `clock_gettime` with a reason when the TSC will not do.
    pub fn calibrate() -> Clock {
        // One disturbed calibration on a busy machine is no reason to give the TSC up.
        let mut found = calibrate_tsc();
        for _ in 0..2 {
            if found.is_err() {
                found = calibrate_tsc();
            }
        }
        let (factor, mhz, error, reason) = match found {
            Ok((mhz, error)) => ((1000.0 / mhz * 4_294_967_296.0) as u64, mhz, error, None),
            Err(reason) => (0, 1000.0, 0.0, Some(reason)),
        };
        let source = if factor == 0 {
            TimerSource::ClockGettime
        } else {
            TimerSource::Tsc
        };
        let mut clock = Clock {
            factor,
            about: Timer {
                source,
                mhz,
                error,
                pair_ns: 0.0,
                reason,
            },
        };
        clock.about.pair_ns = clock.pair_ns();
        clock
    }

    /// As where the TSC will not do.
    #[cfg(test)]
    pub(crate) fn without_tsc(reason: &str) -> Clock {
        let source = TimerSource::ClockGettime;
        let about = Timer {
            source,
            mhz: 1000.0,
            error: 0.0,
            pair_ns: 0.0,
            reason: Some(reason.to_owned()),
        };
        Clock { factor: 0, about }
    }

    /// Returns the clock's source, frequency and error, and the reason where the TSC cannot be used.
    pub fn about(&self) -> &Timer {
        &self.about
    }

    /// A stamp before what is timed.
    #[inline(always)]
    pub fn start(&self) -> u64 {
        if self.factor != 0 {
            // SAFETY: every x86-64 CPU has RDTSC; `calibrate_tsc` made sure that it may be used.
            unsafe { _rdtsc() }
        } else {
            monotonic_ns()
        }
    }

    /// A stamp after what is timed, taken when all of it is done.
    #[inline(always)]
    pub fn stop(&self) -> u64 {
        if self.factor != 0 {
            // LFENCE and RDTSC rather than RDTSCP, which some emulated vCPUs lack.
            // SAFETY: LFENCE is part of x86-64; for RDTSC see `start`.
            unsafe {
                _mm_lfence();
                _rdtsc()
            }
        } else {
            monotonic_ns()
        }
    }

    /// Nanoseconds from one stamp to a later one; 0 when the later one is not later.
    #[inline(always)]
    pub fn ns(&self, start: u64, stop: u64) -> u64 {
        let ticks = stop.saturating_sub(start);
        if self.factor != 0 {
            ((u128::from(ticks) * u128::from(self.factor)) >> 32) as u64
        } else {
            ticks
        }
    }

    /// Does something, and records how long it took.
    #[inline(always)]
    pub(crate) fn time<T>(&self, latency: &mut Latency, work: impl FnOnce() -> T) -> T {
        let began = self.start();
        let done = work();
        latency.record(self.ns(began, self.stop()));
        done
    }

    /// Returns the median of the times between a start and a stop with nothing between them, in ns.
    fn pair_ns(&self) -> f64 {
        let mut ticks: Vec<u64> = (0..10_001)
            .map(|_| {
                let start = self.start();
                self.stop().saturating_sub(start)
            })
            .collect();
        let middle = ticks.len() / 2;
        let (_, median, _) = ticks.select_nth_unstable(middle);
        *median as f64 * 1000.0 / self.about.mhz
    }
}

/// Reads `CLOCK_MONOTONIC`, in ns.
pub(crate) fn monotonic_ns() -> u64 {
    gettime_ns(libc::CLOCK_MONOTONIC)
}

fn gettime_ns(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is valid for writing.
    unsafe { libc::clock_gettime(clock, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// One moment on both clocks: TSC ticks and raw nanoseconds.
#[derive(Clone, Copy)]
struct Moment {
    ticks: u64,
    ns: u64,
}

/// The best of several readings: the one whose two TSC stamps lie closest together was disturbed least.
fn moment() -> Result<Moment, String> {
    let mut best = (u64::MAX, Moment { ticks: 0, ns: 0 });
    let mut last = 0;
    for _ in 0..24 {
        // SAFETY: see `Clock::start`.
        let before = unsafe { _rdtsc() };
        let ns = gettime_ns(libc::CLOCK_MONOTONIC_RAW);
        // SAFETY: as above.
        let after = unsafe { _rdtsc() };
        if before < last || after < before {
            return Err("the TSC goes backwards".to_owned());
        }
        last = after;
        if after - before < best.0 {
            best = (
                after - before,
                Moment {
                    ticks: before + (after - before) / 2,
                    ns,
                },
            );
        }
    }
    Ok(best.1)
}

/// MHz and the relative disagreement of two calibrations, or why the TSC will not do.
fn calibrate_tsc() -> Result<(f64, f64), String> {
    let mut mode: libc::c_int = libc::PR_TSC_ENABLE;
    // SAFETY: PR_GET_TSC writes one int; where it is unknown it writes nothing.
    unsafe { libc::prctl(libc::PR_GET_TSC, &mut mode) };
    if mode == libc::PR_TSC_SIGSEGV {
        return Err("reading the TSC is forbidden to this process".to_owned());
    }
    if gettime_ns(libc::CLOCK_MONOTONIC_RAW) == 0 {
        return Err("there is no CLOCK_MONOTONIC_RAW to calibrate the TSC against".to_owned());
    }
    let mhz = |a: Moment, b: Moment| {
        (b.ticks.saturating_sub(a.ticks)) as f64 * 1000.0 / (b.ns.max(a.ns + 1) - a.ns) as f64
    };
    let first = moment()?;
    std::thread::sleep(WINDOW);
    let second = moment()?;
    std::thread::sleep(WINDOW);
    let third = moment()?;
    let whole = mhz(first, third);
    let error = (mhz(first, second) - mhz(second, third)).abs() / whole;
    if !(whole.is_finite() && (1.0..100_000.0).contains(&whole)) {
        return Err(format!("the TSC ticks at {whole:.3} MHz"));
    }
    if error > AGREEMENT {
        return Err(format!(
            "two calibrations of the TSC differ by {:.2} %",
            error * 100.0
        ));
    }
    same_on_every_cpu(third, whole)?;
    Ok((whole, error))
}

/// Visits each CPU this thread may use and compares its TSC with what the calibration predicts.
fn same_on_every_cpu(origin: Moment, mhz: f64) -> Result<(), String> {
    // A kernel without affinity calls cannot be asked; one CPU needs no asking.
    let Ok(allowed) = sched_getaffinity(None) else {
        return Ok(());
    };
    if allowed.count() < 2 {
        return Ok(());
    }
    let mut verdict = Ok(());
    for cpu in (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)) {
        let mut only = CpuSet::new();
        only.set(cpu);
        if sched_setaffinity(None, &only).is_err() {
            continue;
        }
        verdict = moment().and_then(|here| {
            let foretold = (here.ns - origin.ns) as f64 * mhz / 1000.0;
            let off_ns = (here.ticks as f64 - origin.ticks as f64 - foretold).abs() * 1000.0 / mhz;
            // The rate is only known to within AGREEMENT, so distance from the origin widens the bound.
            let bound = SKEW_NS + (here.ns - origin.ns) as f64 * AGREEMENT;
            if off_ns > bound {
                Err(format!("the TSC of CPU {cpu} is {off_ns:.0} ns off"))
            } else {
                Ok(())
            }
        });
        if verdict.is_err() {
            break;
        }
    }
    let _ = sched_setaffinity(None, &allowed);
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// Returns the difference between a sleep of 100 ms by this clock and by the standard library's, as a share.
    fn disagreement(clock: &Clock) -> f64 {
        let began = Instant::now();
        let start = clock.start();
        std::thread::sleep(Duration::from_millis(100));
        let ns = clock.ns(start, clock.stop());
        (ns as f64 / began.elapsed().as_nanos() as f64 - 1.0).abs()
    }

    /// A busy machine may stop the test between two checks clocks, but not three times.
    fn agrees(clock: &Clock) -> bool {
        (0..3).any(|_| disagreement(clock) < 2e-3)
    }

    #[test]
    fn the_calibrated_clock_agrees_with_the_kernel() {
        let clock = Clock::calibrate();
        assert!(agrees(&clock), "{:?}", clock.about());
        assert!(clock.about().pair_ns > 0.0 && clock.about().error < AGREEMENT);
    }

    #[test]
    fn without_a_tsc_the_kernel_is_asked() {
        let clock = Clock::without_tsc("there is none");
        assert!(agrees(&clock));
        assert!(clock.pair_ns() > 0.0);
    }

    #[test]
    fn time_does_not_run_backwards() {
        let clock = Clock::calibrate();
        assert_eq!(clock.ns(1000, 999), 0);
    }
}
