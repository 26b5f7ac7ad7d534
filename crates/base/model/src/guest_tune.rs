//! Candidates that `vmtax tune` tries on a guest that it boots, and its measurements.

use crate::{ChangeCost, Metric, NotTried, Variant};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
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
