//! Arguments of QEMU for devices: those that attach a disk, from a variant's settings, and dummy devices, to measure costs
//! that grow with the number of devices.

use crate::{MachineError, Setup};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use vmtax_model::{ScsiDevice, Setting, SettingPart};
use vmtax_vmm::qemu::arguments::{escaped, size};
use vmtax_vmm::qemu::conversation::items;
use vmtax_vmm::qemu::introspect::devices;
use vmtax_vmm::qemu::monitor::Monitor;

/// The network card that is measured, as the monitor names it.
pub const NET_DEVICE: &str = "net-device";

/// A disk of the measured guest: raw behind virtio-blk, where the settings do not say otherwise.
pub(crate) struct Disk<'a> {
    /// QEMU's name for it.
    pub node: &'a str,
    /// The device, with what it always has.
    pub device: &'a str,
    /// Serial number by which the guest finds the disk; `None` for the device's own.
    pub serial: Option<&'a str>,
    /// Path of the disk's file.
    pub file: &'a Path,
    /// True if the file can be read past the host's page cache.
    pub direct: bool,
    /// `aio` where the settings name none; `native` becomes `threads` with a `cache` that is not direct.
    pub aio: &'a str,
    /// True if nobody may write to the disk.
    pub read_only: bool,
    /// The settings over the usual ones: `aio`, `cache`, `iothread=on`, `iothread.PROPERTY` of it, `throttling.LIMIT`,
    /// `drive.KEY`, `format`, `bus`, and any property of the device.
    pub set: &'a BTreeMap<String, String>,
}

