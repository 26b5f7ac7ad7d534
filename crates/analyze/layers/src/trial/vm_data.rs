//! A VM's trace, read: its disks with their joined requests, or its network cards with their packets; their names, and what
//! could not be observed of them.

use super::TrialData;
use vmtax_findings::VmLayers;
use vmtax_model::{
    Accelerator, HostDisk, Missing, TraceFacts, TracedDisk, VmDisk, VmNic, VmTrace, Vmm, device_id,
    libvirt_target,
};

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
    /// No probe showed the VMM's own steps: its system calls on the disks' files are the requests.
    pub is_by_calls: bool,
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

/// Returns the usual name of a disk.
pub(super) fn name(device: &str, disk: Option<&TracedDisk>, trace: &VmTrace) -> String {
    // The monitor names a SCSI disk by its ID alone.
    let id = device_id(device).or(disk
        .map(|disk| disk.disk.id.as_str())
        .filter(|id| !id.is_empty()));
    let Some(id) = id else {
        let path = device
            .strip_suffix(TracedDisk::VIRTIO_BACKEND)
            .unwrap_or(device);
        return path.strip_prefix("/machine/").unwrap_or(path).to_owned();
    };
    let is_libvirt = trace
        .vm
        .managed
        .as_ref()
        .is_some_and(|managed| managed.manager.is_libvirt());
    Some(id)
        .filter(|_| is_libvirt)
        .and_then(libvirt_target)
        .unwrap_or_else(|| id.to_owned())
}

pub(super) fn untraced(disk: &str) -> Missing {
    Missing {
        what: format!("requests of {disk}"),
        why: "the trace does not show where QEMU begins and ends requests of a disk without virtqueues".to_owned(),
        fix: "trace the running VM with `vmtax layers --vm`, or see by `vmtax top --level 1` how long its requests take in QEMU"
            .to_owned(),
    }
}

/// Returns the data that cannot be observed of a disk, with the reasons.
pub(super) fn missing(name: &str, disk: Option<&TracedDisk>, trace: &VmTrace) -> Vec<Missing> {
    let is_kvm = trace.vm.accelerator == Some(Accelerator::Kvm);
    let has_kicks = disk.is_some_and(|disk| !disk.notify.is_empty());
    let is_known_by_monitor = is_kvm && trace.vm.vmm.is_qemu() && !trace.imported;
    let kicks = (is_known_by_monitor && !has_kicks).then(|| {
        unknown_kicks(
            name,
            "no QMP monitor tells their addresses, or the guest had not placed them",
        )
    });
    let beneath = beneath(disk, trace).map(|(why, fix)| Missing {
        what: format!("the host's block device beneath {name}"),
        why,
        fix: fix.to_owned(),
    });
    beneath.into_iter().chain(kicks).collect()
}

/// Returns why the host's block device beneath a disk cannot be observed, and what to do; `None` where it can.
fn beneath(disk: Option<&TracedDisk>, trace: &VmTrace) -> Option<(String, &'static str)> {
    let Some(TracedDisk { disk, host, .. }) = disk else {
        let (why, fix) = if trace.imported {
            (
                "the files do not say which of the host's devices has the disk",
                "trace the running VM with `vmtax layers --vm`",
            )
        } else {
            (
                "neither QEMU's monitor nor its command line tells which file the disk is",
                "give QEMU a QMP socket, or the device an id",
            )
        };
        return Some((why.to_owned(), fix));
    };
    if is_made_up(disk) {
        return Some(("QEMU's null driver has none".to_owned(), ""));
    }
    if is_placed(host) {
        return None;
    }
    let file = disk.file.display();
    let why = match (host.device, disk.format.as_deref()) {
        (None, Some(format)) if !matches!(format, "raw" | "file" | "host_device" | "throttle") => {
            format!(
                "{format} puts the guest's bytes elsewhere in the file, so they cannot be found on the device"
            )
        }
        (None, _) => format!("{file} lies on no single block device, or is no raw image"),
        (Some(_), _) => format!("no place of {file} on its device is known"),
    };
    let fix =
        "the time there is part of the host kernel's: use a raw image on one disk to see it apart";
    Some((why, fix))
}

pub(super) fn unnamed_requests() -> Missing {
    Missing {
        what: VmLayers::REQUESTS.to_owned(),
        why: "in this build of QEMU no function shows a request when it is taken from the ring"
            .to_owned(),
        fix: "use a distribution's build of QEMU".to_owned(),
    }
}

/// Returns the VMM's own steps with requests as missing, where no probe shows them.
pub(super) fn no_steps(vmm: Vmm) -> Missing {
    unprobed(
        vmm,
        "a request taken from the ring, and completed there",
        "each system call on a disk's file is a request",
    )
}

/// Returns the VMM's own steps with packets as missing, likewise.
pub(super) fn no_steps_of_packets(vmm: Vmm) -> Missing {
    unprobed(
        vmm,
        "a packet taken from the transmit queue, and put into the receive queue",
        "its system calls on the tap and its interrupts are matched with packets by their thread",
    )
}

fn unprobed(vmm: Vmm, steps: &str, so: &str) -> Missing {
    let (why, fix) = if vmm.is_qemu() {
        ("no probe was set in its program".to_owned(), NO_PROBES)
    } else {
        (format!("vmtax knows no functions of {}", vmm.subject()), "")
    };
    Missing {
        what: format!("the VMM's own steps: {steps}"),
        why: format!("{why}, so {so}"),
        fix: fix.to_owned(),
    }
}

