//! Earlier results: figures of many runs in order of time, and where they changed; the claims of a published result.

use crate::Estimate;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vmtax_model::{Machine, Metric};

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

/// The unit of a claim's figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimUnit {
    /// One cost over another.
    Ratio,
    /// Time in nanoseconds.
    Nanoseconds,
    /// A fraction of a whole, in percent.
    Percent,
    /// Number of things.
    Count,
    /// The exponent of a size.
    Exponent,
}

/// Result of a recording for a published claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimVerdict {
    /// The interval of what was measured lies within the claim.
    Reproduced,
    /// It lies outside the claim.
    NotReproduced,
    /// It lies on both sides of the claim's bound, or the rounds are too few for one.
    Inconclusive,
    /// This host or this recording has no figure for the claim.
    NotTestable,
}

/// One claim of a published result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClaimRow {
    /// The claim, in words.
    pub what: String,
    /// The published figure, as people write it.
    pub published: String,
    /// Measured figure; `None` where nothing was measured, or where the result is no figure (`why` says it then).
    pub measured: Option<Estimate>,
    /// The unit of `measured`.
    pub unit: ClaimUnit,
    /// Result for the claim: reproduced, not reproduced, inconclusive or not testable.
    pub verdict: ClaimVerdict,
    /// Basis of the result, or the reason why there is none.
    pub why: String,
    /// Number of further rounds that would decide an inconclusive claim, about; `None` where no number of rounds is
    /// likely to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_needed: Option<u32>,
    /// The metric that it is about, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<Metric>,
}

/// A published result compared with a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReproductionFindings {
    /// [`crate::REPORT_SCHEMA`] of the writer.
    pub schema: u32,
    /// The name, as `vmtax reproduce` takes it.
    pub name: String,
    /// In a few words.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// The finding in a sentence or two.
    pub claim: String,
    /// Not reproduced where one claim is not; reproduced where one is and none is not; inconclusive where one is.
    pub verdict: ClaimVerdict,
    /// Claim by claim.
    pub rows: Vec<ClaimRow>,
}