impl Disk<'_> {
    /// The arguments that attach it. Settings of other parts are not of a disk.
    pub fn arguments(&self) -> Vec<String> {
        let node = self.node;
        let mut arguments = vec!["-blockdev".to_owned(), self.file_node().to_string()];
        let mut top = format!("{node}-file");
        let limits = self.limits();
        if !limits.is_empty() {
            arguments.extend([
                "-object".to_owned(),
                json!({ "qom-type": "throttle-group", "id": format!("{node}-limits"), "limits": limits }).to_string(),
            ]);
            let filter = json!({ "driver": "throttle", "node-name": format!("{node}-slow"), "throttle-group": format!("{node}-limits"), "file": top });
            arguments.extend(["-blockdev".to_owned(), filter.to_string()]);
            top = format!("{node}-slow");
        }
        arguments.extend(["-blockdev".to_owned(), self.format_node(&top).to_string()]);
        arguments.extend(self.device_arguments());
        arguments
    }

    /// Returns the settings of one part, by the names that the part has for them.
    fn settings_of(&self, part: SettingPart) -> impl Iterator<Item = (&str, &str)> {
        self.set
            .iter()
            .filter(move |(key, value)| Setting::of(key).part_with(value) == part)
            .map(|(key, value)| (Setting::name(key), value.as_str()))
    }

    /// Returns the block node of the image's file.
    fn file_node(&self) -> Value {
        let node_name = format!("{}-file", self.node);
        let mut protocol =
            json!({ "driver": "file", "node-name": node_name, "cache": self.cache() });
        for (name, value) in self.settings_of(SettingPart::FileNode) {
            // The one of them that is a text also when it is `on`.
            let is_text = name == "locking";
            let value = if is_text { json!(value) } else { scalar(value) };
            insert(&mut protocol, name, value);
        }
        self.restrict(&mut protocol);
        self.complete(&mut protocol);
        protocol
    }

    /// Returns the limits of the disk's throttle group; empty where it has none.
    fn limits(&self) -> Map<String, Value> {
        self.settings_of(SettingPart::Throttle)
            .map(|(name, value)| (name.to_owned(), scalar(value)))
            .collect()
    }

    /// Returns the block node of the image's format, over the node `below`.
    fn format_node(&self, below: &str) -> Value {
        let (node, cache) = (self.node, self.cache());
        let driver = self.setting("format").unwrap_or("raw");
        let mut format =
            json!({ "driver": driver, "node-name": node, "file": below, "cache": cache });
        let is_set = |key: &str| driver != "raw" && is_format_option(key);
        for (key, value) in self.set.iter().filter(|(key, _)| is_set(key)) {
            format[key] = size(value, 1).map_or_else(|| scalar(value), |bytes| json!(bytes));
        }
        if let Some(value) = self.setting("detect-zeroes") {
            format["detect-zeroes"] = json!(value);
        }
        self.restrict(&mut format);
        format
    }

    /// Gives a block node what all nodes of the disk have: the mode of `discard`, where that is not the device's switch, and that
    /// nobody may write.
    fn restrict(&self, node: &mut Value) {
        let is_mode =
            |value: &&str| Setting::of("discard").part_with(value) == SettingPart::AllNodes;
        if let Some(discard) = self.setting("discard").filter(is_mode) {
            node["discard"] = json!(discard);
        }
        if self.read_only {
            node["read-only"] = json!(true);
        }
    }

    fn setting(&self, key: &str) -> Option<&str> {
        self.set.get(key).map(String::as_str)
    }

    /// Returns the arguments of the disk's device, of its controller and of its iothread.
    fn device_arguments(&self) -> Vec<String> {
        let (node, mut arguments) = (self.node, Vec::new());
        let devices = DiskDevices::of(self.bus());
        let mut front = self.front(devices);
        let mut behind = devices
            .controller
            .map(|controller| format!("{controller},id={node}-bus"));
        if self.setting("iothread") == Some("on") {
            arguments.extend(["-object".to_owned(), self.iothread()]);
            *behind.as_mut().unwrap_or(&mut front) += &format!(",iothread={node}-io");
        }
        if let Some(write_cache) = self.write_cache() {
            front += &format!(",write-cache={write_cache}");
        }
        for (key, value) in self.set {
            if !matches!(Setting::of(key).part_with(value), SettingPart::Device(_)) {
                continue;
            }
            let on = behind
                .as_mut()
                .filter(|_| devices.is_of_controller(key))
                .unwrap_or(&mut front);
            *on += &format!(",{}={}", devices.property(key), escaped(&property(value)));
        }
        if let Some(controller) = behind {
            arguments.extend(["-device".to_owned(), controller]);
        }
        arguments.extend(["-device".to_owned(), front]);
        arguments
    }

    /// Returns the bus that the guest has the disk on; `None` for virtio-blk, which is a device of its own.
    fn bus(&self) -> Option<&str> {
        self.setting("bus").filter(|bus| *bus != "virtio-blk")
    }

    /// Returns the disk's device on its bus, without the properties that are settings.
    fn front(&self, devices: DiskDevices) -> String {
        let node = self.node;
        let model = self.bus().map_or(self.device, |_| devices.disk);
        let mut front = format!("{model},id={node}-device,drive={node}");
        let own_bus = devices
            .controller
            .map(|_| format!("{node}-bus.0"))
            .or(devices.bus.map(str::to_owned));
        if let Some(bus) = own_bus {
            front += &format!(",bus={bus}");
        }
        if let Some(serial) = self.serial {
            front += &format!(",serial={serial}");
        }
        front
    }

    /// Returns the iothread with its properties.
    fn iothread(&self) -> String {
        let mut iothread = format!("iothread,id={}-io", self.node);
        for (name, value) in self.settings_of(SettingPart::IothreadProperty) {
            iothread += &format!(",{name}={}", escaped(value));
        }
        iothread
    }

    /// A file's name and engine, for what is a file.
    fn complete(&self, protocol: &mut Value) {
        if protocol["driver"] == "file" {
            protocol["filename"] = json!(self.file);
            if protocol.get("aio").is_none() {
                // Linux' asynchronous I/O takes files opened for direct I/O only.
                let is_cached = protocol["cache"]["direct"] == false;
                protocol["aio"] = json!(if is_cached && self.aio == "native" {
                    "threads"
                } else {
                    self.aio
                });
            }
        } else if let Some(node) = protocol.as_object_mut() {
            // What has no file has a size instead.
            node.remove("aio");
            let bytes = self.file.metadata().map_or(256 << 20, |m| m.len());
            node.entry("size").or_insert_with(|| json!(bytes));
        }
    }

    /// QEMU's cache modes, as the block layer's own two switches.
    fn cache(&self) -> Value {
        let (direct, no_flush) = match self.setting("cache") {
            Some("writeback" | "writethrough") => (false, false),
            Some("unsafe") => (false, true),
            Some("none" | "directsync") => (true, false),
            _ => (self.direct, false),
        };
        json!({ "direct": direct, "no-flush": no_flush })
    }

    /// Returns the third switch of QEMU's cache modes, `write-cache`, which is the device's; `None` without a `cache`
    /// setting.
    fn write_cache(&self) -> Option<&'static str> {
        match self.setting("cache") {
            Some("writethrough" | "directsync") => Some("off"),
            Some(_) => Some("on"),
            None => None,
        }
    }
}

/// Returns true for an option of the format's node other than its driver.
fn is_format_option(key: &str) -> bool {
    key != "format" && Setting::of(key).part == SettingPart::FormatNode
}

/// A setting's value as the block layer's JSON has it.
fn scalar(text: &str) -> Value {
    match text {
        "on" | "true" => json!(true),
        "off" | "false" => json!(false),
        _ => text
            .parse::<u64>()
            .map_or_else(|_| json!(text), |n| json!(n)),
    }
}

