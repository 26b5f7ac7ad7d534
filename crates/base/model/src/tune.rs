//! Changes that `vmtax tune` tries, on a running VM and on a guest that it boots, and its records.

use crate::{ChangeCost, LiveChange, LiveMetric, Metric, Variant, VmCounters, VmFacts, VmIdentity};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Changes to try on a running VM, and how long to measure. It is the plan's `[tune]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TuneSpec {
    /// The VM's process.
    #[serde(flatten)]
    pub process: VmIdentity,
    /// True if settings are changed; else the plan only says what would be changed.
    pub apply: bool,
    /// Total time to measure, ms.
    pub time_ms: u64,
    /// Time for which a setting is measured at a time, ms.
    pub block_ms: u64,
    /// A shell command that prints the figure that counts, once for each measurement, in place of the candidates' own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<TuneMetric>,
    /// Changes to try, in this order.
    #[serde(default, rename = "candidate", skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Candidate>,
    /// Remedies of what was found that are not tried here.
    #[serde(default, rename = "not-tried", skip_serializing_if = "Vec::is_empty")]
    pub not_tried: Vec<NotTried>,
    /// Part of the VM of which the diagnosis had no figure, as "its disks": another cause may lie there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unobserved: Option<String>,
}

// Gains are checked to be numbers.
impl Eq for TuneSpec {}

impl TuneSpec {
    /// Returns the total time to measure.
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.time_ms)
    }

    /// Returns the time for which a setting is measured at a time.
    pub fn block(&self) -> Duration {
        Duration::from_millis(self.block_ms)
    }
}

/// The figure that counts, where the user names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum TuneMetric {
    /// One of the VM's own.
    Vm(LiveMetric),
    /// The last number that a shell command prints.
    Command {
        /// Line of the shell.
        line: String,
        /// True if a larger number is better.
        higher_is_better: bool,
    },
}

/// A change that a tuning tries.
pub trait Tried {
    /// Returns the name that people know it by: `aio=native`, "Remove the I/O limits of disk0".
    fn name(&self) -> &str;
}

/// A change of a running VM that is tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Candidate {
    /// The rule that proposes it.
    pub rule: String,
    /// Finding of the rule: one sentence.
    pub finding: String,
    /// Part of the VM's time that the cause takes, 0 to 1: the most of this time that the change can save. A latency can fall by
    /// a larger part. 0 where it is not known.
    pub ceiling: f64,
    /// Change to a setting that is tried.
    pub change: LiveChange,
}

impl Tried for Candidate {
    fn name(&self) -> &str {
        &self.change.action
    }
}

/// A remedy that is not tried, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotTried {
    /// Finding that the remedy addresses, one sentence; empty where there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub finding: String,
    /// Action of the remedy.
    pub action: String,
    /// Lines to copy; empty where there are none.
    #[serde(default)]
    pub line: String,
    /// Why it is not tried.
    pub why: String,
}

/// Why two measurements are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TunePhase {
    /// Pairs that test if a candidate helps.
    Screening,
    /// Pairs that test if a candidate that helped still does, together with the others.
    Confirmation,
    /// All that are kept against none.
    Total,
}

/// Two measurements next to each other: without a change and with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairPlan {
    /// Reason for the two measurements.
    pub phase: TunePhase,
    /// The candidates that change between the two.
    pub changed: Vec<usize>,
    /// The candidates that are on in both.
    pub base: Vec<usize>,
    /// True if the measurement with the change comes first.
    pub changed_first: bool,
}

impl PairPlan {
    /// Returns true if the pair is of this phase, and these candidates change in it.
    pub fn is_of(&self, phase: TunePhase, changed: &[usize]) -> bool {
        self.phase == phase && self.changed == changed
    }
}

/// Next action of a tuning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TuneStep {
    /// Measure a pair.
    Pair(PairPlan),
    /// Leave these candidates on, and end.
    End(Vec<usize>),
}

/// One measurement: the counters at its ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuneBlock {
    /// At its start.
    pub before: VmCounters,
    /// At its end.
    pub after: VmCounters,
    /// Number that the user's command printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printed: Option<f64>,
}

/// A line of the artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TuneRecord {
    /// The VM, first of all.
    Vm(Box<VmFacts>),
    /// Two measurements, without and with a change.
    Pair {
        /// Why, and of what.
        plan: PairPlan,
        /// Without the change.
        without: Box<TuneBlock>,
        /// Measurement with the change.
        with: Box<TuneBlock>,
    },
    /// A candidate that could not be set, or does not read back.
    Refused {
        /// Index of the candidate.
        candidate: usize,
        /// Reason of the refusal.
        why: String,
    },
    /// Why no more was measured.
    Ended {
        /// Reason of the end.
        why: String,
    },
    /// Candidates whose changes were kept at the end.
    Kept {
        /// Indexes of the candidates.
        candidates: Vec<usize>,
    },
}

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
    /// VM whose configuration the test guest has; absent without `--like`.
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

impl Tried for GuestCandidate {
    fn name(&self) -> &str {
        &self.name
    }
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

    fn candidates_of(&self, configuration: &[usize]) -> impl Iterator<Item = &GuestCandidate> {
        let numbers = configuration.iter();
        numbers.filter_map(|number| self.candidates.get(*number))
    }

    /// Returns the name of a configuration.
    pub fn name(&self, configuration: &[usize]) -> String {
        let on = self.candidates_of(configuration);
        let names: Vec<&str> = on.map(|candidate| &*candidate.name).collect();
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
        for candidate in self.candidates_of(configuration) {
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

    /// Trials with one probe each that its parts mean.
    pub(crate) fn boots(&self) -> u64 {
        self.parts
            .iter()
            .map(|part| u64::from(part.rounds) * part.configurations.len() as u64)
            .sum()
    }

    /// Returns the fault of the specification, as an error message; `None` if there is none.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let names = |candidate: &GuestCandidate| candidate.name.clone();
        let mut known: Vec<String> = self.candidates.iter().map(names).collect();
        known.sort_unstable();
        let is_known = |number: &usize| *number < self.candidates.len();
        let is_ascending = |numbers: &Vec<usize>| {
            numbers.windows(2).all(|pair| pair[0] < pair[1]) && numbers.last().is_none_or(is_known)
        };
        let rounds: u64 = self.parts.iter().map(|part| u64::from(part.rounds)).sum();
        let is_bare =
            |candidate: &GuestCandidate| candidate.name.is_empty() || candidate.set.is_empty();
        let is_late = |pair: &[GuestTunePart]| pair[0].first_round > pair[1].first_round;
        let mut configurations = self.parts.iter().flat_map(|part| &part.configurations);
        if self.candidates.len() > GuestTuneSpec::MAX_CANDIDATES {
            Some("it has more than 24 candidates: leave some out")
        } else if known.windows(2).any(|pair| pair[0] == pair[1]) {
            Some("a candidate is listed twice: list it once")
        } else if self.candidates.iter().any(is_bare) {
            Some("a candidate has no name or sets nothing: leave it out")
        } else if self.budget_s == 0 {
            Some("budget-s must be above 0")
        } else if !configurations.all(is_ascending) {
            Some("a part names a candidate that there is not: leave the parts out to tune again")
        } else if self.parts.windows(2).any(is_late) || rounds > 10_000 {
            Some(
                "its parts are not in the order of their rounds: leave the parts out to tune again",
            )
        } else {
            None
        }
    }
}
