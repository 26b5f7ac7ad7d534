//! What an analysis says.

use crate::{Advice, KernelIdentity, LatencySummary, Machine, Metric, Warning};
use serde::{Deserialize, Serialize};

/// A range that holds the true value in at least 95 % of repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The coverage it really has, 0 to 1, at this number of rounds.
    pub coverage: f64,
}

/// A figure with its interval, where there are rounds enough for one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The median over rounds.
    pub median: f64,
    /// The interval; `None` below six rounds.
    pub interval: Option<Interval>,
}

impl Estimate {
    /// What it is at least: the interval's lower end. By this figures are ranked, since a wide interval may have a high
    /// median by chance. The median where there is no interval.
    pub fn at_least(&self) -> f64 {
        self.interval.map_or(self.median, |i| i.low)
    }
}

/// One metric on one machine over the rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Rounds that gave a value.
    pub n: u32,
    /// Median, in the metric's unit.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Half the distance between the quartiles over the median: the relative spread. `None` below three values, and
    /// where the median is 0.
    pub relative_spread: Option<f64>,
    /// The values in the order of rounds.
    pub values: Vec<f64>,
    /// The latency distribution behind the metric, all rounds together, where the metric has one.
    pub latency: Option<LatencySummary>,
}

/// Whether a tax stands above the noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The machine costs more than native.
    Costs,
    /// The machine costs less than native.
    Gains,
    /// The machine's figure is another than native's, and which way is better is not known.
    Differs,
    /// The interval holds "no difference".
    NoDifferenceShown,
    /// Too few rounds to say.
    TooFewRounds,
}

/// What a machine costs against native, for one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tax {
    /// Cost on the machine over cost on native: above 1 the machine is slower, whichever way the metric counts.
    pub ratio: Estimate,
    /// Machine minus native, in the metric's unit.
    pub difference: Estimate,
    /// Rounds in which both gave a value.
    pub rounds: u32,
    /// What may be said.
    pub verdict: Verdict,
}

/// One machine's column in a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineColumn {
    /// Which machine.
    pub machine: Machine,
    /// Its figures; `None` when no trial gave a value.
    pub spread: Option<Spread>,
    /// Against native; `None` for native itself and where one side is missing.
    pub tax: Option<Tax>,
    /// Why there is no figure, when the system lacks what it takes.
    pub unsupported: Option<String>,
}

/// One metric over all machines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaxRow {
    /// Which metric.
    pub metric: Metric,
    /// In the plan's order of machines.
    pub machines: Vec<MachineColumn>,
}

/// What `run` found out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// [`crate::SCHEMA`] of the writer.
    pub schema: u32,
    /// Rounds planned.
    pub rounds_planned: u32,
    /// Rounds in which every machine finished every workload.
    pub rounds_complete: u32,
    /// How the intervals are made, for people.
    pub method: String,
    /// The kernel each machine ran.
    pub kernels: Vec<(Machine, KernelIdentity)>,
    /// A row for each metric that any machine gave.
    pub rows: Vec<TaxRow>,
    /// What the reader has to know.
    pub warnings: Vec<Warning>,
    /// At most five, what gives back most first.
    pub advice: Vec<Advice>,
}
