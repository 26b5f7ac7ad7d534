//! Earlier measurements: figures of many runs in order of time, and where they changed.

use crate::{Estimate, Machine, Metric};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A run that a figure is from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastRun {
    /// The recording's folder, by its name.
    pub folder: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// The plan's name.
    pub name: String,
    /// True if the recording is still there.
    pub recorded: bool,
}

/// Conditions that figures must share to be compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SeriesKey {
    /// Where it was measured.
    pub machine: Machine,
    /// In which of the plan's variants; empty for the only one.
    pub variant: String,
    /// At which size of a range: `disk.depth=8`; empty without one.
    pub step: String,
    /// Whose CPUs: model and how many.
    pub host: String,
    /// Settings of the run: the workload's options as they took effect, the guest's size, the command, the tree.
    pub settings: BTreeMap<String, String>,
}

/// One metric of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PastFigure {
    /// Run that the figure is from.
    pub run: PastRun,
    /// Rounds that gave a value.
    pub n: u32,
    /// The median over them with its interval, in the metric's unit.
    pub value: Estimate,
    /// Facts that may change from run to run within a series: kernels, QEMU, vmtax, by the fact's name.
    pub facts: BTreeMap<String, String>,
}

/// A fact that one run has otherwise than the one before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactChange {
    /// Name of the fact.
    pub fact: String,
    /// Value before; `None` where it was not known.
    pub before: Option<String>,
    /// Value after; `None` where it is not known.
    pub after: Option<String>,
    /// The first run with it, by its place in the series.
    pub at: usize,
}

/// Where the figures of a series changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The first run after it, by its place in the series.
    pub at: usize,
    /// Probability that chance alone splits as well: the permutation test's p.
    pub p: f64,
    /// Median of the runs since the change before this one.
    pub before: f64,
    /// Number of runs since the change before this one.
    pub runs_before: usize,
    /// Median of the runs from here to the next change.
    pub after: f64,
    /// Number of runs from here to the next change.
    pub runs_after: usize,
    /// Cost after over cost before: above 1 slower, whichever way the metric counts; `None` where a median is 0.
    pub ratio: Option<f64>,
    /// Facts that changed at this run, or at the run before or after it.
    pub facts: Vec<FactChange>,
}

/// A metric's figures over time under the same conditions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeriesFindings {
    /// Conditions that the figures share.
    #[serde(flatten)]
    pub key: SeriesKey,
    /// The runs, oldest first.
    pub figures: Vec<PastFigure>,
    /// Number of the figures, at the end, that were searched for changes.
    pub searched: usize,
    /// Where they changed, in order.
    pub changes: Vec<Change>,
}

/// Findings of `history` about a metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryFindings {
    /// [`crate::REPORT_SCHEMA`] of the writer.
    pub schema: u32,
    /// Metric of the figures.
    pub metric: Metric,
    /// Each kind of conditions by itself.
    pub series: Vec<SeriesFindings>,
    /// Method of finding changes and what it guarantees, for people.
    pub method: String,
}

/// A metric of the history on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// Metric of the entry.
    pub metric: Metric,
    /// On which machine.
    pub machine: Machine,
    /// In how many runs.
    pub runs: u32,
    /// In how many series: runs under the same conditions.
    pub series: u32,
    /// When the first of them began, RFC 3339.
    pub first: String,
    /// When the last of them began.
    pub last: String,
}
