//! Durations of system calls: sums, and the row of a table that is made of them.

use serde::{Deserialize, Serialize};

/// A kind of system call on one thread, or the time in user space after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallRow {
    /// "ppoll", "io_submit", "ioctl(KVM_RUN)"; with "_post" behind it for the user time after it.
    pub name: String,
    /// Number of calls, or of times in user space after them.
    pub count: u64,
    /// Mean duration, ns.
    pub mean_ns: f64,
    /// Standard deviation, ns.
    pub stddev_ns: f64,
    /// Shortest duration, ns.
    pub min_ns: f64,
    /// Longest duration, ns.
    pub max_ns: f64,
    /// Sum of all durations, ns.
    pub total_ns: f64,
}

/// Count, mean, spread and extremes of durations. The variance is updated as B. P. Welford does it
/// (*Technometrics* 4, 1962), which loses no digits however long the run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moments {
    count: u64,
    mean: f64,
    /// Sum of squared distances from the mean.
    squares: f64,
    min: f64,
    max: f64,
    total: f64,
}

impl Default for Moments {
    fn default() -> Self {
        Moments {
            count: 0,
            mean: 0.0,
            squares: 0.0,
            min: f64::INFINITY,
            max: 0.0,
            total: 0.0,
        }
    }
}

impl Moments {
    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        let off = value - self.mean;
        self.mean += off / self.count as f64;
        self.squares += off * (value - self.mean);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.total += value;
    }

    /// Adds all of another: T. F. Chan and others, *Updating formulae*, 1979.
    pub fn merge(&mut self, other: &Moments) {
        if other.count == 0 {
            return;
        }
        let (n, m) = (self.count as f64, other.count as f64);
        let off = other.mean - self.mean;
        self.count += other.count;
        self.mean += off * m / (n + m);
        self.squares += other.squares + off * off * n * m / (n + m);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.total += other.total;
    }

    /// Each value multiplied.
    pub fn scaled(&self, by: f64) -> Moments {
        Moments {
            count: self.count,
            mean: self.mean * by,
            squares: self.squares * by * by,
            min: self.min * by,
            max: self.max * by,
            total: self.total * by,
        }
    }

    /// As a report has it; the values are nanoseconds.
    pub fn row(&self, name: String) -> CallRow {
        let variance = if self.count > 1 {
            self.squares / (self.count - 1) as f64
        } else {
            0.0
        };
        CallRow {
            name,
            count: self.count,
            mean_ns: self.mean,
            stddev_ns: variance.sqrt(),
            min_ns: if self.count > 0 { self.min } else { 0.0 },
            max_ns: self.max,
            total_ns: self.total,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_by_hand_and_merged() {
        let values = [4.0, 9.0, 4.0, 2.0, 5.0, 5.0, 7.0, 4.0];
        let all = |v: &[f64]| {
            let mut m = Moments::default();
            v.iter().for_each(|v| m.add(*v));
            m
        };
        let whole = all(&values).row("x".into());
        assert_eq!(
            (
                whole.count,
                whole.mean_ns,
                whole.min_ns,
                whole.max_ns,
                whole.total_ns
            ),
            (8, 5.0, 2.0, 9.0, 40.0)
        );
        assert!((whole.stddev_ns - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        for cut in 0..=values.len() {
            let mut merged = all(&values[..cut]);
            merged.merge(&all(&values[cut..]));
            let merged = merged.row("x".into());
            assert!(
                (merged.mean_ns - 5.0).abs() < 1e-12
                    && (merged.stddev_ns - whole.stddev_ns).abs() < 1e-12
            );
            assert_eq!((merged.count, merged.min_ns, merged.max_ns), (8, 2.0, 9.0));
        }
        assert_eq!(Moments::default().row("x".into()).min_ns, 0.0);
    }
}
