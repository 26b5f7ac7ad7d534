//! TSC ticks, distinguished by whose counter they are: the host's or the guest's.

use rustix::time::{ClockId, clock_gettime};
use std::arch::x86_64::{_mm_lfence, _rdtsc};
use std::time::Duration;
use vmtax_model::{ClockReading, Moment};

/// A moment on the host's time stamp counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostTicks(pub u64);

/// A moment on the guest's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestTicks(pub u64);

/// The counter, read after everything before it in the program is done.
#[inline]
pub(crate) fn now() -> u64 {
    // SAFETY: LFENCE and RDTSC are part of x86-64. A process may be forbidden RDTSC, by a flag that nothing of ours sets.
    unsafe {
        _mm_lfence();
        _rdtsc()
    }
}

/// Time for which the counter is watched. A reading of both clocks is off by some 50 ns: less than 2 in a million.
const WINDOW: Duration = Duration::from_millis(50);

/// Ticks of this machine's time stamp counter per microsecond, against `CLOCK_MONOTONIC_RAW`. Takes 50 ms.
pub fn host_mhz() -> f64 {
    let (ticks, ns) = moment(ClockId::MonotonicRaw);
    std::thread::sleep(WINDOW);
    let (later, later_ns) = moment(ClockId::MonotonicRaw);
    later.saturating_sub(ticks) as f64 * 1000.0 / (later_ns - ns) as f64
}

/// Now, on this machine's counter and by the time of day.
pub fn time_of_day() -> Moment {
    let (ticks, ns) = moment(ClockId::Realtime);
    Moment {
        ticks,
        realtime_ns: u64::try_from(ns).unwrap_or(0),
    }
}

/// Now, on this machine's counter and stamped by the clock that samples are stamped with.
pub fn beat() -> ClockReading {
    let (ticks, ns) = moment(ClockId::Monotonic);
    ClockReading {
        ticks,
        monotonic_ns: u64::try_from(ns).unwrap_or(0),
    }
}

/// One moment on the counter and on a clock: of several readings the one that was disturbed least.
fn moment(clock: ClockId) -> (u64, i64) {
    let mut best = (u64::MAX, (0, 0));
    for _ in 0..24 {
        let before = now();
        let time = clock_gettime(clock);
        let took = now().saturating_sub(before);
        if took < best.0 {
            best = (
                took,
                (
                    before + took / 2,
                    time.tv_sec * 1_000_000_000 + time.tv_nsec,
                ),
            );
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frequency_is_that_of_the_counter() {
        // A busy machine may stop the test between two checks clocks, but not three times.
        let agrees = (0..3).any(|_| {
            let (began, ticks) = (std::time::Instant::now(), now());
            std::thread::sleep(Duration::from_millis(100));
            let mhz = (now() - ticks) as f64 / began.elapsed().as_nanos() as f64 * 1000.0;
            (host_mhz() / mhz - 1.0).abs() < 1e-3
        });
        assert!(agrees);
    }
}
