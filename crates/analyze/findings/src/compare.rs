//! Findings of `compare` and of `compare --check`.

use crate::{Comparison, Estimate, REPORT_SCHEMA, Spread, Verdict};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use vmtax_model::{Interval, Metric, Warning};

/// One metric of one variant, compared with the baseline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// Metric that is compared.
    pub metric: Metric,
    /// The baseline's figures.
    pub base: Spread,
    /// The variant's figures.
    pub other: Spread,
    /// Both compared; interval and p hold at all interim analyses together.
    #[serde(flatten)]
    pub comparison: Comparison,
    /// Comparison's p, corrected for the number of metrics (Holm).
    pub p_adjusted: f64,
    /// The permutation test's p, as if there were no other interim analysis and no other metric.
    pub permutation: f64,
    /// Frequency with which the variant costs more than the baseline, ties counted half: 0 to 1.
    pub superiority: f64,
    /// The noise of one round's ratio, a fraction.
    pub noise: f64,
    /// Rounds that would find a difference of `min_effect` in four of five comparisons, or decide what only the correction for the
    /// number of metrics leaves open; `None` where thousands would not, or where the verdict is decided.
    pub rounds_needed: Option<u32>,
}

impl Compared {
    /// Returns true if the metric's own interval shows a difference, and only the correction for the number of metrics
    /// (Holm) does not.
    pub fn is_left_open_by_correction(&self) -> bool {
        let excludes = |interval: Interval| interval.low > 1.0 || interval.high < 1.0;
        self.comparison.verdict == Verdict::Inconclusive
            && self.comparison.ratio.interval.is_some_and(excludes)
    }

    /// Rounds in which the side is ahead that the ratio says, ties counted half.
    pub fn rounds_ahead(&self) -> u32 {
        let slower = if self.comparison.ratio.median < 1.0 {
            1.0 - self.superiority
        } else {
            self.superiority
        };
        (slower * f64::from(self.comparison.rounds)).round() as u32
    }
}

/// One variant compared with the baseline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Against {
    /// Variant's name in the plan.
    pub variant: String,
    /// By metric; those that both have.
    pub rows: Vec<Compared>,
}

/// Findings of `compare`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CompareFindings {
    /// [`crate::REPORT_SCHEMA`] of the writer.
    pub schema: u32,
    /// Name of the baseline, with which all others are compared.
    pub baseline: String,
    /// The others, in the plan's order.
    pub against: Vec<Against>,
    /// The smallest difference that matters, as a share.
    pub min_effect: f64,
    /// Rounds in which every variant finished every workload.
    pub rounds: u32,
    /// The most rounds there could have been; of recordings 0.
    pub rounds_planned: u32,
    /// Median duration of a round, seconds; 0 of recordings.
    pub round_s: f64,
    /// True if the variants took turns in one boot a round (A B B A); false if each had a boot of its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub one_boot: bool,
    /// Repeats at the beginning of each turn that were only warming up, by metric where there are any.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub warming_up: BTreeMap<Metric, u32>,
    /// Method of the comparison and what it guarantees, for people.
    pub method: String,
    /// Warnings that the reader has to know.
    pub warnings: Vec<Warning>,
}

impl CompareFindings {
    /// Findings without any figure.
    pub fn new(baseline: &str, min_effect: f64) -> CompareFindings {
        CompareFindings {
            schema: REPORT_SCHEMA,
            baseline: baseline.to_owned(),
            min_effect,
            ..CompareFindings::default()
        }
    }

    /// Returns true if recordings were compared, which have no rounds in common.
    pub fn is_of_recordings(&self) -> bool {
        self.rounds_planned == 0
    }

    /// Returns true if every metric of every variant is decided.
    pub fn is_decided(&self) -> bool {
        let mut rows = self.against.iter().flat_map(|a| &a.rows).peekable();
        rows.peek().is_some() && rows.all(|r| r.comparison.verdict.is_decided())
    }
}

/// By how much a metric may be worse than its baseline. As TOML:
///
/// ```toml
/// confidence = 0.95
/// worse = 0.05
/// [metrics]
/// "cpu.events" = 0.02
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Thresholds {
    /// Confidence required to report that a metric is worse by more than its threshold: 0.5 to 0.999.
    pub confidence: f64,
    /// For every metric that is not named, as a share.
    pub worse: f64,
    /// For single metrics.
    pub metrics: BTreeMap<Metric, f64>,
}

impl Default for Thresholds {
    fn default() -> Self {
        Thresholds {
            confidence: 0.95,
            worse: 0.05,
            metrics: BTreeMap::new(),
        }
    }
}