/// Returns a setting's value as a property of a device has it.
fn property(text: &str) -> String {
    match scalar(text) {
        Value::Bool(on) => (if on { "on" } else { "off" }).to_owned(),
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// Sets a nested value: key `a.b.c` is `c` in `b` in `a`.
fn insert(node: &mut Value, key: &str, value: Value) {
    match key.split_once('.') {
        Some((first, rest)) => {
            if !node[first].is_object() {
                node[first] = json!({});
            }
            insert(&mut node[first], rest, value);
        }
        None => node[key] = value,
    }
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

/// Where QEMU's q35 has room for root ports: below are a guest's other devices, above is the chipset.
const FIRST_SLOT: u32 = 0x10;
const FUNCTIONS: u32 = 8;
/// Prefix of the dummy devices' names.
const DUMMY_PREFIX: &str = "extra-";

/// QEMU's arguments for them. Eight share a root port, as functions of one device, and so do eight root ports a slot.
pub(crate) fn dummy_devices(disks: u32, regions: u32) -> Vec<String> {
    let mut arguments = Vec::new();
    for port in 0..(disks + regions).div_ceil(FUNCTIONS) {
        let (slot, function) = (FIRST_SLOT + port / FUNCTIONS, port % FUNCTIONS);
        let chassis = port + 1;
        // Nothing is plugged in later: no room of the few ports of I/O is kept for that.
        let root =
            format!("pcie-root-port,id=extras{port},chassis={chassis},hotplug=off,io-reserve=0");
        let place = format!("addr={slot:#x}.{function},multifunction=on");
        arguments.extend(["-device".to_owned(), format!("{root},{place}")]);
    }
    for number in 0..disks + regions {
        let back = format!("{DUMMY_PREFIX}{number}-back");
        let (option, back_end, device) = if number < disks {
            let back_end = "null-co,read-zeroes=on,size=1073741824,node-name=";
            ("-blockdev", back_end, "virtio-blk-pci,drive=")
        } else {
            let back_end = "memory-backend-ram,size=64K,id=";
            ("-object", back_end, "ivshmem-plain,memdev=")
        };
        let (port, function) = (number / FUNCTIONS, number % FUNCTIONS);
        let place = format!("bus=extras{port},addr=0.{function},multifunction=on");
        let device = format!("{device}{back},id={DUMMY_PREFIX}{number},{place}");
        arguments.extend([option.to_owned(), back_end.to_owned() + &back]);
        arguments.extend(["-device".to_owned(), device]);
    }
    arguments
}

/// Checks that a running guest has all dummy devices at addresses of their own: not every firmware has room for every
/// number.
pub(crate) fn check_dummy_devices(
    setup: &Setup<'_>,
    monitor: &Monitor,
) -> Result<(), MachineError> {
    let asked = setup.guest.devices();
    if asked == 0 {
        return Ok(());
    }
    let placed = placed(&monitor.execute("query-pci")?);
    if placed == asked as usize {
        Ok(())
    } else {
        Err(MachineError::Devices { asked, placed })
    }
}

/// Returns the number of dummy devices that have all of their memory at an address.
fn placed(buses: &Value) -> usize {
    // Not placed is 0 or, of 32 or 64 bits, all ones.
    let is_placed = |region: &Value| {
        let address = region["address"].as_u64();
        address.is_some_and(|at| ![0, u64::MAX, u64::from(u32::MAX)].contains(&at))
    };
    let is_dummy = |device: &&Value| {
        let name = device["qdev_id"].as_str().unwrap_or_default();
        let mut regions = items(&device["regions"]).peekable();
        name.starts_with(DUMMY_PREFIX) && regions.peek().is_some() && regions.all(is_placed)
    };
    devices(buses).into_iter().filter(is_dummy).count()
}

/// Words of a command line.
pub(crate) fn owned<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn arguments(set: &[(&str, &str)]) -> String {
        let set = set
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        let file = Path::new("/x/disk.raw");
        let device = "virtio-blk-pci";
        let disk = Disk {
            node: "disk",
            device,
            serial: Some("s"),
            file,
            direct: true,
            aio: "native",
            read_only: false,
            set: &set,
        };
        disk.arguments().join(" ")
    }

    #[test]
    fn settings_go_where_they_belong() {
        let plain = arguments(&[]);
        assert!(
            plain.contains(r#""aio":"native""#) && plain.contains(r#""direct":true"#),
            "{plain}"
        );
        assert!(arguments(&[("aio", "io_uring")]).contains(r#""aio":"io_uring""#));
        let off = arguments(&[("ioeventfd", "off"), ("num-queues", "4")]);
        assert!(off.contains(",ioeventfd=off,num-queues=4"), "{off}");
        let thread = arguments(&[("iothread", "on")]);
        assert!(
            thread.contains("-object iothread,id=disk-io") && thread.contains(",iothread=disk-io"),
            "{thread}"
        );
        assert!(!arguments(&[("iothread", "off")]).contains("iothread"));
        let polled = arguments(&[("iothread", "on"), ("iothread.poll-max-ns", "0")]);
        assert!(
            polled.contains("-object iothread,id=disk-io,poll-max-ns=0 "),
            "{polled}"
        );
        let cached = arguments(&[("cache", "writethrough")]);
        assert!(
            cached.contains(r#""direct":false"#) && cached.contains(",write-cache=off"),
            "{cached}"
        );
        assert!(
            cached.contains(r#""aio":"threads""#),
            "native would be refused: {cached}"
        );
        let null = arguments(&[("drive.driver", "null-co"), ("latency-ns", "50000")]);
        assert!(
            null.contains(r#""driver":"null-co","latency-ns":50000"#) && !null.contains("filename"),
            "{null}"
        );
        let slow = arguments(&[("throttling.iops-total", "100")]);
        assert!(
            slow.contains(r#""limits":{"iops-total":100}"#)
                && slow.contains(r#""file":"disk-slow""#),
            "{slow}"
        );
        let qcow2 = arguments(&[
            ("format", "qcow2"),
            ("l2-cache-size", "1M"),
            ("image.cluster_size", "4096"),
        ]);
        assert!(
            qcow2.contains(r#""driver":"qcow2","file":"disk-file","l2-cache-size":1048576"#),
            "{qcow2}"
        );
        assert!(!qcow2.contains("cluster"), "{qcow2}");
        let unmapped = arguments(&[("discard", "unmap"), ("detect-zeroes", "unmap")]);
        assert_eq!(
            unmapped.matches(r#""discard":"unmap""#).count(),
            2,
            "{unmapped}"
        );
        assert!(arguments(&[("discard", "off")]).ends_with(",discard=off"));
        let scsi = arguments(&[
            ("bus", "virtio-scsi"),
            ("iothread", "on"),
            ("num-queues", "2"),
            ("logical_block_size", "4096"),
        ]);
        assert!(
            scsi.contains("-device virtio-scsi-pci,id=disk-bus,iothread=disk-io,num_queues=2 "),
            "{scsi}"
        );
        let disk = "-device scsi-hd,id=disk-device,drive=disk,bus=disk-bus.0,serial=s,logical_block_size=4096";
        assert!(scsi.ends_with(disk), "{scsi}");
        let sata = arguments(&[("bus", "sata"), ("cache", "none")]);
        assert!(
            sata.contains(
                "ahci,id=disk-bus -device ide-hd,id=disk-device,drive=disk,bus=disk-bus.0,"
            ),
            "{sata}"
        );
        assert!(
            arguments(&[("bus", "ide")])
                .contains("-device ide-hd,id=disk-device,drive=disk,bus=ide.0,serial=s")
        );
        assert!(
            arguments(&[("bus", "nvme")])
                .contains("-device nvme,id=disk-device,drive=disk,serial=s")
        );
        assert!(
            arguments(&[("drive.cache.direct", "off")]).contains(r#""cache":{"direct":false,"#)
        );
    }

    #[test]
    fn eight_share_a_port_and_none_an_address() {
        let arguments = dummy_devices(9, 8);
        let count = |what: &str| {
            arguments
                .iter()
                .filter(|word| word.starts_with(what))
                .count()
        };
        assert_eq!(
            [
                count("pcie-root-port"),
                count("virtio-blk"),
                count("ivshmem"),
                count("null-co")
            ],
            [3, 9, 8, 9]
        );
        let mut places: Vec<_> = arguments
            .iter()
            .filter_map(|word| word.split_once("bus="))
            .collect();
        places.sort_unstable_by_key(|(_, place)| *place);
        places.dedup_by_key(|(_, place)| *place);
        assert_eq!(places.len(), 17);
        assert!(dummy_devices(0, 0).is_empty());
        let most = dummy_devices(vmtax_model::Guest::MAX_DEVICES, 0);
        let last = most
            .iter()
            .rfind(|word| word.starts_with("pcie-root-port"))
            .unwrap();
        assert!(
            last.contains("chassis=120,") && last.contains("addr=0x1e.7"),
            "{last}"
        );
    }

    #[test]
    fn what_has_no_address_is_not_there() {
        let device = |name: &str, at: i64| json!({ "qdev_id": name, "regions": [{ "address": 4096 }, { "address": at }] });
        let behind = json!({ "qdev_id": "extras0", "regions": [], "pci_bridge": { "devices": [
            device("extra-0", 4096), device("extra-1", -1), device("extra-2", 0xffff_ffff), device("other", 4096),
        ]}});
        let buses = json!([{ "devices": [behind, device("extra-3", 4096), device("extra-4", 0)] }]);
        assert_eq!(placed(&buses), 2);
        assert_eq!(placed(&json!("nonsense")), 0);
    }
}
