//! The time between two samples.

/// The time between two samples.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// Its length, s.
    pub seconds: f64,
}

impl Window {
    /// A counter's growth per second; 0 for one that began anew.
    pub fn rate(&self, before: u64, after: u64) -> f64 {
        after.saturating_sub(before) as f64 / self.seconds
    }
}
