//! The guest of a plan.

use super::error::{PlanError, range};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The guest that a plan's `kvm` and `tcg` machines are; `native` gets the same number of CPUs and the same memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Guest {
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory, MiB.
    pub memory_mib: u32,
    /// Virtio disks besides those that are worked on: they are only there.
    #[serde(skip_serializing_if = "is_none")]
    pub disks: u32,
    /// Regions of memory besides the guest's own, each behind a PCI device: likewise.
    #[serde(skip_serializing_if = "is_none")]
    pub memory_regions: u32,
    /// A guest that takes longer than this many seconds to come up is given up.
    pub boot_deadline_s: u32,
    /// The QEMU to use; the best one found when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qemu: Option<PathBuf>,
    /// The kernel image; the first one found when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<PathBuf>,
    /// The folder with the kernel's modules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modules: Option<PathBuf>,
}

impl Default for Guest {
    fn default() -> Self {
        let (qemu, kernel, modules) = (None, None, None);
        Guest { cpus: 1, memory_mib: 1024, disks: 0, memory_regions: 0, boot_deadline_s: 60, qemu, kernel, modules }
    }
}

impl Guest {
    /// Devices that may only be there: 120 root ports of a q35, eight to a port.
    pub const MOST_DEVICES: u32 = 960;

    /// Whether it makes sense.
    pub(crate) fn check(&self) -> Result<(), PlanError> {
        range("guest.boot-deadline-s", self.boot_deadline_s, 1, 3600)?;
        range("guest.cpus", self.cpus, 1, 1024)?;
        range("guest.memory-mib", self.memory_mib, 128, 16 * 1024 * 1024)?;
        range("guest.disks and guest.memory-regions", self.devices(), 0, Guest::MOST_DEVICES)?;
        if self.modules.is_some() && self.kernel.is_none() {
            return Err(PlanError::Invalid("guest.modules is given without guest.kernel: give both".to_owned()));
        }
        Ok(())
    }

    /// Devices that are only there.
    pub fn devices(&self) -> u32 {
        self.disks.saturating_add(self.memory_regions)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_none(count: &u32) -> bool {
    *count == 0
}
