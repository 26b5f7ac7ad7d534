//! The sizes of `vmtax scale`: one size of a plan that grows from step to step.

use super::error::PlanError;
use crate::WorkloadName;
use serde::{Deserialize, Serialize};

/// Growth growth laws cannot be distinguished by fewer.
pub(super) const MIN_STEPS: usize = 3;
pub(super) const MAX_STEPS: usize = 64;

/// A size that is varied, and its steps. As TOML:
///
/// ```toml
/// [range]
/// option = "disk.depth"
/// steps = [1, 2, 4, 8, 16, 32]
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// Owner of a range's option: the guest or a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grows<'a> {
    /// A size of the guest.
    Guest(GuestSize),
    /// An option of a workload.
    Workload(WorkloadName, &'a str),
}

/// Size of a guest that a range can vary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestSize {
    /// Number of vCPUs.
    Cpus,
    /// MiB of memory.
    Memory,
    /// Virtio disks without I/O.
    Disks,
    /// Memory regions without use.
    MemoryRegions,
}

impl GuestSize {
    const NAMES: [(&'static str, GuestSize); 4] = [
        ("guest.cpus", GuestSize::Cpus),
        ("guest.memory-mib", GuestSize::Memory),
        ("guest.disks", GuestSize::Disks),
        ("guest.memory-regions", GuestSize::MemoryRegions),
    ];

    /// Returns true if the size can be set natively, too.
    pub const fn is_hosts_too(self) -> bool {
        matches!(self, GuestSize::Cpus | GuestSize::Memory)
    }
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
        SizeRange::of(option, steps)
    }

    /// Those sizes, without a budget.
    pub fn of(option: &str, steps: Vec<u64>) -> SizeRange {
        SizeRange {
            option: option.to_owned(),
            steps,
            budget_s: None,
            one_boot: false,
            left_out: Vec::new(),
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
        if let Some((_, size)) = GuestSize::NAMES
            .iter()
            .find(|(name, _)| *name == self.option)
        {
            return Ok(Grows::Guest(*size));
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
                    GuestSize::NAMES.map(|(name, _)| name).join(", ")
                ))
            })
    }
}
