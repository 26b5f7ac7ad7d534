//! Arguments of QEMU that attach a disk, from a variant's settings.

use super::arguments::{escaped, size};
use super::disk_devices::DiskDevices;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use vmtax_model::{Setting, SettingPart};

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
    /// The settings over the usual ones: `aio`, `cache`, `iothread=on`, `iothread.PROPERTY` of it, `throttling.LIMIT`, `drive.KEY`, `format`, `bus`, and any
    /// property of the device.
    pub set: &'a BTreeMap<String, String>,
}

impl Disk<'_> {
    /// The arguments that attach it.
    pub fn arguments(&self) -> Vec<String> {
        let (node, mut arguments) = (self.node, Vec::new());
        let cache = self.cache();
        let mut protocol =
            json!({ "driver": "file", "node-name": format!("{node}-file"), "cache": cache });
        let mut device = Map::new();
        let mut limits = Map::new();
        let mut iothread = format!("iothread,id={node}-io");
        for (key, value) in self.set {
            let setting = Setting::of(key);
            let name = Setting::name(key);
            match setting.part_with(value) {
                SettingPart::Throttle => {
                    limits.insert(name.to_owned(), scalar(value));
                }
                SettingPart::IothreadProperty => iothread += &format!(",{name}={}", escaped(value)),
                // The one of them that is a text also when it is `on`.
                SettingPart::FileNode if name == "locking" => {
                    insert(&mut protocol, name, json!(value))
                }
                SettingPart::FileNode => insert(&mut protocol, name, scalar(value)),
                SettingPart::Device(_) => {
                    device.insert(key.clone(), scalar(value));
                }
                // Below, at the format, at all nodes, at the device. The others are not of a disk.
                _ => {}
            }
        }
        if self.read_only {
            protocol["read-only"] = json!(true);
        }
        let discard = self
            .set
            .get("discard")
            .filter(|value| Setting::of("discard").part_with(value) == SettingPart::AllNodes);
        if let Some(discard) = discard {
            protocol["discard"] = json!(discard);
        }
        self.complete(&mut protocol);
        arguments.extend(["-blockdev".to_owned(), protocol.to_string()]);
        let mut top = format!("{node}-file");
        if !limits.is_empty() {
            arguments.extend([
                "-object".to_owned(),
                json!({ "qom-type": "throttle-group", "id": format!("{node}-limits"), "limits": limits }).to_string(),
            ]);
            let filter = json!({ "driver": "throttle", "node-name": format!("{node}-slow"), "throttle-group": format!("{node}-limits"), "file": top });
            arguments.extend(["-blockdev".to_owned(), filter.to_string()]);
            top = format!("{node}-slow");
        }
        let driver = self.set.get("format").map_or("raw", String::as_str);
        let mut format =
            json!({ "driver": driver, "node-name": node, "file": top, "cache": cache });
        for (key, value) in self
            .set
            .iter()
            .filter(|(key, _)| driver != "raw" && is_format_option(key))
        {
            format[key] = size(value, 1).map_or_else(|| scalar(value), |bytes| json!(bytes));
        }
        if let Some(value) = self.set.get("detect-zeroes") {
            format["detect-zeroes"] = json!(value);
        }
        if let Some(discard) = discard {
            format["discard"] = json!(discard);
        }
        if self.read_only {
            format["read-only"] = json!(true);
        }
        arguments.extend(["-blockdev".to_owned(), format.to_string()]);
        let bus = self
            .set
            .get("bus")
            .map(String::as_str)
            .filter(|bus| *bus != "virtio-blk");
        let devices = DiskDevices::of(bus);
        let model = if bus.is_none() {
            self.device
        } else {
            devices.disk
        };
        let mut front = format!("{model},id={node}-device,drive={node}");
        let mut behind = devices
            .controller
            .map(|controller| format!("{controller},id={node}-bus"));
        let own_bus = behind
            .as_ref()
            .map(|_| format!("{node}-bus.0"))
            .or(devices.bus.map(str::to_owned));
        if let Some(bus) = own_bus {
            front += &format!(",bus={bus}");
        }
        if let Some(serial) = self.serial {
            front += &format!(",serial={serial}");
        }
        if self.set.get("iothread").is_some_and(|v| v == "on") {
            arguments.extend(["-object".to_owned(), iothread]);
            *behind.as_mut().unwrap_or(&mut front) += &format!(",iothread={node}-io");
        }
        if let Some(write_cache) = self.write_cache() {
            front += &format!(",write-cache={write_cache}");
        }
        for (key, value) in device {
            let value = match value {
                Value::Bool(on) => (if on { "on" } else { "off" }).to_owned(),
                Value::String(text) => text,
                other => other.to_string(),
            };
            let on = behind
                .as_mut()
                .filter(|_| devices.is_of_controller(&key))
                .unwrap_or(&mut front);
            *on += &format!(",{}={}", devices.property(&key), escaped(&value));
        }
        if let Some(controller) = behind {
            arguments.extend(["-device".to_owned(), controller]);
        }
        arguments.extend(["-device".to_owned(), front]);
        arguments
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
        let (direct, no_flush) = match self.set.get("cache").map(String::as_str) {
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
        match self.set.get("cache").map(String::as_str) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
