//! How a disk is attached: a variant's settings as QEMU's arguments.

use super::arguments::escaped;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Settings that belong to what is behind the device, without their prefix; all others are the device's.
const DRIVE: [&str; 8] =
    ["aio", "driver", "latency-ns", "read-zeroes", "size", "locking", "drop-cache", "x-check-cache-dropped"];

/// The name of a disk's setting that belongs to what is behind the device; `cache` and limits aside.
pub fn file_option(key: &str) -> Option<&str> {
    key.strip_prefix("drive.").or(DRIVE.contains(&key).then_some(key))
}

/// A raw disk behind virtio-blk.
pub(crate) struct Disk<'a> {
    /// QEMU's name for it.
    pub node: &'a str,
    /// The device, with what it always has.
    pub device: &'a str,
    /// What the guest finds it by; `None` for the device's own.
    pub serial: Option<&'a str>,
    /// The file.
    pub file: &'a Path,
    /// Whether the file can be read past the host's page cache.
    pub direct: bool,
    /// `aio` where the settings name none.
    pub aio: &'a str,
    /// Whether nobody may write to it.
    pub read_only: bool,
    /// The settings over the usual ones: `aio`, `cache`, `iothread=on`, `throttling.LIMIT`, `drive.KEY`, and any
    /// property of the device.
    pub set: &'a BTreeMap<String, String>,
}

impl Disk<'_> {
    /// The arguments that attach it.
    pub fn arguments(&self) -> Vec<String> {
        let (node, mut arguments) = (self.node, Vec::new());
        let cache = self.cache();
        let mut protocol = json!({ "driver": "file", "node-name": format!("{node}-file"), "cache": cache });
        let mut device = Map::new();
        let mut limits = Map::new();
        for (key, value) in self.set {
            if let Some(limit) = key.strip_prefix("throttling.") {
                limits.insert(limit.to_owned(), scalar(value));
            } else if let Some(key) = file_option(key) {
                // The one of them that is a text also when it is `on`.
                let value = if key == "locking" { json!(value) } else { scalar(value) };
                insert(&mut protocol, key, value);
            } else if !matches!(key.as_str(), "cache" | "iothread") {
                device.insert(key.strip_prefix("device.").unwrap_or(key).to_owned(), scalar(value));
            }
        }
        if self.read_only {
            protocol["read-only"] = json!(true);
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
        let mut format = json!({ "driver": "raw", "node-name": node, "file": top, "cache": cache });
        if self.read_only {
            format["read-only"] = json!(true);
        }
        arguments.extend(["-blockdev".to_owned(), format.to_string()]);
        let mut front = format!("{},id={node}-device,drive={node}", self.device);
        if let Some(serial) = self.serial {
            front += &format!(",serial={serial}");
        }
        if self.set.get("iothread").is_some_and(|v| v == "on") {
            arguments.extend(["-object".to_owned(), format!("iothread,id={node}-io")]);
            front += &format!(",iothread={node}-io");
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
            front += &format!(",{key}={}", escaped(&value));
        }
        arguments.extend(["-device".to_owned(), front]);
        arguments
    }

    /// A file's name and engine, for what is a file.
    fn complete(&self, protocol: &mut Value) {
        if protocol["driver"] == "file" {
            protocol["filename"] = json!(self.file);
            if protocol.get("aio").is_none() {
                protocol["aio"] = json!(self.aio);
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

    /// Its third switch is the device's.
    fn write_cache(&self) -> Option<&'static str> {
        match self.set.get("cache").map(String::as_str) {
            Some("writethrough" | "directsync") => Some("off"),
            Some(_) => Some("on"),
            None => None,
        }
    }
}

/// A setting's value as the block layer's JSON has it.
fn scalar(text: &str) -> Value {
    match text {
        "on" | "true" => json!(true),
        "off" | "false" => json!(false),
        _ => text.parse::<u64>().map_or_else(|_| json!(text), |n| json!(n)),
    }
}

/// Sets `a.b.c`.
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
        let set = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
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
        assert!(plain.contains(r#""aio":"native""#) && plain.contains(r#""direct":true"#), "{plain}");
        assert!(arguments(&[("aio", "io_uring")]).contains(r#""aio":"io_uring""#));
        let off = arguments(&[("ioeventfd", "off"), ("num-queues", "4")]);
        assert!(off.contains(",ioeventfd=off,num-queues=4"), "{off}");
        let thread = arguments(&[("iothread", "on")]);
        assert!(thread.contains("-object iothread,id=disk-io") && thread.contains(",iothread=disk-io"), "{thread}");
        assert!(!arguments(&[("iothread", "off")]).contains("iothread"));
        let cached = arguments(&[("cache", "writethrough")]);
        assert!(cached.contains(r#""direct":false"#) && cached.contains(",write-cache=off"), "{cached}");
        let null = arguments(&[("drive.driver", "null-co"), ("latency-ns", "50000")]);
        assert!(null.contains(r#""driver":"null-co","latency-ns":50000"#) && !null.contains("filename"), "{null}");
        let slow = arguments(&[("throttling.iops-total", "100")]);
        assert!(slow.contains(r#""limits":{"iops-total":100}"#) && slow.contains(r#""file":"disk-slow""#), "{slow}");
        assert!(arguments(&[("drive.cache.direct", "off")]).contains(r#""cache":{"direct":false,"#));
    }
}
