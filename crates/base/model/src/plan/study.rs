//! The kind of question that a plan is made for, with what that study alone needs.

use super::command::CommandSpec;
use super::imported::ImportedFiles;
use super::observed_vm::ObservedVm;
use super::profile::ProfileSettings;
use super::size_range::SizeRange;
use crate::{GuestTuneSpec, TuneSpec, WorkloadName, WorkloadSpec};
use serde::{Deserialize, Serialize};

/// A kind of question, from its plan to its report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Study {
    /// The overhead of guests against native.
    Overhead,
    /// Where the time of a block request goes, layer by layer.
    Layers,
    /// What a command costs on each machine. The variants' shares then give guests the host's own root.
    Exec(Box<CommandSpec>),
    /// Which of several VM configurations is faster.
    Compare(CompareSpec),
    /// How a cost grows with a size.
    Scale(SizeRange),
    /// What each method of sharing the plan's tree with guests costs.
    Share,
    /// What one VM exit costs, by cause.
    Exits,
    /// What guest kernels do at an avoidable cost.
    GuestAntipatterns,
    /// Where the time of a guest's VMM goes while it runs the plan's workload, or a command.
    Profile(ProfileSpec),
    /// Where the time of the block requests of a running VM goes, as the host sees them.
    VmLayers(ObservedVm),
    /// Which VM exits a running VM makes.
    VmExits(ObservedVm),
    /// Why a running VM is slow.
    Diagnose(ObservedVm),
    /// Which live settings make a running VM faster.
    Tune(Box<TuneSpec>),
    /// Which settings make a guest's workload faster.
    TuneGuest(GuestTune),
    /// What traces say that other tools recorded.
    Import(ImportedFiles),
}

impl Study {
    /// The default study of these workloads.
    pub fn of(workloads: &[WorkloadSpec]) -> Study {
        let runs = |name| workloads.iter().any(|w| w.name == name);
        if runs(WorkloadName::Exits) {
            Study::Exits
        } else if runs(WorkloadName::GuestAntipatterns) {
            Study::GuestAntipatterns
        } else {
            Study::Overhead
        }
    }

    /// The study of that name, if it needs no table of its own in a plan.
    pub(super) fn without_table(name: &str) -> Option<Study> {
        let studies = [
            Study::Overhead,
            Study::Layers,
            Study::Share,
            Study::Exits,
            Study::GuestAntipatterns,
        ];
        studies.into_iter().find(|study| study.name() == name)
    }

    /// As it is written in a plan.
    pub const fn name(&self) -> &'static str {
        match self {
            Study::Overhead => "overhead",
            Study::Layers => "layers",
            Study::Exec(_) => "exec",
            Study::Compare(_) => "compare",
            Study::Scale(_) => "scale",
            Study::Share => "share",
            Study::Exits => "exits",
            Study::GuestAntipatterns => "guest-antipatterns",
            Study::Profile(_) => "profile",
            Study::VmLayers(_) => "vm-layers",
            Study::VmExits(_) => "vm-exits",
            Study::Diagnose(_) => "diagnose",
            Study::Tune(_) => "tune",
            Study::TuneGuest(_) => "tune-guest",
            Study::Import(_) => "import",
        }
    }
}

/// When a comparison has measured enough. As TOML:
///
/// ```toml
/// [compare]
/// min-effect = 0.02
/// budget-s = 600
/// one-boot = true
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Compare {
    /// The smallest difference that matters, as a fraction: 0.02 for 2 %.
    pub min_effect: f64,
    /// No round after the sixth begins later than this many seconds after the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_s: Option<u32>,
    /// Whether the variants of a machine take turns in one boot a round, in a random order and then in its reverse (A B B A).
    /// They then differ only in options of workloads and attributes of the disk's request queue. Otherwise each variant has a boot of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_boot: bool,
}

// `min_effect` is checked to be a number.
impl Eq for Compare {}

/// What is compared, and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompareSpec {
    /// Until when.
    pub settings: Compare,
    /// The command of the workload `exec`; `None` for workloads of vmtax's own.
    pub command: Option<Box<CommandSpec>>,
}

/// What is tuned, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestTune {
    /// What is tried.
    pub spec: Box<GuestTuneSpec>,
    /// The command of the workload `exec`; `None` for a workload of vmtax's own.
    pub command: Option<Box<CommandSpec>>,
}

/// What is profiled, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileSpec {
    /// How.
    pub settings: ProfileSettings,
    /// The command of the workload `exec`; `None` for a workload of vmtax's own.
    pub command: Option<Box<CommandSpec>>,
}