/// Thresholds that cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("the thresholds cannot be used: {0}")]
pub struct ThresholdError(String);

impl Thresholds {
    /// Reads thresholds from TOML and checks them.
    ///
    /// # Errors
    /// [`ThresholdError`], naming the line, or the value out of range.
    pub fn from_toml(text: &str) -> Result<Thresholds, ThresholdError> {
        let all: Thresholds = toml::from_str(text)
            .map_err(|e| ThresholdError(e.to_string().trim_end().to_owned()))?;
        if !(0.5..=0.999).contains(&all.confidence) {
            return Err(ThresholdError(format!(
                "confidence is {}: give 0.5 to 0.999",
                all.confidence
            )));
        }
        let bad = all
            .metrics
            .values()
            .chain([&all.worse])
            .find(|w| !(0.0..=100.0).contains(*w))
            .copied();
        match bad {
            Some(worse) => Err(ThresholdError(format!(
                "a threshold is {worse}: give a share, 0.05 for 5 %"
            ))),
            None => Ok(all),
        }
    }

    /// A metric's own, as a share.
    pub fn for_metric(&self, metric: Metric) -> f64 {
        self.metrics.get(&metric).copied().unwrap_or(self.worse)
    }
}

/// One metric, checked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckedRow {
    /// Where it was measured: a machine, and its variant, if any.
    pub place: String,
    /// Metric that is checked.
    pub metric: Metric,
    /// Median over the rounds of the baseline, in the metric's unit.
    pub then: f64,
    /// Median over the rounds of the recording that is checked, in the metric's unit.
    pub now: f64,
    /// Now compared with the baseline; the interval is of the asked-for confidence on its lower side. The verdict is
    /// [`Verdict::Slower`] where it is worse by more than `threshold`, otherwise [`Verdict::Inconclusive`].
    #[serde(flatten, serialize_with = "as_checked")]
    pub comparison: Comparison,
    /// Rounds of the baseline and of now.
    pub rounds: (u32, u32),
    /// By how much it may be worse, as a share.
    pub threshold: f64,
}

/// With the words of `vmtax compare --check --json`.
fn as_checked<S: Serializer>(c: &Comparison, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Checked {
        ratio: Estimate,
        checked: &'static str,
    }
    let checked = match c.verdict {
        Verdict::Slower => "worse",
        Verdict::TooFewRounds => "too-few-rounds",
        Verdict::Faster | Verdict::Differs | Verdict::Equivalent | Verdict::Inconclusive => {
            "passed"
        }
    };
    Checked {
        ratio: c.ratio,
        checked,
    }
    .serialize(serializer)
}

/// Findings of `compare --check`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckFindings {
    /// [`crate::REPORT_SCHEMA`] of the writer.
    pub schema: u32,
    /// The baseline's recording.
    pub baseline: String,
    /// The recording that is checked.
    pub now: String,
    /// Confidence required to report a metric as worse: 0.5 to 0.999.
    pub confidence: f64,
    /// A row for each metric that both have.
    pub rows: Vec<CheckedRow>,
    /// Warnings that the reader has to know.
    pub warnings: Vec<Warning>,
}

impl CheckFindings {
    /// Returns true if any metric is worse by more than its threshold.
    pub fn failed(&self) -> bool {
        self.rows
            .iter()
            .any(|r| r.comparison.verdict == Verdict::Slower)
    }

    /// Returns true if no metric could be tested, so that nothing is known.
    pub fn tested_nothing(&self) -> bool {
        self.rows
            .iter()
            .all(|r| r.comparison.verdict == Verdict::TooFewRounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_read_and_nonsense_is_refused() {
        let text = "confidence = 0.9\nworse = 0.1\n[metrics]\n\"cpu.events\" = 0.02\n";
        let t = Thresholds::from_toml(text).unwrap();
        assert_eq!(
            (
                t.for_metric(Metric::CpuEvents),
                t.for_metric(Metric::MutexTime),
                t.confidence
            ),
            (0.02, 0.1, 0.9)
        );
        assert_eq!(Thresholds::from_toml("").unwrap(), Thresholds::default());
        for bad in [
            "confidence = 1.0",
            "worse = -1.0",
            "worse = nan",
            "[metrics]\n\"cpu.nothing\" = 0.1",
            "x = 1",
        ] {
            assert!(Thresholds::from_toml(bad).is_err(), "{bad}");
        }
        assert!(
            Thresholds::from_toml("a = 1\nworse")
                .unwrap_err()
                .to_string()
                .contains("line 2")
        );
    }
}
