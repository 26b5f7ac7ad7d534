//! Candidates that `vmtax tune` tries on a guest that it boots, its measurements, its findings.

use crate::{BeforeAfter, ChangeCost, Comparison, Metric, NotTried, TuneVerdict, Variant};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Candidates that are tried on a guest that is booted for them. It is the plan's `[tune-guest]`; the plan's first
/// variant is the baseline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GuestTuneSpec {
    /// The figure that decides.
    pub metric: Metric,
    /// Time for all measurements, s.
    pub budget_s: u32,
    /// Candidates that are tried.
    #[serde(default, rename = "candidate", skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<GuestCandidate>,
    /// Remedies that are not tried here, with the reason.
    #[serde(default, rename = "not-tried", skip_serializing_if = "Vec::is_empty")]
    pub not_tried: Vec<NotTried>,
    /// Whose twin the guest is; absent for one of vmtax's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub like: Option<TwinOf>,
    /// Differences between the fio job and the workload here, a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub job_notes: Vec<String>,
    /// Parts that were measured, in this order: empty until the tuning begins.
    #[serde(default, rename = "part", skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<GuestTunePart>,
}

/// The VM whose twin a guest is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TwinOf {
    /// Description of the VM: `libvirt domain web01 (PID 4711)`.
    pub source: String,
    /// The disk that is tuned, by the VM's name of it.
    pub disk: String,
    /// Image of the disk, which is only read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<PathBuf>,
    /// Properties of the VM that the test guest does not have, a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_twinned: Vec<String>,
    /// The domain's name, where it is one; absent in older plans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain_name: Option<String>,
    /// The domain as libvirt has it stored, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain_xml: Option<String>,
}

/// A change of the guest's configuration that is tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GuestCandidate {
    /// Name of the candidate: `aio=native`.
    pub name: String,
    /// The settings, over the baseline's, as in [`Variant::set`]; [`GuestTuneSpec::LEFT_OUT`] removes one.
    pub set: BTreeMap<String, String>,
    /// When it harms.
    pub trap: String,
    /// Published source on it.
    pub source: String,
    /// Cost of applying it to a VM; absent in older plans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<ChangeCost>,
}

/// Why rounds are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum GuestTunePhase {
    /// Search for candidates that are faster than the baseline, or beside those that stand out.
    Screening,
    /// Test of one more candidate beside those that help already.
    Combination,
    /// Search among the candidates that are left for those that help beside all that help, which may have masked them.
    SecondScreening,
    /// Test of all that are left together, and of each beside the others: on boots that chose none of them.
    Confirmation,
}

/// Rounds of the same configurations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GuestTunePart {
    /// Reason why these rounds are measured.
    pub phase: GuestTunePhase,
    /// Configurations that boot in each round: the numbers of the candidates that are on, ascending; none for the
    /// baseline. The others are compared with the first; in a confirmation it has all that are to be confirmed.
    pub configurations: Vec<Vec<usize>>,
    /// First round of the part, from 0.
    pub first_round: u32,
    /// Number of rounds; 0 while it is measured.
    pub rounds: u32,
}

/// Next step of the measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestTuneStep {
    /// Reason why it is measured.
    pub phase: GuestTunePhase,
    /// As in [`GuestTunePart`].
    pub configurations: Vec<Vec<usize>>,
}

impl GuestTuneSpec {
    /// Name of the baseline.
    pub const BASELINE: &str = "baseline";
    /// A candidate's value of a setting that removes it from the baseline's.
    pub const LEFT_OUT: &str = "default";
    /// More do not fit into a tuning.
    pub const MAX_CANDIDATES: usize = 24;
    /// Configurations at most: each candidate beside ever more of the others, and what is confirmed.
    pub const MAX_VARIANTS: u32 = 512;

    /// Returns the name of a configuration.
    pub fn name(&self, configuration: &[usize]) -> String {
        let names = configuration
            .iter()
            .filter_map(|number| self.candidates.get(*number));
        let names: Vec<&str> = names.map(|candidate| &*candidate.name).collect();
        if names.is_empty() {
            GuestTuneSpec::BASELINE.to_owned()
        } else {
            names.join(" + ")
        }
    }

    /// Returns the settings of a configuration's candidates together, over those of `baseline`.
    pub fn settings(
        &self,
        baseline: &Variant,
        configuration: &[usize],
    ) -> BTreeMap<String, String> {
        let mut set = baseline.set.clone();
        for candidate in configuration
            .iter()
            .filter_map(|number| self.candidates.get(*number))
        {
            set.extend(candidate.set.clone());
        }
        set.retain(|_, value| value != GuestTuneSpec::LEFT_OUT);
        set
    }

    /// A configuration as a variant.
    pub fn variant(&self, baseline: &Variant, configuration: &[usize]) -> Variant {
        Variant {
            name: self.name(configuration),
            set: self.settings(baseline, configuration),
        }
    }
}

/// A candidate with what the measurements say of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestTuneRow {
    /// Candidate that the row is about.
    #[serde(flatten)]
    pub candidate: GuestCandidate,
    /// Result for the candidate.
    pub verdict: TuneVerdict,
    /// Why, where the measurements do not say.
    pub why: Option<String>,
    /// The changes beside which it was screened last: `cache=writeback + aio=io_uring`; null for the baseline alone.
    pub beside: Option<String>,
    /// With it against without, beside these; null where it was not measured.
    pub screening: Option<Comparison>,
    /// With it against without, beside all others that were confirmed with it; null where that was not measured.
    pub confirmation: Option<Comparison>,
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
    /// The figure that decides.
    pub metric: Metric,
    /// All that is kept against the baseline, by the rounds of the confirmation alone; null where nothing is kept.
    pub total: Option<Comparison>,
    /// The metric's median with the baseline in these rounds.
    pub before: Option<f64>,
    /// The metric's median with all that is kept, in these rounds.
    pub after: Option<f64>,
    /// Other figures of these rounds.
    pub guards: Vec<BeforeAfter>,
    /// Candidates with their results.
    pub candidates: Vec<GuestTuneRow>,
    /// Second screening; null where there was none.
    pub second_screening: Option<SecondScreening>,
    /// The baseline's settings.
    pub baseline: BTreeMap<String, String>,
    /// The settings with all that is kept.
    pub tuned: BTreeMap<String, String>,
    /// Where nothing is kept: what a candidate may save at most, a part of the time, by the widest interval of those that were
    /// measured until they had one.
    pub at_most: Option<f64>,
    /// Remedies that were not tried.
    pub not_tried: Vec<NotTried>,
    /// Differences between the fio job that the workload is from and the workload here, a line each.
    pub job_notes: Vec<String>,
    /// Whose twin it was measured on; null for a guest of vmtax's own.
    pub like: Option<TwinOf>,
    /// Why it ended before all was decided.
    pub ended: Option<String>,
    /// Rounds in all.
    pub rounds: u32,
    /// Boots in all.
    pub boots: u32,
    /// Duration of the tuning, s.
    pub seconds: f64,
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
