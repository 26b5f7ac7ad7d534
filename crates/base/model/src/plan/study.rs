//! The kind of question that a plan is made for, with what that study alone needs.

use super::command::CommandSpec;
use super::observed_vm::ObservedVm;
use super::profile::ProfileSettings;
use super::size_range::SizeRange;
use crate::{GuestTuneSpec, ImportedFiles, TuneSpec, WorkloadName, WorkloadSpec};
use serde::{Deserialize, Serialize};

/// A kind of question, from its plan to its report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Study {
    /// The overhead of guests against native.
    Overhead,
    /// Where the time of a block request goes, layer by layer.
    Layers,
    /// Cost of a command on each machine. The variants' shares then give guests the host's own root.
    Exec(Box<CommandSpec>),
    /// Comparison of several VM configurations: the faster one.
    Compare(CompareSpec),
    /// Growth of a cost with a size.
    Scale(SizeRange),
    /// Cost of each method of sharing the plan's tree with guests.
    Share,
    /// Cost of one VM exit, by cause.
    Exits,
    /// Work of guest kernels at an avoidable cost.
    GuestAntipatterns,
    /// Where the time of a guest's VMM goes while it runs the plan's workload, or a command.
    Profile(ProfileSpec),
    /// Where the time of the block requests of a running VM goes, as the host sees them.
    VmLayers(ObservedVm),
    /// VM exits of a running VM, by cause.
    VmExits(ObservedVm),
    /// Why a running VM is slow.
    Diagnose(ObservedVm),
    /// Live settings that make a running VM faster.
    Tune(Box<TuneSpec>),
    /// Settings that make a guest's workload faster.
    TuneGuest(GuestTune),
    /// Findings from traces that other tools recorded.
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
    /// True if the variants of a machine take turns in one boot a round, in a random order and then in its reverse (A
    /// B B A). They then differ only in options of workloads and attributes of the disk's request queue. Otherwise
    /// each variant has a boot of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_boot: bool,
}

// `min_effect` is checked to be a number.
impl Eq for Compare {}

/// A comparison: the settings that end it, and the command that is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompareSpec {
    /// Settings that say when the comparison has measured enough.
    pub settings: Compare,
    /// The command of the workload `exec`; `None` for workloads of vmtax's own.
    pub command: Option<Box<CommandSpec>>,
}

/// A tuning of a guest: the settings to try, and the workload that is tuned for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestTune {
    /// Settings to try, with the metric and the time limit.
    pub spec: Box<GuestTuneSpec>,
    /// The command of the workload `exec`; `None` for a workload of vmtax's own.
    pub command: Option<Box<CommandSpec>>,
}

/// A profile: its settings, and the command that is profiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileSpec {
    /// Settings of the profile: rates, duration, the process or file.
    pub settings: ProfileSettings,
    /// The command of the workload `exec`; `None` for a workload of vmtax's own.
    pub command: Option<Box<CommandSpec>>,
}
