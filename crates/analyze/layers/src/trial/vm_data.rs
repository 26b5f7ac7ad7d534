//! A VM's trace, read: its disks with their joined requests, or its network cards with their packets.

use super::TrialData;
use vmtax_model::{HostDisk, Missing, TraceFacts, TracedDisk, VmDisk, VmNic, VmTrace};

/// A traced VM, and its devices with requests.
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

/// A disk or a network card of the VM.
pub(crate) struct Device<D> {
    pub name: String,
    /// Facts about it; of a disk `None` if nothing is known.
    pub known: D,
    /// The host alone shows its requests.
    pub is_from_host: bool,
}

/// The joined requests of one device before any is rejected.
pub(crate) struct DeviceData<D> {
    pub device: Device<D>,
    pub data: TrialData,
}

/// A disk with its requests.
pub(crate) type DiskData = DeviceData<Option<TracedDisk>>;
/// A network card with its packets.
pub(crate) type NicData = DeviceData<VmNic>;

/// Returns the facts that a trial's requests are joined with, as far as the trace of a VM has them: neither exchanges
/// of time stamps nor costs.
pub(super) fn facts(trace: &VmTrace) -> TraceFacts {
    TraceFacts {
        schema: trace.schema,
        tsc_mhz: trace.tsc_mhz,
        qemu: trace.vm.pid,
        threads: trace.threads.clone(),
        ..TraceFacts::default()
    }
}

/// Returns true if the disk's location on the host's device is known.
pub(crate) fn is_placed(host: &HostDisk) -> bool {
    host.device.is_some() && !host.extents.is_empty()
}

/// Returns true if QEMU makes up what the disk holds: its requests do not go to the host's kernel at all.
pub(crate) fn is_made_up(disk: &VmDisk) -> bool {
    disk.file.to_string_lossy().starts_with("null-")
}

/// The missing addresses of the doorbells of a device, with the reason.
pub(super) fn unknown_kicks(of: &str, why: &str) -> Missing {
    Missing {
        what: format!("virtqueue kicks of {of}"),
        why: format!("{why}, so a kick shows by the thread that it wakes"),
        fix: "give QEMU a QMP socket, and trace once the guest is up".to_owned(),
    }
}
