//! Data of a VM from its monitor, or from libvirt.

use vmtax_model::{DiskCounters, KvmCounters, RunState};

/// Answers of a monitor, or of libvirt.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Answers {
    pub state: Option<RunState>,
    pub disks: Vec<DiskCounters>,
    pub kvm: Option<KvmCounters>,
    pub balloon: Option<u64>,
}
