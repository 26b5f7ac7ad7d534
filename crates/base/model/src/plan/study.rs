//! The kind of question that a plan is made for, with what that study alone needs.

use super::PlanError;
use super::command::CommandSpec;
use crate::{
    DeviceClass, GuestTuneSpec, ImportedFiles, TuneSpec, VmIdentity, WorkloadName, WorkloadSpec,
};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

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
    Compare(WithCommand<Compare>),
    /// Growth of a cost with a size.
    Scale(SizeRange),
    /// Cost of each method of sharing the plan's tree with guests.
    Share,
    /// Cost of one VM exit, by cause.
    Exits,
    /// Work of guest kernels at an avoidable cost.
    GuestAntipatterns,
    /// Where the time of a guest's VMM goes while it runs the plan's workload, or a command.
    Profile(WithCommand<ProfileSettings>),
    /// A question about a running VM, which is observed.
    Vm(VmStudy, ObservedVm),
    /// Live settings that make a running VM faster.
    Tune(Box<TuneSpec>),
    /// Settings that make a guest's workload faster.
    TuneGuest(WithCommand<Box<GuestTuneSpec>>),
    /// Findings from traces that other tools recorded.
    Import(ImportedFiles),
}

impl Study {
    /// The default study of these workloads.
    pub fn default_for(workloads: &[WorkloadSpec]) -> Study {
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
    pub fn name(&self) -> &'static str {
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
            Study::Vm(study, _) => study.into(),
            Study::Tune(_) => "tune",
            Study::TuneGuest(_) => "tune-guest",
            Study::Import(_) => "import",
        }
    }
}

/// A question about a running VM, by its name in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum VmStudy {
    /// Time of block requests or packets by layer, as the host sees them.
    VmLayers,
    /// VM exits, by cause.
    VmExits,
    /// Why it is slow.
    Diagnose,
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

/// Settings of a study, with the command that it runs or observes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithCommand<T> {
    /// Settings of the study alone.
    pub settings: T,
    /// The command of the workload `exec`; `None` for workloads of vmtax's own.
    pub command: Option<Box<CommandSpec>>,
}

/// A VM that runs already, observed for a time. It is the plan's `[vm]`; the plan has no machines then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ObservedVm {
    /// The VM's process.
    #[serde(flatten)]
    pub process: VmIdentity,
    /// For how long, ms.
    pub time_ms: u64,
    /// The path of vmtax in the guest, which traces there too; `None` to observe from the host alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_vmtax: Option<String>,
    /// Requests are traced without a probe in the VMM's program, by its system calls.
    #[serde(default, skip_serializing_if = "is_false")]
    pub no_probes: bool,
    /// Whose requests are traced, of the study that traces any.
    #[serde(default, skip_serializing_if = "DeviceClass::is_disk")]
    pub device: DeviceClass,
    /// Level of a diagnosis, at most [`ObservedVm::ALL_LEVELS`]: 0 reads counters, which changes nothing in the VM; 1 also sets
    /// latency histograms and asks the guest agent; 2 also samples threads, counts VM exits and traces requests.
    #[serde(default = "all_levels", skip_serializing_if = "is_all_levels")]
    pub level: u8,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn all_levels() -> u8 {
    ObservedVm::ALL_LEVELS
}

fn is_all_levels(level: &u8) -> bool {
    *level == ObservedVm::ALL_LEVELS
}

impl ObservedVm {
    /// The level at which everything is observed.
    pub const ALL_LEVELS: u8 = 2;

    /// For how long.
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.time_ms)
    }
}

/// Settings with which a process is profiled: the QEMU of a plan's guest while it works, one that runs already, or
/// samples of another tool. They are the plan's `[profile]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ProfileSettings {
    /// A process that runs already; the plan has no machines then.
    #[serde(flatten)]
    pub process: Option<VmIdentity>,
    /// The file of another tool that samples are read from; the plan has no machines then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Duration, ms; as long as the workload runs when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
    /// Samples per second of each thread that runs.
    pub hz: u32,
    /// Samples per second of every thread by the wall clock; 0 for none. Where threads are stopped, of the vCPUs of a guest of
    /// KVM, too.
    pub wall_hz: u32,
    /// The longest stop of a thread for a wall-clock sample, ms: after a longer one no thread is stopped any more. Absent: no
    /// thread is stopped at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_limit_ms: Option<u64>,
    /// Duration for which scheduler events and system calls are traced at first, ms; 0 for none.
    pub events_ms: u64,
    /// Bytes copied of a stack with each sample.
    pub stack: u32,
    /// The unstripped build of the program, for its functions' names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbols: Option<PathBuf>,
}

impl Default for ProfileSettings {
    fn default() -> ProfileSettings {
        ProfileSettings {
            process: None,
            file: None,
            time_ms: None,
            hz: Self::HZ,
            wall_hz: Self::WALL_HZ,
            stop_limit_ms: None,
            events_ms: Self::EVENTS_MS,
            stack: Self::STACK,
            symbols: None,
        }
    }
}

