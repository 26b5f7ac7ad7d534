//! Distributions of ticks, for people.

use std::sync::OnceLock;

/// Ticks per microsecond.
pub fn per_us() -> f64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(vmtax_clock::host_mhz)
}

/// The value that so many percent are at most.
pub fn percentile(ticks: &[u64], percent: usize) -> u64 {
    let mut sorted = ticks.to_vec();
    sorted.sort_unstable();
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// p50, p90, p99 and the largest, in microseconds.
pub fn summary(ticks: &[u64]) -> String {
    let [p50, p90, p99, max] =
        [50, 90, 99, 100].map(|percent| percentile(ticks, percent) as f64 / per_us());
    format!("{p50:10.3} {p90:10.3} {p99:10.3} {max:10.3} us")
}
