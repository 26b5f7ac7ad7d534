//! A VM's trace, read: its disks with their joined requests.

use crate::events::trace_reader::Loss;
use crate::join::joined::Joined;
use vmtax_model::{ClockFinding, HostDisk, Missing, TraceFacts, TracedDisk, VmNic, VmTrace};

/// A traced VM, and its disks with requests.
pub(crate) struct VmData {
    pub trace: VmTrace,
    pub disks: Vec<DiskData>,
    /// Network cards of the VM with packets, if those were traced.
    pub nics: Vec<NicData>,
    /// The names of disks and taps without.
    pub idle: Vec<String>,
    /// The names of disks whose requests the trace does not show.
    pub not_followed: Vec<String>,
    /// Data that could not be observed of any disk.
    pub missing: Vec<Missing>,
    /// `vmtax agent observe` traced the guest meanwhile.
    pub is_guest_traced: bool,
}

/// The joined requests of one disk before any is rejected.
pub(crate) struct DiskData {
    pub name: String,
    /// Facts about the disk; `None` if nothing is known.
    pub disk: Option<TracedDisk>,
    pub joined: Joined,
    pub losses: Vec<Loss>,
    pub missing: Vec<Missing>,
    pub clock: ClockFinding,
    /// The host alone shows them.
    pub is_from_host: bool,
}

/// The followed packets of one network card before any is rejected.
pub(crate) struct NicData {
    pub nic: VmNic,
    pub joined: Joined,
    pub losses: Vec<Loss>,
    pub missing: Vec<Missing>,
}

impl DiskData {
    /// Returns true if the host's device beneath the disk is observed.
    pub fn has_device(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| is_placed(&disk.host))
    }

    /// Returns true if the disk's requests go to the host's kernel at all.
    pub fn has_host_part(&self) -> bool {
        self.disk
            .as_ref()
            .is_none_or(|disk| !disk.disk.file.to_string_lossy().starts_with("null-"))
    }
}

/// Returns the facts that a trial's requests are joined with, as far as the trace of a VM has them: neither exchanges
/// of time stamps nor costs.
pub(super) fn facts(trace: &VmTrace) -> TraceFacts {
    TraceFacts {
        schema: trace.schema,
        tsc_mhz: trace.tsc_mhz,
        qemu: trace.vm.pid,
        threads: trace.threads.clone(),
        pings: Vec::new(),
        moments: Vec::new(),
        kvm_offset: None,
        host_disk: HostDisk::default(),
        guest_disk: None,
        guest_nic: None,
        notify: Vec::new(),
        missing: Vec::new(),
        host_costs: Vec::new(),
        guest_costs: Vec::new(),
    }
}

/// Returns true if the disk's location on the host's device is known.
pub(super) fn is_placed(host: &HostDisk) -> bool {
    host.device.is_some() && !host.extents.is_empty()
}
