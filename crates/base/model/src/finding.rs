//! Findings of an analysis.

use crate::{Advice, Comparison, KernelIdentity, LatencySummary, Machine, Metric, Warning};
use serde::{Deserialize, Serialize};

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
    /// The metric of a machine with the largest ratio to native.
    pub fn largest_overhead(&self, machine: Machine) -> Option<(Metric, &Comparison)> {
        let columns = self
            .rows
            .iter()
            .flat_map(|row| row.machines.iter().map(|column| (row.metric, column)));
        let of_machine = columns.filter(|(_, column)| column.machine == machine);
        let overheads =
            of_machine.filter_map(|(metric, column)| Some((metric, column.overhead.as_ref()?)));
        overheads.max_by(|a, b| a.1.ratio.median.total_cmp(&b.1.ratio.median))
    }
}
