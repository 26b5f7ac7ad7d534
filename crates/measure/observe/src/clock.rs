//! When samples are taken, and what time it is then.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Returns the time to the next sample of a series that began at `begin`, or to the end of its time. The time that
/// sampling takes does not move samples, and missed ones are not made up for.
pub(crate) fn until_next(begin: Instant, step: Duration, time: Duration) -> Duration {
    let gone = begin.elapsed();
    let next = moment(step, (gone.as_nanos() / step.as_nanos() + 1) as u32);
    next.min(time).saturating_sub(gone)
}

/// When a step's sample is: somewhere in it, each time elsewhere, so that samples do not beat with what happens regularly, as
/// timers tick. Multiples of the golden ratio fill an interval evenly (Weyl's sequence).
fn moment(step: Duration, number: u32) -> Duration {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    step * number + step.mul_f64((f64::from(number) * GOLDEN).fract())
}

/// Reads `CLOCK_MONOTONIC`, in ns.
pub(crate) fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Reads the CPU time of this process.
pub(crate) fn own_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_fall_into_every_part_of_what_is_regular() {
        let step = Duration::from_millis(50);
        let moments: Vec<Duration> = (0..1000).map(|number| moment(step, number)).collect();
        assert!(
            moments
                .iter()
                .zip(0..)
                .all(|(moment, number)| (step * number..step * (number + 1)).contains(moment))
        );
        for period in [1, 4, 10, 25, 50, 100] {
            let mut parts = [0; 10];
            for at in &moments {
                let within = at.as_secs_f64() * 1e3 / f64::from(period);
                parts[(within.fract() * 10.0) as usize] += 1;
            }
            assert!(
                parts.iter().all(|part| (60..=140).contains(part)),
                "{period} ms: {parts:?}"
            );
        }
    }
}
