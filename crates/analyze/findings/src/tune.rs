//! Findings of `tune`: on a running VM, and on a guest that it booted.

use crate::Comparison;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use vmtax_model::{Candidate, GuestCandidate, Metric, NotTried, TwinOf, Variant, VmFacts};

/// Decision on a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TuneVerdict {
    /// It helped, and again when it was measured again.
    #[strum(serialize = "kept")]
    Keep,
    /// It does not help, or harms.
    #[strum(serialize = "rejected")]
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
pub struct TuneRow<C> {
    /// Change that was tried.
    #[serde(flatten)]
    pub candidate: C,
    /// Decision on the change.
    pub verdict: TuneVerdict,
    /// Why, where the measurements do not say.
    pub why: Option<String>,
    /// The changes beside which it was screened last: `cache=writeback + aio=io_uring`; null where there were none.
    pub beside: Option<String>,
    /// With it against without, beside these; null where it was not measured.
    pub screening: Option<Comparison>,
    /// With it against without, beside all others that were confirmed with it; null where that was not measured.
    pub confirmation: Option<Comparison>,
}

/// Findings of every run of `tune`: of a running VM, and of a guest that it booted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuneOutcome<C> {
    /// All that are kept against none, by measurements of their own; null where nothing is kept.
    pub total: Option<Comparison>,
    /// Candidates with their decisions.
    pub candidates: Vec<TuneRow<C>>,
    /// Remedies that were not tried.
    pub not_tried: Vec<NotTried>,
    /// Why it ended before all was decided.
    pub ended: Option<String>,
    /// Duration of the measurements, s.
    pub seconds: f64,
}

impl<C> TuneOutcome<C> {
    /// Returns the candidates that are kept.
    pub fn kept(&self) -> impl Iterator<Item = &TuneRow<C>> {
        let rows = self.candidates.iter();
        rows.filter(|row| row.verdict == TuneVerdict::Keep)
    }
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
    /// With the changes over without, in the figure's own unit, with the result by the direction in which the figure is better:
    /// [`crate::Verdict::Differs`] where neither is. Null where it is zero somewhere.
    pub comparison: Option<Comparison>,
}

/// The findings of `tune` on a running VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuneFindings {
    /// Findings of every run.
    #[serde(flatten)]
    pub outcome: TuneOutcome<Candidate>,
    /// VM that was tuned.
    pub vm: VmFacts,
    /// True if settings were changed.
    pub applied: bool,
    /// Part of the VM of which the diagnosis had no figure, as "its disks"; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unobserved: Option<String>,
    /// The figure that counts in the total.
    pub metric: String,
    /// Figures of the VM without and with the kept changes.
    pub moved: Vec<BeforeAfter>,
    /// True if the kept changes are still on.
    pub is_on: bool,
}

/// Second screening of candidates beside all that helped, which may have masked them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondScreening {
    /// All that helped: `cache=writeback + aio=io_uring`.
    pub beside: String,
    /// The names of what was screened.
    pub candidates: Vec<String>,
    /// Names of the candidates that are kept.
    pub kept: Vec<String>,
    /// Number of boots of the second screening.
    pub boots: u32,
}

/// The findings of `tune` on a guest that it booted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestTuneFindings {
    /// Findings of every run; the total is by the rounds of the confirmation alone.
    #[serde(flatten)]
    pub outcome: TuneOutcome<GuestCandidate>,
    /// The figure that decides.
    pub metric: Metric,
    /// The metric's median with the baseline in these rounds.
    pub before: Option<f64>,
    /// The metric's median with all that is kept, in these rounds.
    pub after: Option<f64>,
    /// Other figures of these rounds.
    pub guards: Vec<BeforeAfter>,
    /// Second screening; null where there was none.
    pub second_screening: Option<SecondScreening>,
    /// The baseline's settings.
    pub baseline: BTreeMap<String, String>,
    /// The settings with all that is kept.
    pub tuned: BTreeMap<String, String>,
    /// Where nothing is kept: what a candidate may save at most, a part of the time, by the widest interval of those that were
    /// measured until they had one.
    pub at_most: Option<f64>,
    /// Differences between the fio job that the workload is from and the workload here, a line each.
    pub job_notes: Vec<String>,
    /// VM whose configuration the test guest has; null without `--like`.
    pub like: Option<TwinOf>,
    /// Rounds in all.
    pub rounds: u32,
    /// Boots in all.
    pub boots: u32,
}

impl GuestTuneFindings {
    /// The settings that differ between the baseline and what is kept: name, before, after; a side is `None` where it has none.
    pub fn changed(&self) -> Vec<(&str, Option<&str>, Option<&str>)> {
        let (before, after) = (&self.baseline, &self.tuned);
        let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let sides = keys.into_iter().map(|key| {
            (
                key.as_str(),
                before.get(key).map(String::as_str),
                after.get(key).map(String::as_str),
            )
        });
        sides.filter(|(_, before, after)| before != after).collect()
    }

    /// Returns true if a setting is of the measured disk; where the workload is of the network, a device's setting is
    /// its card's.
    pub fn is_of_disk(&self, key: &str) -> bool {
        !self.metric.workload().needs_network() && Variant::is_of_disk(key)
    }

    /// Returns true if a setting of the measured disk is among the changed ones.
    pub fn changes_disk(&self) -> bool {
        self.changed().iter().any(|(key, ..)| self.is_of_disk(key))
    }

    /// Returns true if a setting that is not of the measured disk is among the changed ones.
    pub fn changes_guest(&self) -> bool {
        self.changed().iter().any(|(key, ..)| !self.is_of_disk(key))
    }
}
