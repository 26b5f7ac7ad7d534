//! Time stamps of the host, and distributions of them for people.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The host's time stamp counter.
pub fn now() -> u64 {
    // SAFETY: every x86-64 processor has it, and user mode may read it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Ticks per microsecond, as good as a table for people needs.
pub fn per_us() -> f64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let (begin, ticks) = (Instant::now(), now());
        std::thread::sleep(Duration::from_millis(50));
        (now() - ticks) as f64 / begin.elapsed().as_secs_f64() / 1e6
    })
}

/// The value that so many percent are at most.
pub fn percentile(ticks: &[u64], percent: usize) -> u64 {
    let mut sorted = ticks.to_vec();
    sorted.sort_unstable();
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// p50, p90, p99 and the largest, in microseconds.
pub fn summary(ticks: &[u64]) -> String {
    let [p50, p90, p99, max] = [50, 90, 99, 100].map(|percent| percentile(ticks, percent) as f64 / per_us());
    format!("{p50:10.3} {p90:10.3} {p99:10.3} {max:10.3} us")
}
