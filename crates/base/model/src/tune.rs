//! What `vmtax tune` tries on a running VM, what it recorded, what it found.

use crate::{Comparison, LiveChange, LiveMetric, VmCounters, VmFacts};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What is tried on a running VM. It is the plan's `[tune]`.
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
    /// Whether anything is changed; else the plan only says what would be.
    pub apply: bool,
    /// How long to measure in all, ms.
    pub time_ms: u64,
    /// How long a setting is measured at a time, ms.
    pub block_ms: u64,
    /// A shell command that prints the figure that counts, once for each measurement, in place of the candidates' own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<TuneMetric>,
    /// What is tried, in this order.
    #[serde(default, rename = "candidate", skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Candidate>,
    /// Remedies of what was found that are not tried here.
    #[serde(default, rename = "not-tried", skip_serializing_if = "Vec::is_empty")]
    pub not_tried: Vec<NotTried>,
}

// Gains are checked to be numbers.
impl Eq for TuneSpec {}

impl TuneSpec {
    /// How long to measure in all.
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.time_ms)
    }

    /// How long a setting is measured at a time.
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
        /// The command.
        line: String,
        /// Whether more of it is better.
        higher_is_better: bool,
    },
}

/// A change that is tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Candidate {
    /// The rule that proposes it.
    pub rule: String,
    /// Its finding: one sentence.
    pub finding: String,
    /// Its ceiling: what it can save at most, a part of the time, 0 to 1. 0 where that is not known.
    pub ceiling: f64,
    /// The change.
    pub change: LiveChange,
}

/// A remedy that is not tried, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotTried {
    /// What to do.
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
    /// Whether a candidate helps.
    Screening,
    /// Whether one that helped still does, together with the others.
    Confirmation,
    /// All that are kept against none.
    Total,
}

/// Two measurements next to each other: without a change and with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairPlan {
    /// Why.
    pub phase: TunePhase,
    /// The candidates that change between the two.
    pub changed: Vec<usize>,
    /// The candidates that are on in both.
    pub base: Vec<usize>,
    /// Whether the measurement with the change comes first.
    pub changed_first: bool,
}

/// What is to be done next.
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
    /// What the user's command printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printed: Option<f64>,
}

/// A line of the artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TuneRecord {
    /// The VM, first of all.
    Vm(Box<VmFacts>),
    /// Two measurements.
    Pair {
        /// Why, and of what.
        plan: PairPlan,
        /// Without the change.
        without: Box<TuneBlock>,
        /// With it.
        with: Box<TuneBlock>,
    },
    /// A candidate that could not be set, or does not read back.
    Refused {
        /// Which.
        candidate: usize,
        /// Why.
        why: String,
    },
    /// Why no more was measured.
    Ended {
        /// Why.
        why: String,
    },
    /// What was left on at the end.
    Kept {
        /// The candidates.
        candidates: Vec<usize>,
    },
}

/// What was decided of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TuneVerdict {
    /// It helped, and again when it was measured again.
    #[strum(serialize = "keep")]
    Keep,
    /// It does not help, or harms.
    #[strum(serialize = "reject")]
    Reject,
    /// Not decided.
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
    /// The candidate.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// The verdict.
    pub verdict: TuneVerdict,
    /// Why, where the measurements do not say.
    pub why: Option<String>,
    /// With the change against without, alone or on top of what had helped by then; null where it was not measured.
    pub screening: Option<Comparison>,
    /// The same, measured again, together with the others that helped; null where that was not measured.
    pub confirmation: Option<Comparison>,
}

/// A figure of the VM without the changes that are kept, and with them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BeforeAfter {
    /// What it is.
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
    /// The VM.
    pub vm: VmFacts,
    /// Whether anything was changed.
    pub applied: bool,
    /// The figure that counts in the total.
    pub metric: String,
    /// All that are kept against none, by measurements of their own; null where nothing is kept.
    pub total: Option<Comparison>,
    /// What moved with them.
    pub moved: Vec<BeforeAfter>,
    /// The candidates.
    pub candidates: Vec<TuneRow>,
    /// Whether the kept ones are still on.
    pub is_on: bool,
    /// Remedies that were not tried.
    pub not_tried: Vec<NotTried>,
    /// Why it ended before all was decided.
    pub ended: Option<String>,
    /// How long was measured, s.
    pub seconds: f64,
}
