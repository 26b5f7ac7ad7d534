//! Disks that a guest takes for ones that rotate, though the host's device beneath does not.

use crate::{Evidence, Finding, Rule, VmPart};
use vmtax_findings::VmRates;
use vmtax_model::{GuestDiskSettings, Setting, SettingPlace};

pub(super) const SETTING_ROTATIONAL: Rule = Rule {
    id: "setting-rotational",
    finds: "a guest that takes a disk for one that rotates, though the host's device beneath does not: its file systems, its I/O scheduler and its readers of several copies order requests for heads that are not there, and Windows defragments it (unproven here)",
    remedies: &[
        Setting::named("/sys/block/GUEST_DISK/queue/rotational")
            .remedy("0", "Tell the guest's kernel that the disk does not rotate"),
        Setting::named("rotation_rate").remedy(
            "1",
            "And start the VM with a disk that says so itself: SCSI and SATA have a rotation rate, virtio-blk has none",
        ),
    ],
    source: "Linux kernel documentation, Queue sysfs files: rotational",
    evaluate: |evidence: &Evidence<'_>| {
        let Some(vm) = evidence.vm else {
            return Vec::new();
        };
        let disks = vm.settings.guest.iter().flat_map(|guest| &guest.disks);
        disks.filter_map(|disk| rotates(vm, disk)).collect()
    },
};

fn rotates(vm: &VmRates, disk: &GuestDiskSettings) -> Option<Finding> {
    let device = &vm.disk(&disk.disk)?.device.as_ref()?.name;
    let mut queues = vm.settings.host_queues.iter();
    let queue = queues.find(|queue| queue.device == *device)?;
    let mut settings = vm.settings.disks.iter();
    let driver = settings.find(|known| known.name == disk.disk)?;
    let text = format!(
        "The guest takes {} ({}) for a disk that rotates; the host's {device} beneath does not.",
        disk.disk, disk.name
    );
    let is_wrong = disk.rotational == Some(true) && queue.rotational == Some(false);
    let is_virtio = driver.driver.starts_with("virtio-blk");
    is_wrong.then(|| Finding {
        values: vec![
            ("GUEST_DISK", disk.name.clone()),
            ("DISK", disk.disk.clone()),
            ("BEFORE", "1".to_owned()),
        ],
        unfit: is_virtio.then_some(SettingPlace::QemuArgument),
        part: VmPart::Disk(disk.disk.clone()),
        ..Finding::new(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings;
    use vmtax_findings::{Advice, DeviceRates, DiskRates};
    use vmtax_model::{DiskSettings, GuestSettings, HostQueue, VmSettings};

    fn found(in_guest: Option<bool>, on_host: Option<bool>, driver: &str) -> Vec<Advice> {
        let guest = GuestSettings {
            disks: vec![GuestDiskSettings {
                disk: "data".to_owned(),
                name: "sdb".to_owned(),
                rotational: in_guest,
                ..GuestDiskSettings::default()
            }],
            ..GuestSettings::default()
        };
        let disk = DiskSettings {
            name: "data".to_owned(),
            driver: driver.to_owned(),
            ..DiskSettings::default()
        };
        let queue = HostQueue {
            device: "nvme0n1".to_owned(),
            scheduler: "none".to_owned(),
            rotational: on_host,
        };
        let settings_of_vm = VmSettings {
            disks: vec![disk],
            host_queues: vec![queue],
            guest: Some(guest),
            ..VmSettings::default()
        };
        let device = DeviceRates {
            name: "nvme0n1".to_owned(),
            ..DeviceRates::default()
        };
        let vm = VmRates {
            disks: vec![DiskRates {
                name: "data".to_owned(),
                device: Some(device),
                ..DiskRates::default()
            }],
            settings: settings_of_vm,
            ..VmRates::default()
        };
        settings(&Evidence {
            vm: Some(&vm),
            ..Evidence::default()
        })
    }

    #[test]
    fn a_disk_that_only_the_guest_takes_for_a_rotating_one_is_found() {
        let scsi = found(Some(true), Some(false), "scsi-hd").remove(0);
        assert_eq!(
            scsi.finding,
            "The guest takes data (sdb) for a disk that rotates; the host's nvme0n1 beneath does not."
        );
        assert_eq!(
            scsi.remedies[0].line,
            "echo 0 | sudo tee /sys/block/sdb/queue/rotational # in the guest"
        );
        assert_eq!(
            (&*scsi.remedies[1].line, scsi.remedies.len()),
            ("-device scsi-hd,…,rotation_rate=1", 2)
        );
        let virtio = found(Some(true), Some(false), "virtio-blk-device").remove(0);
        assert_eq!(virtio.remedies.len(), 1, "it has no rotation rate");
    }

    #[test]
    fn a_disk_that_is_as_the_guest_takes_it_is_fine() {
        for (in_guest, on_host) in [
            (Some(true), Some(true)),
            (Some(false), Some(false)),
            (None, Some(false)),
            (Some(true), None),
        ] {
            assert_eq!(found(in_guest, on_host, "scsi-hd"), []);
        }
    }
}