/// Returns the interrupts of a tap's received packets as missing, where the VMM's threads deliver none.
pub(super) fn no_interrupts(tap: &str) -> Missing {
    Missing {
        what: format!("interrupts of packets received by {tap}"),
        why: "no thread that reads the tap delivered one: the guest wanted none, or others deliver them, as a worker of the host's kernel".to_owned(),
        fix: String::new(),
    }
}

const NO_PROBES: &str = "use a distribution's QEMU, and omit --no-probes";

/// Returns the requests of a disk as missing whose file the VMM does not have open.
pub(super) fn no_descriptor(disk: &str) -> Missing {
    Missing {
        what: format!("requests of {disk}"),
        why: "the VMM has no file of it open, and no probe in the VMM shows its requests"
            .to_owned(),
        fix: NO_PROBES.to_owned(),
    }
}

pub(super) fn no_room(trace: &VmTrace) -> Missing {
    let seconds = trace.end.saturating_sub(trace.begin) as f64 / trace.tsc_mhz / 1e6;
    Missing {
        what: format!("requests after {seconds:.1} s"),
        why: "the trace had reached the most bytes that are kept".to_owned(),
        fix: "choose a shorter --duration".to_owned(),
    }
}

pub(super) fn unobserved(name: &str) -> Missing {
    Missing {
        what: format!("KVM, QEMU and the host's kernel beneath {name}"),
        why: "the guest's events alone are used, which do not distinguish them".to_owned(),
        fix: "give QEMU's trace (`-trace 'virtio_blk_*'`) and the host's, too".to_owned(),
    }
}

pub(super) fn unjoined(name: &str) -> Missing {
    Missing {
        what: format!("QEMU and the host beneath {name}"),
        why: "nothing in the files bounds the offset between the clocks of guest and host".to_owned(),
        fix: "record both with `trace-cmd record -A GUEST`, or QEMU's virtio_blk events with the host's".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::{Managed, Manager, VmFacts, testing};

    fn trace(manager: Option<Manager>) -> VmTrace {
        let vm = VmFacts {
            managed: manager.map(|manager| Managed {
                manager,
                id: "1".to_owned(),
            }),
            accelerator: Some(Accelerator::Kvm),
            vcpus: 1,
            ..VmFacts::unknown(1)
        };
        testing::vm_trace(vm, 2_000_000_000)
    }

    fn disk(id: &str, file: &str, format: Option<&str>) -> TracedDisk {
        let disk = VmDisk {
            id: id.to_owned(),
            file: file.into(),
            format: format.map(str::to_owned),
            direct: Some(true),
            read_only: false,
            aio: None,
            iothread: None,
            host_device: None,
            own_device: None,
            extents: None,
        };
        TracedDisk {
            device: String::new(),
            controller: String::new(),
            disk,
            host: HostDisk::default(),
            notify: vec![(0, 4)],
        }
    }

    #[test]
    fn a_disk_has_the_name_that_people_gave_it() {
        let name_of = |device: &str, id: &str, manager| {
            name(device, Some(&disk(id, "/d", None)), &trace(manager))
        };
        assert_eq!(
            name_of(
                "/machine/peripheral/virtio-disk1/virtio-backend",
                "",
                Some(Manager::Libvirt)
            ),
            "vdb"
        );
        assert_eq!(
            name_of("/machine/peripheral/virtio-disk1/virtio-backend", "", None),
            "virtio-disk1"
        );
        assert_eq!(
            name_of("scsi0-0-0-3", "scsi0-0-0-3", Some(Manager::Libvirt)),
            "sdd"
        );
        assert_eq!(
            name_of(
                "/machine/peripheral/scsi1-0-0-8",
                "",
                Some(Manager::Libvirt)
            ),
            "sdw"
        );
        assert_eq!(
            name_of("/machine/peripheral/scsi0", "", Some(Manager::Libvirt)),
            "scsi0"
        );
        assert_eq!(
            name_of(
                "/machine/peripheral/disk0/virtio-backend",
                "x",
                Some(Manager::Libvirt)
            ),
            "disk0"
        );
        assert_eq!(
            name_of(
                "/machine/peripheral-anon/device[1]/virtio-backend",
                "virtio0",
                None
            ),
            "virtio0"
        );
        assert_eq!(
            name_of(
                "/machine/peripheral-anon/device[1]/virtio-backend",
                "",
                None
            ),
            "peripheral-anon/device[1]"
        );
    }

    #[test]
    fn what_a_disk_does_not_show_has_its_reason() {
        let why = |disk: Option<&TracedDisk>| {
            missing("vda", disk, &trace(None))
                .into_iter()
                .map(|m| m.why)
                .next()
        };
        assert!(why(None).unwrap().contains("which file"));
        assert!(
            why(Some(&disk("", "null-co://", Some("raw"))))
                .unwrap()
                .contains("null driver")
        );
        assert!(
            why(Some(&disk("", "/d", Some("qcow2"))))
                .unwrap()
                .starts_with("qcow2 puts")
        );
        assert!(
            why(Some(&disk("", "/d", Some("raw"))))
                .unwrap()
                .contains("no single block device")
        );
        let extents = vec![vmtax_model::Extent {
            file: 0,
            device: 0,
            length: 9,
        }];
        let mut placed = disk("", "/d", Some("raw"));
        placed.host = HostDisk {
            device: Some(1),
            extents,
            ..HostDisk::default()
        };
        assert_eq!(why(Some(&placed)), None);
        placed.notify.clear();
        assert!(why(Some(&placed)).unwrap().contains("QMP"));
    }
}
