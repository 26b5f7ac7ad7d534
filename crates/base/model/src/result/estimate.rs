//! A figure, and how sure it is.

use serde::{Deserialize, Serialize};

/// A range that holds the true value in at least 95 % of repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end of the range.
    pub low: f64,
    /// Upper end of the range.
    pub high: f64,
    /// The coverage it really has, 0 to 1, at this number of rounds.
    pub coverage: f64,
}

/// Below this many rounds even the whole range holds the median less than 95 % of the time (93.75 % at five).
pub const FEWEST_ROUNDS: u32 = 6;

/// A figure with its interval, where there are rounds enough for one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The median over rounds.
    pub median: f64,
    /// The interval; `None` below six rounds.
    pub interval: Option<Interval>,
}

impl Estimate {
    /// Returns the lower bound of the figure: the interval's lower end. By this figures are ranked, since a wide
    /// interval may have a high median by chance. The median where there is no interval.
    pub fn at_least(&self) -> f64 {
        self.interval.map_or(self.median, |i| i.low)
    }
}
