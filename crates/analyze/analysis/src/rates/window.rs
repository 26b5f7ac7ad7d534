//! The time between two samples of counters.

/// The time between two samples.
pub(super) struct Window {
    /// Length of the interval, s.
    pub seconds: f64,
}

impl Window {
    /// A counter's growth per second; 0 for one that began again.
    pub fn rate(&self, before: u64, after: u64) -> f64 {
        after.saturating_sub(before) as f64 / self.seconds
    }

    /// Seconds as a part of the window. The kernel adds to its times in steps, so that they may be ahead of the clock.
    pub fn part(&self, seconds: f64) -> f64 {
        (seconds / self.seconds).clamp(0.0, 1.0)
    }
}
