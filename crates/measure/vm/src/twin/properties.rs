//! The properties of QEMU's devices and machines that a twin takes over, and those that say nothing of its speed.

use super::definition::Twin;
use crate::vmm::qemu::arguments::Properties;
use vmtax_model::{ScsiDevice, Setting, SettingPart};

/// Properties of a device that name it, connect it to others, or were read before.
const IDENTITY: [&str; 30] = [
    "driver",
    "id",
    "drive",
    "bus",
    "addr",
    "bootindex",
    "serial",
    "multifunction",
    "write-cache",
    "iothread",
    "share-rw",
    "werror",
    "rerror",
    "romfile",
    "rombar",
    "acpi-index",
    "failover_pair_id",
    "channel",
    "scsi-id",
    "lun",
    "unit",
    "ver",
    "wwn",
    "device_id",
    "vendor",
    "product",
    "scsi",
    "model",
    "disable-legacy",
    "disable-modern",
];
/// Properties of a machine that a twin takes over.
const MACHINE: [&str; 12] = [
    "hpet",
    "kernel-irqchip",
    "kernel_irqchip",
    "mem-merge",
    "dump-guest-core",
    "pcie",
    "pit",
    "pic",
    "rtc",
    "smm",
    "usb",
    "vmport",
];
/// Those that are another option's, or name objects that a twin has not.
const MACHINE_IDENTITY: [&str; 8] = [
    "",
    "type",
    "accel",
    "memory-backend",
    "graphics",
    "sata",
    "i8042",
    "suppress-vmdesc",
];

/// Takes over the properties of a disk's device; names the others.
pub(super) fn of_device(twin: &mut Twin, device: &Properties) {
    for (key, value) in device.all() {
        // The controller has names of its own.
        let is_controllers = |setting: &&Setting| matches!(setting.part, SettingPart::Device(ScsiDevice::ControllerAs(name)) if name == key);
        let name = Setting::all()
            .find(is_controllers)
            .map_or(key, |setting| setting.key);
        let is_taken =
            |setting: &Setting| matches!(setting.part_with(switch(value)), SettingPart::Device(_));
        if Setting::listed(name).is_some_and(is_taken) {
            twin.disk.set(name, switch(value));
        } else if name.starts_with("iothread-vq-mapping") {
            twin.disk.set("iothread", "on");
            twin.lacks("iothread-vq-mapping: the twin has one iothread");
        } else if !IDENTITY.contains(&name) {
            twin.lacks(format!("property {name}={value} of the disk"));
        }
    }
}

/// A machine type with what of its properties a twin takes over; names the others.
pub(super) fn of_machine(twin: &mut Twin, machine: &Properties) {
    let Some(name) = machine.first("type") else {
        return;
    };
    if name.contains(',')
        || name == "none"
        || name.starts_with("microvm")
        || name.starts_with("xen")
    {
        twin.lacks(format!("machine type {name}: q35 in its place"));
        return;
    }
    let mut all = name.to_owned();
    for (key, value) in machine.all() {
        // A comma would begin another property.
        if MACHINE.contains(&key) && !value.contains(',') {
            all += &format!(",{key}={}", switch(value));
        } else if !MACHINE_IDENTITY.contains(&key) {
            twin.lacks(format!("property {key}={value} of the machine"));
        }
    }
    twin.machine_type = Some(all);
}

/// JSON's `true` as QEMU's `on`.
pub(super) fn switch(value: &str) -> &str {
    match value {
        "true" | "yes" => "on",
        "false" | "no" => "off",
        other => other,
    }
}
