//! Many hosts: what a dataset says of them, which are outliers within their class, and which facts explain it.

use crate::Estimate;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use vmtax_model::Better;

/// A fact's names with their values; a guest's fact has its machine behind the name: `qemu_version (kvm)`.
pub type Facts = BTreeMap<String, String>;

/// The runs of a dataset, as far as comparing hosts needs them.
#[derive(Debug, Clone, Default)]
pub struct FleetData {
    /// Every run that left figures.
    pub runs: Vec<FleetRun>,
    /// Series that were measured.
    pub series: Vec<FleetSeries>,
    /// Each measure once, in the order of runs, series and trials.
    pub figures: Vec<FleetFigure>,
    /// Data that could not be read or is doubtful, with what to do: a sentence each.
    pub warnings: Vec<String>,
}

/// A run on one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetRun {
    /// Run's identifier in the dataset.
    pub id: String,
    /// The host's name, or its hash where names were not to be given.
    pub host: String,
    /// When it began, `2026-11-25`, as the host's clock had it.
    pub date: String,
    /// Facts known of the host and its guests.
    pub facts: Arc<Facts>,
}

/// Conditions that figures must share to be compared between hosts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FleetSeries {
    /// `cpu.events`, or what a command printed.
    pub metric: String,
    /// Where it was measured: `native`, `kvm`.
    pub machine: String,
    /// Variant of the guest; empty for the only one.
    pub variant: String,
    /// Of `scale`: at which size.
    pub size: Option<i64>,
    /// Workload that ran.
    pub workload: String,
    /// Options of workload and guest, JSON.
    pub settings: String,
    /// Unit of the figures.
    pub unit: String,
    /// Direction that is better; `None` where it is not known, and then no host is slower.
    pub better: Option<Better>,
}

/// A measure of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FleetFigure {
    /// Index of the figure's run.
    pub run: u32,
    /// Index of the figure's series.
    pub series: u32,
    /// The trial's number in its recording.
    pub trial: u32,
    /// The round that it belongs to, from 0.
    pub round: u32,
    /// In the series' unit; finite and above 0.
    pub value: f64,
}

/// The verdict on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostVerdict {
    /// Slower than the other hosts of its class.
    Slower,
    /// Faster than the other hosts of its class.
    Faster,
    /// As far from the others as an outlier, in too few runs to exclude chance.
    TooFewRuns,
    /// Within what hosts of its class differ by.
    Typical,
}

/// A host among those of its class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostRow {
    /// Name of the host.
    pub host: String,
    /// Class of the host, as an index into [`FleetFindings::classes`].
    pub class: usize,
    /// Runs that count.
    pub runs: u32,
    /// Cost over that of the class's median host, the median over metrics and runs: above 1 slower. The interval is over runs.
    pub ratio: Estimate,
    /// Probability that chance alone gives any host of this dataset such a rank and distance: corrected for all hosts.
    pub p: f64,
    /// The verdict on it.
    pub verdict: HostVerdict,
}

/// Hosts that are compared with each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostClass {
    /// The values of the facts that make the class.
    pub name: String,
    /// Number of hosts in the class.
    pub hosts: u32,
    /// Difference between its hosts: the scaled MAD of their ratios, relative.
    pub spread: f64,
}

/// A host that is an outlier in one metric alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricOutlier {
    /// The host, by its place in [`FleetFindings::hosts`].
    pub host: usize,
    /// Series in which the host is an outlier.
    #[serde(flatten)]
    pub series: FleetSeries,
    /// As [`HostRow::ratio`], of this metric alone.
    pub ratio: Estimate,
    /// As [`HostRow::p`], corrected for all metrics too.
    pub p: f64,
    /// Slower or faster.
    pub verdict: HostVerdict,
}

/// Hosts with a value of a fact, beside those with the most common value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FactValue {
    /// The value; empty where it is not known.
    pub value: String,
    /// Hosts with it.
    pub hosts: u32,
    /// Outliers among them.
    pub outliers: u32,
    /// Their cost over that of hosts of the same class with the most common value, by Hodges and Lehmann; `None` of that value
    /// itself, and where no class has both.
    pub ratio: Option<Estimate>,
}

/// Effect of a fact: the part of the difference that it explains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FactEffect {
    /// Name of the fact.
    pub fact: String,
    /// The share of the difference that is left out by comparing hosts with the same value, 0 to 1.
    pub explained: Estimate,
    /// Probability that chance alone gives any of the facts such ranks of its hosts: corrected for all facts.
    pub p: f64,
    /// Facts that divide the hosts in the same way: the figures cannot distinguish them.
    pub same_as: Vec<String>,
    /// Values of the fact, the most common first.
    pub values: Vec<FactValue>,
}

/// Findings of `fleet`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetFindings {
    /// [`crate::REPORT_SCHEMA`] of the writer.
    pub schema: u32,
    /// The facts that make a class.
    pub class_by: Vec<String>,
    /// The smallest difference that matters, relative.
    pub min_effect: f64,
    /// Runs that were read.
    pub runs: u32,
    /// Figures that were compared.
    pub figures: u64,
    /// Metrics, each with its machine, settings, size and variant, that were compared.
    pub metrics: u32,
    /// First and last day of the runs; empty without any.
    pub dates: [String; 2],
    /// Classes that have hosts enough to compare, the largest first.
    pub classes: Vec<HostClass>,
    /// Their hosts: outliers first, the slowest first.
    pub hosts: Vec<HostRow>,
    /// Hosts that are outliers in a metric and not over all.
    pub metric_outliers: Vec<MetricOutlier>,
    /// Facts, those shown first, then by what they explain.
    pub facts: Vec<FactEffect>,
    /// Of the hosts in their order the value of the first fact.
    pub first_fact: Vec<String>,
    /// Data that could not be read or compared, with what to do.
    pub warnings: Vec<String>,
    /// Method of the analysis and what it guarantees, for people.
    pub method: String,
}

impl FleetFindings {
    /// The hosts with this verdict.
    pub fn with(&self, verdict: HostVerdict) -> impl Iterator<Item = &HostRow> {
        self.hosts
            .iter()
            .filter(move |host| host.verdict == verdict)
    }

    /// Returns true if facts explain outliers; false if they explain what all hosts differ by.
    pub fn has_outliers(&self) -> bool {
        self.hosts
            .iter()
            .any(|host| matches!(host.verdict, HostVerdict::Slower | HostVerdict::Faster))
    }

    /// The fact that explains most, where one is shown.
    pub fn cause(&self) -> Option<&FactEffect> {
        self.facts.first().filter(|fact| fact.p <= FLEET_LEVEL)
    }
}

/// Significance level: the largest share of datasets without an outlier in which any host is named as one; likewise of
/// facts.
pub const FLEET_LEVEL: f64 = 0.05;
