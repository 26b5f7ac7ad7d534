//! Results of analyses, in one vocabulary: a figure with its interval is an [`Estimate`], beside another a
//! [`Comparison`] with a [`Verdict`]; a distribution is a [`Summary`], growth a [`Law`].

mod law;
mod summary;

pub use law::Law;
pub use summary::Summary;

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

/// Result of a figure's comparison with its baseline.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::VariantArray,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Verdict {
    /// It costs more.
    Slower,
    /// It costs less.
    Faster,
    /// The interval excludes equality, and which direction is better is not known.
    Differs,
    /// The interval lies within the smallest difference that matters.
    Equivalent,
    /// The interval contains equality and is too wide for [`Verdict::Equivalent`].
    Inconclusive,
    /// There are too few rounds for an interval.
    TooFewRounds,
}

impl Verdict {
    /// Returns the result by the interval of a ratio of costs: slower or faster if it lies on one side of `limit`.
    pub fn of(ratio: &Estimate, limit: f64) -> Verdict {
        match ratio.interval {
            None => Verdict::TooFewRounds,
            Some(i) if i.low > limit => Verdict::Slower,
            Some(i) if i.high < limit => Verdict::Faster,
            Some(_) => Verdict::Inconclusive,
        }
    }

    /// Returns true if the result is conclusive: more rounds could not say more.
    pub fn is_decided(self) -> bool {
        !matches!(self, Verdict::Inconclusive | Verdict::TooFewRounds)
    }
}

/// A figure beside its baseline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Cost over the baseline's: above 1 slower, whichever way the figure counts.
    pub ratio: Estimate,
    /// The figure minus the baseline, in its own unit; `None` where nobody asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<Estimate>,
    /// Rounds in which both gave a value; of unpaired values the fewer of the two.
    pub rounds: u32,
    /// Probability that chance alone gives as much (the p-value), 0 to 1; `None` where only the interval decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// Result of the comparison.
    pub verdict: Verdict,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_decides_and_its_end_is_not_outside() {
        let verdict_for = |low, high| {
            let interval = Some(Interval {
                low,
                high,
                coverage: 0.95,
            });
            Verdict::of(
                &Estimate {
                    median: 1.0,
                    interval,
                },
                1.0,
            )
        };
        assert_eq!(
            (verdict_for(1.01, 1.2), verdict_for(0.8, 0.99)),
            (Verdict::Slower, Verdict::Faster)
        );
        assert_eq!(
            (verdict_for(1.0, 1.2), verdict_for(0.8, 1.0)),
            (Verdict::Inconclusive, Verdict::Inconclusive)
        );
        assert_eq!(
            Verdict::of(
                &Estimate {
                    median: 9.0,
                    interval: None
                },
                1.0
            ),
            Verdict::TooFewRounds
        );
    }
}
