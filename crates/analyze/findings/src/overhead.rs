//! Findings over metrics: overheads of machines (`run`), of ways to share (`share`), and costs of antipatterns, each with
//! its remedies.

use crate::{Advice, Comparison, Estimate, Verdict};
use serde::{Deserialize, Serialize};
use vmtax_model::{
    Antipattern, CpuSeconds, Kept, KernelIdentity, LatencySummary, Machine, Metric, ShareFacts,
    Warning, WorkloadName,
};

/// One metric on one machine over the rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Rounds that gave a value.
    pub n: u32,
    /// Median, in the metric's unit.
    pub median: f64,
    /// Smallest value, in the metric's unit.
    pub min: f64,
    /// Largest value, in the metric's unit.
    pub max: f64,
    /// Half the distance between the quartiles over the median: the relative spread. `None` below three values, and
    /// where the median is 0.
    pub relative_spread: Option<f64>,
    /// The values in the order of rounds.
    pub values: Vec<f64>,
    /// The latency distribution behind the metric, all rounds together, where the metric has one.
    pub latency: Option<LatencySummary>,
}

/// One machine's column in a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineColumn {
    /// Machine of the column.
    pub machine: Machine,
    /// Figures of the machine; `None` when no trial gave a value.
    pub spread: Option<Spread>,
    /// Compared with native, in the metric's unit; `None` for native itself and where one side is missing.
    pub overhead: Option<Comparison>,
    /// Why there is no figure, when the system lacks what it takes.
    pub unsupported: Option<String>,
}

/// One metric over all machines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OverheadRow {
    /// Metric of the row.
    pub metric: Metric,
    /// In the plan's order of machines.
    pub machines: Vec<MachineColumn>,
}

/// Findings of `run`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// [`crate::REPORT_SCHEMA`] of the writer.
    pub schema: u32,
    /// Number of planned rounds.
    pub rounds_planned: u32,
    /// Rounds in which every machine finished every workload.
    pub rounds_complete: u32,
    /// Method of computing the intervals, for people.
    pub method: String,
    /// The kernel each machine ran.
    pub kernels: Vec<(Machine, KernelIdentity)>,
    /// A row for each metric that any machine gave.
    pub rows: Vec<OverheadRow>,
    /// Warnings that the reader has to know.
    pub warnings: Vec<Warning>,
    /// At most five, what gives back most first.
    pub advice: Vec<Advice>,
}

impl Findings {
    /// The metric of a machine with the largest ratio to native: of those that are significantly slower, if there are any.
    pub fn largest_overhead(&self, machine: Machine) -> Option<(Metric, &Comparison)> {
        let overheads = self.rows.iter().flat_map(|row| {
            let columns = row
                .machines
                .iter()
                .filter(|column| column.machine == machine);
            columns.filter_map(|column| Some((row.metric, column.overhead.as_ref()?)))
        });
        let is_slower = |comparison: &Comparison| comparison.verdict == Verdict::Slower;
        overheads.max_by(|(_, a), (_, b)| {
            let by_ratio = a.ratio.median.total_cmp(&b.ratio.median);
            is_slower(a).cmp(&is_slower(b)).then(by_ratio)
        })
    }
}

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

/// An antipattern or its fix, measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AntipatternForm {
    /// Time of one operation, ns: the median of each round's median.
    pub ns: Estimate,
    /// VM exits of one, as KVM counts them, the median of the rounds; null where nobody counts.
    pub exits: Option<f64>,
    /// Number of times that it was stamped, in all rounds.
    pub n: u64,
}

/// An antipattern beside its fix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AntipatternRow {
    /// Antipattern that the row is about.
    pub antipattern: Antipattern,
    /// The antipattern; null where it could not be measured.
    pub before: Option<AntipatternForm>,
    /// Fix of the antipattern; null where it could not be measured.
    pub after: Option<AntipatternForm>,
    /// Cost of the antipattern over that of its fix, of the same rounds.
    pub ratio: Option<Estimate>,
    /// VM exits that the fix saves per operation, of the same rounds; null where nobody counts.
    pub exits_saved: Option<Estimate>,
    /// True if one of them ran where this host's KVM emulates the guest: the figures are then the emulation's.
    pub emulated: bool,
    /// Why one could not be measured; empty where both were.
    pub why: String,
}

/// All antipatterns on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineAntipatterns {
    /// Machine that was measured: a micro-guest's.
    pub machine: Machine,
    /// The antipatterns, in their order.
    pub rows: Vec<AntipatternRow>,
}

/// Findings of the workload `antipatterns`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AntipatternFindings {
    /// [`crate::REPORT_SCHEMA`] of the writer.
    pub schema: u32,
    /// Number of planned rounds.
    pub rounds_planned: u32,
    /// Method of computing the figures, for people.
    pub method: String,
    /// The machines, in the plan's order.
    pub machines: Vec<MachineAntipatterns>,
    /// Warnings that the reader has to know.
    pub warnings: Vec<Warning>,
}
