//! A figure beside another of the same, and what may be said of the two.

use crate::Estimate;
use serde::{Deserialize, Serialize};

/// What may be said of a figure beside its baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// It costs more.
    #[serde(rename = "costs")]
    Slower,
    /// It costs less.
    #[serde(rename = "gains")]
    Faster,
    /// It is another, and which way is better is not known. Of a published claim: it was not reproduced.
    #[serde(rename = "differs", alias = "does-not-hold-here")]
    Differs,
    /// The interval lies within what does not matter. Of a published claim: it was reproduced.
    #[serde(rename = "same", alias = "holds")]
    Same,
    /// The interval holds both a difference and none.
    #[serde(rename = "no-difference-shown", alias = "not-testable-here")]
    NotShown,
    /// There are too few rounds for an interval.
    #[serde(rename = "too-few-rounds")]
    TooFewRounds,
}

impl Verdict {
    /// What the interval of a ratio of costs says: whether it lies on one side of `limit`.
    pub fn of(ratio: &Estimate, limit: f64) -> Verdict {
        match ratio.interval {
            None => Verdict::TooFewRounds,
            Some(i) if i.low > limit => Verdict::Slower,
            Some(i) if i.high < limit => Verdict::Faster,
            Some(_) => Verdict::NotShown,
        }
    }

    /// Whether more rounds could not say more.
    pub fn is_decided(self) -> bool {
        !matches!(self, Verdict::NotShown | Verdict::TooFewRounds)
    }
}

/// A figure beside its baseline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Cost over the baseline's: above 1 slower, whichever way the figure counts.
    pub ratio: Estimate,
    /// The figure minus the baseline, in its own unit; `None` where nobody asks.
    pub difference: Option<Estimate>,
    /// Rounds in which both gave a value; of unpaired values the fewer of the two.
    pub rounds: u32,
    /// How often chance alone shows as much; `None` where only the interval decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// What may be said.
    pub verdict: Verdict,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interval;

    #[test]
    fn the_interval_decides_and_its_end_is_not_outside() {
        let of = |low, high| {
            let interval = Some(Interval { low, high, coverage: 0.95 });
            Verdict::of(&Estimate { median: 1.0, interval }, 1.0)
        };
        assert_eq!((of(1.01, 1.2), of(0.8, 0.99)), (Verdict::Slower, Verdict::Faster));
        assert_eq!((of(1.0, 1.2), of(0.8, 1.0)), (Verdict::NotShown, Verdict::NotShown));
        assert_eq!(Verdict::of(&Estimate { median: 9.0, interval: None }, 1.0), Verdict::TooFewRounds);
    }
}
