//! A VM's trace, read: its disks with their joined requests.

use crate::events::trace_reader::Loss;
use crate::join::joined::Joined;
use vmtax_model::{ClockFinding, HostDisk, Missing, TracedDisk, VmTrace};

/// A traced VM, and its disks with requests.
pub(crate) struct VmData {
    pub trace: VmTrace,
    pub disks: Vec<DiskData>,
    /// The names of those without.
    pub idle: Vec<String>,
    /// What could not be observed of any disk.
    pub missing: Vec<Missing>,
}

/// The joined requests of one disk before any is rejected.
pub(crate) struct DiskData {
    pub name: String,
    /// What is known of it; `None` where that is nothing.
    pub disk: Option<TracedDisk>,
    pub joined: Joined,
    pub losses: Vec<Loss>,
    pub missing: Vec<Missing>,
    pub clock: ClockFinding,
    /// The host alone shows them.
    pub is_from_host: bool,
}

impl DiskData {
    /// Whether the host's device beneath is observed.
    pub fn has_device(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| is_placed(&disk.host))
    }

    /// Whether its requests go to the host's kernel at all.
    pub fn has_host_part(&self) -> bool {
        self.disk.as_ref().is_none_or(|disk| !disk.disk.file.to_string_lossy().starts_with("null-"))
    }
}

/// Whether it is known where the disk lies on the host's device.
pub(super) fn is_placed(host: &HostDisk) -> bool {
    host.device.is_some() && !host.extents.is_empty()
}