impl ProfileSettings {
    /// Samples a second of each thread that runs.
    pub const HZ: u32 = 99;
    /// Wall-clock samples a second of every thread.
    pub const WALL_HZ: u32 = 19;
    /// Bytes copied of a stack.
    pub const STACK: u32 = 12_288;
    /// Duration for which scheduler events and system calls are traced at first, ms.
    pub const EVENTS_MS: u64 = 1000;

    /// Duration, at most.
    pub fn time(&self) -> Option<Duration> {
        self.time_ms.map(Duration::from_millis)
    }

    /// The longest stop of a thread; `None` where none is stopped.
    pub fn stop_limit(&self) -> Option<Duration> {
        self.stop_limit_ms
            .filter(|_| self.wall_hz > 0)
            .map(Duration::from_millis)
    }

    /// Duration for which scheduler events and system calls are traced.
    pub fn events(&self) -> Duration {
        Duration::from_millis(self.events_ms)
    }

    /// Returns true if a process that runs already, or a file, is profiled instead of a guest of the plan.
    pub fn is_attached(&self) -> bool {
        self.process.is_some() || self.file.is_some()
    }
}

/// Growth laws cannot be distinguished by fewer.
pub(super) const MIN_STEPS: usize = 3;

pub(super) const MAX_STEPS: usize = 64;

/// A size that is varied, and its steps. As TOML:
///
/// ```toml
/// [range]
/// option = "disk.depth"
/// steps = [1, 2, 4, 8, 16, 32]
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeRange {
    /// `WORKLOAD.OPTION` of a workload of the plan, or one of the guest's sizes: `guest.cpus`, `guest.memory-mib`,
    /// `guest.disks`, `guest.memory-regions`.
    pub option: String,
    /// The sizes, ascending; bytes where the option takes bytes.
    pub steps: Vec<u64>,
    /// Seconds for all rounds: the first has the sizes in ascending order and ends before one whose six rounds are likely
    /// to exceed this, and no round after the sixth begins later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_s: Option<u32>,
    /// True if a machine boots once a round and measures all sizes, in ascending order: differences from boot to boot
    /// are then the same at each size. Only for options of a workload. Otherwise each size has a boot of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_boot: bool,
    /// Sizes that the budget left out, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<u64>,
}

/// Size that a range varies: one of the guest, or an option of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grows<'a> {
    /// Number of vCPUs.
    Cpus,
    /// MiB of memory.
    Memory,
    /// Virtio disks without I/O.
    Disks,
    /// Memory regions without use.
    MemoryRegions,
    /// An option of a workload.
    Workload(WorkloadName, &'a str),
}

impl Grows<'_> {
    const OF_GUEST: [(&'static str, Grows<'static>); 4] = [
        ("guest.cpus", Grows::Cpus),
        ("guest.memory-mib", Grows::Memory),
        ("guest.disks", Grows::Disks),
        ("guest.memory-regions", Grows::MemoryRegions),
    ];
}

impl SizeRange {
    /// At most `count` whole sizes from `from` to `to`, each about the same factor above the one before.
    pub fn geometric(option: &str, from: u64, to: u64, count: usize) -> SizeRange {
        let (low, high) = (from as f64, to as f64);
        // One more than allowed, so that the check refuses too many.
        let last = count.min(MAX_STEPS + 1).saturating_sub(1).max(1);
        let size = |i: usize| (low * (high / low).powf(i as f64 / last as f64)).round() as u64;
        let mut steps: Vec<u64> = (0..last).map(size).chain([to]).collect();
        steps.dedup();
        SizeRange::new(option, steps)
    }

    /// A range of these sizes, without a budget.
    pub fn new(option: &str, steps: Vec<u64>) -> SizeRange {
        SizeRange {
            option: option.to_owned(),
            steps,
            ..SizeRange::default()
        }
    }

    /// Leaves out all but the first `count` sizes.
    pub fn keep(&mut self, count: usize) {
        let left_out = self.steps.split_off(count.min(self.steps.len()));
        self.left_out.splice(0..0, left_out);
    }

    /// Returns the size that grows.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] if the option is neither an option of a workload's form nor one of the guest's sizes.
    pub fn grows(&self) -> Result<Grows<'_>, PlanError> {
        let mut of_guest = Grows::OF_GUEST.into_iter();
        if let Some((_, size)) = of_guest.find(|(name, _)| *name == self.option) {
            return Ok(size);
        }
        let known = self
            .option
            .split_once('.')
            .and_then(|(w, option)| Some((w.parse().ok()?, option)));
        known
            .map(|(workload, option)| Grows::Workload(workload, option))
            .ok_or_else(|| {
                PlanError::Invalid(format!(
                    "range.option '{}' cannot be varied: give WORKLOAD.OPTION, {}",
                    self.option.escape_default(),
                    Grows::OF_GUEST.map(|(name, _)| name).join(", ")
                ))
            })
    }
}
