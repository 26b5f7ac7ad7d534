//! A ladder: one size of a plan that grows from rung to rung, so that the cost can be compared with it.

use super::error::PlanError;
use crate::WorkloadName;
use serde::{Deserialize, Serialize};

/// Below this no law of growth can be told from another.
pub(super) const MIN_RUNGS: usize = 3;
pub(super) const MAX_RUNGS: usize = 64;

/// What grows, and through which sizes. As TOML:
///
/// ```toml
/// [ladder]
/// option = "seqread.depth"
/// rungs = [1, 2, 4, 8, 16, 32]
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ladder {
    /// `WORKLOAD.OPTION` of a workload of the plan, or one of the guest's sizes: `guest.cpus`, `guest.memory-mib`,
    /// `guest.disks`, `guest.memory-regions`.
    pub option: String,
    /// The sizes, rising. Of an option that takes sizes in bytes, bytes.
    pub rungs: Vec<u64>,
}

/// What a ladder's option is an option of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grows<'a> {
    /// A size of the guest.
    Guest(GuestSize),
    /// An option of a workload.
    Workload(WorkloadName, &'a str),
}

/// What a guest has a number of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestSize {
    /// Processors.
    Cpus,
    /// MiB of memory.
    Memory,
    /// Disks that are only there.
    Disks,
    /// Regions of memory that are only there.
    MemoryRegions,
}

impl GuestSize {
    const NAMES: [(&'static str, GuestSize); 4] = [
        ("guest.cpus", GuestSize::Cpus),
        ("guest.memory-mib", GuestSize::Memory),
        ("guest.disks", GuestSize::Disks),
        ("guest.memory-regions", GuestSize::MemoryRegions),
    ];

    /// Whether the host itself has it as well.
    pub const fn is_hosts_too(self) -> bool {
        matches!(self, GuestSize::Cpus | GuestSize::Memory)
    }
}

impl Ladder {
    /// At most `count` whole sizes from `from` to `to`, each about the same factor above the one before.
    pub fn geometric(option: &str, from: u64, to: u64, count: usize) -> Ladder {
        let (low, high) = (from as f64, to as f64);
        // One more than may be, so that too many are refused for what they are.
        let last = count.min(MAX_RUNGS + 1).saturating_sub(1).max(1);
        let size = |i: usize| (low * (high / low).powf(i as f64 / last as f64)).round() as u64;
        let mut rungs: Vec<u64> = (0..last).map(size).chain([to]).collect();
        rungs.dedup();
        Ladder { option: option.to_owned(), rungs }
    }

    /// What grows.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] for what is neither an option of a workload's form nor one of the guest's sizes.
    pub fn grows(&self) -> Result<Grows<'_>, PlanError> {
        if let Some((_, size)) = GuestSize::NAMES.iter().find(|(name, _)| *name == self.option) {
            return Ok(Grows::Guest(*size));
        }
        let known = self.option.split_once('.').and_then(|(w, option)| Some((w.parse().ok()?, option)));
        known.map(|(workload, option)| Grows::Workload(workload, option)).ok_or_else(|| {
            PlanError::Invalid(format!(
                "ladder.option '{}' is nothing that grows: give WORKLOAD.OPTION, {}",
                self.option.escape_default(),
                GuestSize::NAMES.map(|(name, _)| name).join(", ")
            ))
        })
    }
}
