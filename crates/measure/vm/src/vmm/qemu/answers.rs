//! What is known of a VM from its monitor, or from libvirt.

use vmtax_model::{DiskCounters, KvmCounters, RunState};

/// What a monitor answered.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Answers {
    pub state: Option<RunState>,
    pub disks: Vec<DiskCounters>,
    pub kvm: Option<KvmCounters>,
    pub balloon: Option<u64>,
}
