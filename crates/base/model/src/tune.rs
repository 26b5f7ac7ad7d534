//! Changes that `vmtax tune` tries on a running VM, its records, its findings.

use crate::{Comparison, LiveChange, LiveMetric, VmCounters, VmFacts};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Changes to try on a running VM, and how long to measure. It is the plan's `[tune]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TuneSpec {
    /// The VM's process.
    pub pid: i32,
    /// When its process started, clock ticks after the host's boot: a PID is used again. `None` in plans of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<u64>,
    /// The VM's name, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// True if settings are changed; else the plan only says what would be changed.
    pub apply: bool,
    /// Total time to measure, ms.
    pub time_ms: u64,
    /// Time for which a setting is measured at a time, ms.
    pub block_ms: u64,
    /// A shell command that prints the figure that counts, once for each measurement, in place of the candidates' own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<TuneMetric>,
    /// Changes to try, in this order.
    #[serde(default, rename = "candidate", skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Candidate>,
    /// Remedies of what was found that are not tried here.
    #[serde(default, rename = "not-tried", skip_serializing_if = "Vec::is_empty")]
    pub not_tried: Vec<NotTried>,
}

// Gains are checked to be numbers.
impl Eq for TuneSpec {}

impl TuneSpec {
    /// Returns the total time to measure.
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.time_ms)
    }

    /// Returns the time for which a setting is measured at a time.
    pub fn block(&self) -> Duration {
        Duration::from_millis(self.block_ms)
    }
}

/// The figure that counts, where the user names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum TuneMetric {
    /// One of the VM's own.
    Vm(LiveMetric),
    /// The last number that a shell command prints.
    Command {
        /// Line of the shell.
        line: String,
        /// True if a larger number is better.
        higher_is_better: bool,
    },
}

/// A change that is tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Candidate {
    /// The rule that proposes it.
    pub rule: String,
    /// Finding of the rule: one sentence.
    pub finding: String,
    /// Upper bound of the gain: the part of the time that the change can save, 0 to 1. 0 where it is not known.
    pub ceiling: f64,
    /// Change to a setting that is tried.
    pub change: LiveChange,
}

/// A remedy that is not tried, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotTried {
    /// Action of the remedy.
    pub action: String,
    /// Lines to copy; empty where there are none.
    #[serde(default)]
    pub line: String,
    /// Why it is not tried.
    pub why: String,
}

/// Why two measurements are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TunePhase {
    /// Pairs that test if a candidate helps.
    Screening,
    /// Pairs that test if a candidate that helped still does, together with the others.
    Confirmation,
    /// All that are kept against none.
    Total,
}

/// Two measurements next to each other: without a change and with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairPlan {
    /// Reason for the two measurements.
    pub phase: TunePhase,
    /// The candidates that change between the two.
    pub changed: Vec<usize>,
    /// The candidates that are on in both.
    pub base: Vec<usize>,
    /// True if the measurement with the change comes first.
    pub changed_first: bool,
}

/// Next action of a tuning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TuneStep {
    /// Measure a pair.
    Pair(PairPlan),
    /// Leave these candidates on, and end.
    End(Vec<usize>),
}

/// One measurement: the counters at its ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuneBlock {
    /// At its start.
    pub before: VmCounters,
    /// At its end.
    pub after: VmCounters,
    /// Number that the user's command printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printed: Option<f64>,
}

/// A line of the artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TuneRecord {
    /// The VM, first of all.
    Vm(Box<VmFacts>),
    /// Two measurements, without and with a change.
    Pair {
        /// Why, and of what.
        plan: PairPlan,
        /// Without the change.
        without: Box<TuneBlock>,
        /// Measurement with the change.
        with: Box<TuneBlock>,
    },
    /// A candidate that could not be set, or does not read back.
    Refused {
        /// Index of the candidate.
        candidate: usize,
        /// Reason of the refusal.
        why: String,
    },
    /// Why no more was measured.
    Ended {
        /// Reason of the end.
        why: String,
    },
    /// Candidates whose changes were kept at the end.
    Kept {
        /// Indexes of the candidates.
        candidates: Vec<usize>,
    },
}

/// Decision on a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TuneVerdict {
    /// It helped, and again when it was measured again.
    #[strum(serialize = "keep")]
    Keep,
    /// It does not help, or harms.
    #[strum(serialize = "reject")]
    Reject,
    /// No decision was reached.
    #[strum(serialize = "inconclusive")]
    Inconclusive,
    /// It could not be set.
    #[strum(serialize = "refused")]
    Refused,
    /// Nothing was measured.
    #[strum(serialize = "not measured")]
    NotMeasured,
}

/// A candidate with what the measurements say of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuneRow {
    /// Change that was tried.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// Decision on the change.
    pub verdict: TuneVerdict,
    /// Why, where the measurements do not say.
    pub why: Option<String>,
    /// With the change against without, alone or on top of what had helped by then; null where it was not measured.
    pub screening: Option<Comparison>,
    /// Comparison measured again, together with the others that helped; null where that was not measured.
    pub confirmation: Option<Comparison>,
}

/// A figure of the VM without the changes that are kept, and with them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BeforeAfter {
    /// Name of the figure.
    pub name: String,
    /// The unit: `ns`, `fraction`, `per second`, `bytes per second`, or empty.
    pub unit: String,
    /// Median of the measurements without.
    pub before: f64,
    /// Median of those with.
    pub after: f64,
    /// With against without, as costs; null where it is zero somewhere.
    pub comparison: Option<Comparison>,
}

/// The findings of `tune`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuneFindings {
    /// VM that was tuned.
    pub vm: VmFacts,
    /// True if settings were changed.
    pub applied: bool,
    /// The figure that counts in the total.
    pub metric: String,
    /// All that are kept against none, by measurements of their own; null where nothing is kept.
    pub total: Option<Comparison>,
    /// Figures of the VM without and with the kept changes.
    pub moved: Vec<BeforeAfter>,
    /// Candidates with their decisions.
    pub candidates: Vec<TuneRow>,
    /// True if the kept changes are still on.
    pub is_on: bool,
    /// Remedies that were not tried.
    pub not_tried: Vec<NotTried>,
    /// Why it ended before all was decided.
    pub ended: Option<String>,
    /// Duration of the measurements, s.
    pub seconds: f64,
}
