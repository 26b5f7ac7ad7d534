//! Detection of interrupts that come as regularly as a timer's.

use std::collections::BTreeMap;

/// Largest difference between an interval and the one before, as a share, at which it is still regular: a busy host
/// delivers late.
const SLACK: f64 = 0.25;

/// The arrivals of one interrupt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ticks {
    last: Option<u64>,
    /// The interval before.
    interval: u64,
    /// Intervals like the one before, by about how long they are: how many, and their sum.
    regular: BTreeMap<u32, (u64, u64)>,
}

impl Ticks {
    pub fn take(&mut self, at: u64) {
        if let Some(last) = self.last {
            let interval = at.saturating_sub(last);
            if (interval as f64 - self.interval as f64).abs() <= SLACK * self.interval as f64
                && interval > 0
            {
                let (count, sum) = self.regular.entry(class(interval)).or_default();
                *count += 1;
                *sum = sum.saturating_add(interval);
            }
            self.interval = interval;
        }
        self.last = Some(at);
    }

    /// Returns the number of regular arrivals, and their rate per second: at the rate that the interrupt mostly had.
    pub fn rate(&self, mhz: f64) -> Option<(u64, f64)> {
        let (count, sum) = self
            .regular
            .values()
            .copied()
            .max_by_key(|(count, _)| *count)?;
        Some((count, 1e6 * mhz * count as f64 / sum as f64))
    }
}

/// Intervals of one class differ by less than a half.
fn class(interval: u64) -> u32 {
    (interval as f64).log(1.5) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(intervals: impl IntoIterator<Item = u64>) -> (u64, f64) {
        let mut ticks = Ticks::default();
        let mut at = 1_000;
        ticks.take(at);
        for interval in intervals {
            at += interval;
            ticks.take(at);
        }
        ticks.rate(1.0).unwrap_or_default()
    }

    #[test]
    fn a_timer_is_told_from_other_interrupts() {
        // At 1 MHz, intervals of 1000 ticks are 1000 Hz; now and then the host is late; later it is 100 Hz.
        let timer = (0..300)
            .map(|i| if i % 20 == 0 { 1_700 } else { 1_000 + i % 7 })
            .chain([10_000; 100]);
        let (count, hz) = rate(timer);
        assert!(
            count > 200 && (hz - 1_000.0).abs() < 20.0,
            "{count} at {hz} Hz"
        );
        let (count, hz) = rate((0..200).map(|i| 100 + i * i * 37 % 5_000));
        assert!(count < 20, "{count} at {hz} Hz");
        assert_eq!(rate([0; 200]).0, 0, "all at once");
    }
}
