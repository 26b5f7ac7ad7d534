//! Results of analyses, in one vocabulary: a figure with its interval is an [`Estimate`], beside another a
//! [`Comparison`] with a [`Verdict`]; a distribution is a [`Summary`], a share of samples a
//! [`SampleShare`], a cost with its remedies an [`Advice`].

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};
use vmtax_model::{Interval, Latency, LiveChange, Remedy};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(VariantArray, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Verdict {
    /// It costs more.
    Slower,
    /// It costs less.
    Faster,
    /// The interval excludes equality, and neither direction is known to be better.
    Differs,
    /// The interval lies within the smallest difference that matters; without one, within what is printed as ×1.000.
    Equivalent,
    /// The interval contains equality and is too wide for [`Verdict::Equivalent`].
    Inconclusive,
    /// There are too few rounds for an interval.
    TooFewRounds,
}

/// A ratio that is nearer to 1 is printed as ×1.000.
const SAME_IN_PRINT: f64 = 0.0005;

impl Verdict {
    /// Returns the result by the interval of a ratio of costs: slower or faster if it lies on one side of `limit`, equivalent if
    /// each of its ends is printed as `limit` itself, as of counts that are the same in each round.
    pub fn by_interval(ratio: &Estimate, limit: f64) -> Verdict {
        let is_equal = |end: f64| (end / limit - 1.0).abs() < SAME_IN_PRINT;
        match ratio.interval {
            None => Verdict::TooFewRounds,
            Some(i) if is_equal(i.low) && is_equal(i.high) => Verdict::Equivalent,
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
    /// Cost over the baseline's: above 1 slower, whichever way the figure counts; of [`crate::BeforeAfter`] the figure itself.
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

/// A distribution of times, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of times in the distribution.
    #[serde(default)]
    pub n: u64,
    /// Shortest time, ns.
    #[serde(default)]
    pub min_ns: f64,
    /// Half are at most this.
    pub p50_ns: f64,
    /// 90 % are at most this.
    pub p90_ns: f64,
    /// 99 % are at most this.
    pub p99_ns: f64,
    /// Longest time, ns.
    pub max_ns: f64,
    /// The mean. The means of all rows of a table of layers add up to its total's.
    pub mean_ns: f64,
}

impl Summary {
    /// Summarizes a histogram; `None` when it is empty.
    pub fn summarize(latency: &Latency) -> Option<Summary> {
        let summary = latency.summary()?;
        Some(Summary {
            n: summary.count,
            min_ns: summary.min_ns as f64,
            p50_ns: summary.p50_ns as f64,
            p90_ns: latency.quantile(0.9) as f64,
            p99_ns: summary.p99_ns as f64,
            max_ns: summary.max_ns as f64,
            mean_ns: summary.mean_ns,
        })
    }
}

/// A share of samples, with its interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SampleShare {
    /// Number of samples in this share.
    pub samples: u64,
    /// Of all, 0 to 1.
    pub share: f64,
    /// Lower end of the interval that sampling leaves, at 95 % by default.
    pub low: f64,
    /// Upper end of that interval.
    pub high: f64,
}

/// A cost that a rule found, with what takes it away.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// The rule's identifier, as docs/rules.md lists it.
    pub rule: String,
    /// The finding: one sentence with its figure.
    pub finding: String,
    /// Upper bound of the remedies' gain: a share of the measured time, 0 to 1. 0 where it is not known.
    pub gain: f64,
    /// Remedies of the cost, best first.
    pub remedies: Vec<Remedy>,
    /// The live remedy as a change that `vmtax tune` makes, measures and undoes; null where it can make none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<LiveChange>,
    /// Who published the cost or the mechanism: a title and, behind its last colon, what it says there. Empty where the
    /// finding rests on its own figures alone.
    pub source: String,
}

impl Advice {
    /// The source's title; empty where there is none.
    pub fn source_title(&self) -> &str {
        self.source
            .rsplit_once(": ")
            .map_or(&*self.source, |(title, _)| title)
    }
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
            Verdict::by_interval(
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
            (verdict_for(1.0, 1.0), verdict_for(1.0001, 1.0003)),
            (Verdict::Equivalent, Verdict::Equivalent),
            "the same counts in each round, and what is printed as the same"
        );
        assert_eq!(verdict_for(1.0, 1.001), Verdict::Inconclusive);
        assert_eq!(
            (verdict_for(1.0, 1.2), verdict_for(0.8, 1.0)),
            (Verdict::Inconclusive, Verdict::Inconclusive)
        );
        assert_eq!(
            Verdict::by_interval(
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
