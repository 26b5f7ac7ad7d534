//! The host's own speed, measured by a fixed piece of work beside each slot of a comparison, to detect drift.

use std::hint::black_box;
use std::time::Instant;

/// Some milliseconds of work.
const STEPS: u64 = 4_000_000;
/// The fastest counts: interruptions are not the host's speed.
const TRIES: usize = 5;

/// Measures the time that the host takes for the fixed work, seconds.
pub(crate) fn seconds() -> f64 {
    let once = |_| {
        let begin = Instant::now();
        // Each step needs the one before: neither vectors nor a cleverer compiler shorten it.
        black_box((0..STEPS).fold(1_u64, |x, i| {
            (x ^ i).wrapping_mul(6_364_136_223_846_793_005)
        }));
        begin.elapsed().as_secs_f64()
    };
    (0..TRIES).map(once).fold(f64::INFINITY, f64::min)
}
