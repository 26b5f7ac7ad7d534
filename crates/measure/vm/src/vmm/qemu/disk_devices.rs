//! The devices by which a guest has a disk on a bus, and which of them a setting belongs to.

/// Settings of a virtio-scsi disk that are its own; all others are its controller's.
const OF_SCSI_DISK: [&str; 5] = [
    "logical_block_size",
    "min_io_size",
    "opt_io_size",
    "physical_block_size",
    "rotation_rate",
];

/// `device.discard` is the device's, `discard` may be the image's.
fn unprefixed(key: &str) -> &str {
    key.strip_prefix("device.").unwrap_or(key)
}

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
        self.is_virtio_scsi() && !OF_SCSI_DISK.contains(&unprefixed(key))
    }

    /// The device's name of a property that is named as virtio-blk has it.
    pub fn property(self, key: &str) -> &str {
        match key {
            "num-queues" if self.is_virtio_scsi() => "num_queues",
            "queue-size" if self.is_virtio_scsi() => "virtqueue_size",
            key => unprefixed(key),
        }
    }

    fn is_virtio_scsi(self) -> bool {
        self.disk == "scsi-hd"
    }
}
