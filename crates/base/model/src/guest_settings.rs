//! Settings of the kernel in a running VM, as the agent in it reads them. They are the guest's word.

use serde::{Deserialize, Serialize};

/// The clock source in use; `available_clocksource` beside it has those that can be.
pub const CLOCK_SOURCE_FILE: &str =
    "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Settings known of a guest's kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestSettings {
    /// The clock source in use.
    pub clock_source: String,
    /// Those that it can use.
    pub clock_sources: Vec<String>,
    /// The governor of idle states; null where it has none.
    #[serde(default)]
    pub cpuidle_governor: Option<String>,
    /// The kernel's command line; null where the agent may not read it.
    #[serde(default)]
    pub command_line: Option<String>,
    /// Disks of the guest for which the disk of QEMU is known.
    pub disks: Vec<GuestDiskSettings>,
}

/// Settings of a disk in the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestDiskSettings {
    /// Name of QEMU's disk, as in [`crate::DiskSettings::name`].
    pub disk: String,
    /// The guest's name of it: `vda`.
    pub name: String,
    /// `write back`, `write through`; null where the guest's driver has no such file.
    pub cache_type: Option<String>,
    /// The I/O scheduler in use.
    pub scheduler: Option<String>,
    /// Read-ahead of the guest, KiB.
    pub read_ahead_kb: Option<u64>,
}

impl GuestDiskSettings {
    /// A file of this disk's folder in /sys/block: `queue/scheduler`.
    pub fn file(&self, file: &str) -> String {
        format!("/sys/block/{}/{file}", self.name)
    }
}

/// Clock sources that need no VM exit, by the kernel's names.
pub const FAST_CLOCK_SOURCES: [&str; 3] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"];

/// Returns true if the name is a valid disk name of a guest: it becomes a part of a path.
pub fn is_disk_name(name: &str) -> bool {
    !name.is_empty() && name.len() < 32 && name.bytes().all(|b| b.is_ascii_alphanumeric())
}
