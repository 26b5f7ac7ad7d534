//! Changes that `vmtax tune` tries on a running VM, and its records.

use crate::{LiveChange, LiveMetric, VmCounters, VmFacts};
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
