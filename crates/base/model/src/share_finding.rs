//! Findings of an analysis of methods to share a tree.

use crate::{
    Advice, Comparison, CpuSeconds, Estimate, Kept, Machine, Metric, ShareFacts, Spread, Warning,
    WorkloadName,
};
use serde::{Deserialize, Serialize};

/// One way to share, on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShareColumn {
    /// Machine on which the method was measured.
    pub machine: Machine,
    /// The variant's name; empty for the host itself, which has the tree as a folder.
    pub variant: String,
    /// Rounds in which every workload had a result.
    pub rounds: u32,
    /// Settings that took effect, as the first trial found them; `None` for the host, and where no trial came to it.
    pub facts: Option<ShareFacts>,
    /// CPU time of a trial, median over rounds, by workload.
    pub cpu_seconds: Vec<(WorkloadName, CpuSeconds)>,
    /// Properties of files that the method preserves, as its first trial found.
    pub kept: Vec<Kept>,
    /// Why trials have no result: the first reason.
    pub failed: Option<String>,
}

/// One metric over all columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShareRow {
    /// Metric of this row.
    pub metric: Metric,
    /// In the order of columns.
    pub cells: Vec<ShareCell>,
}

/// One metric of one way to share.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ShareCell {
    /// Figures of the metric; `None` when no trial gave a value.
    pub spread: Option<Spread>,
    /// Cost divided by the base's, of the same rounds: below 1 is faster, whichever way the metric counts.
    pub against: Option<Comparison>,
    /// Why there is no figure, when the system lacks what it takes.
    pub unsupported: Option<String>,
}

/// All of a workload's metrics in one figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShareScore {
    /// Workload with these metrics.
    pub workload: WorkloadName,
    /// In the order of columns: cost over the base's, the geometric mean of the metrics that both have, in each round.
    pub cells: Vec<Option<Estimate>>,
}

/// Findings of `share`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShareFindings {
    /// [`crate::REPORT_SCHEMA`] of the writer.
    pub schema: u32,
    /// Number of rounds planned.
    pub rounds_planned: u32,
    /// Description of how the figures are made, for people.
    pub method: String,
    /// Index of the column that all are compared with: QEMU's default.
    pub base: usize,
    /// The ways to share.
    pub columns: Vec<ShareColumn>,
    /// A row for each metric that any column has.
    pub rows: Vec<ShareRow>,
    /// A score for each workload with several metrics.
    pub scores: Vec<ShareScore>,
    /// Warnings that the reader has to know.
    pub warnings: Vec<Warning>,
    /// At most five, what gives back most first.
    pub advice: Vec<Advice>,
}
