//! The devices by which a guest has a disk on a bus, and which of them a setting belongs to.

use vmtax_model::{ScsiDevice, Setting, SettingPart};

/// QEMU's devices for a disk, by the setting `bus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskDevices {
    /// The controller; `None` where the disk is a device of PCI, or the machine type has the controller.
    pub controller: Option<&'static str>,
    /// Device of the disk, as `scsi-hd`.
    pub disk: &'static str,
    /// The bus of the machine type's own controller.
    pub bus: Option<&'static str>,
}

impl DiskDevices {
    /// Returns the devices for a bus; those of virtio-blk without one.
    pub fn of(bus: Option<&str>) -> DiskDevices {
        let (controller, disk, bus) = match bus {
            Some("virtio-scsi") => (Some("virtio-scsi-pci"), "scsi-hd", None),
            Some("sata") => (Some("ahci"), "ide-hd", None),
            Some("ide") => (None, "ide-hd", Some("ide.0")),
            Some("nvme") => (None, "nvme", None),
            _ => (None, "virtio-blk-pci", None),
        };
        DiskDevices {
            controller,
            disk,
            bus,
        }
    }

    /// Returns true if a property, or the iothread, is the controller's.
    pub fn is_of_controller(self, key: &str) -> bool {
        let key = key.strip_prefix("device.").unwrap_or(key);
        let is_disks = Setting::of(key).part == SettingPart::Device(ScsiDevice::Disk);
        self.is_virtio_scsi() && !is_disks
    }

    /// The device's name of a property that is named as virtio-blk has it.
    pub fn property(self, key: &str) -> &str {
        let setting = Setting::of(key);
        match setting.part {
            SettingPart::Device(ScsiDevice::ControllerAs(name)) if self.is_virtio_scsi() => name,
            _ => Setting::name(key),
        }
    }

    fn is_virtio_scsi(self) -> bool {
        self.disk == "scsi-hd"
    }
}
