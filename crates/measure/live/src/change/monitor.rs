//! Settings that QEMU's monitor reads and changes.

use serde_json::{Map, Value, json};
use vmtax_vmm::Vm;
use vmtax_vmm::qemu::monitor::Monitor;

/// The limits that `query-block` tells and `block_set_io_throttle` takes.
const LIMITS: [&str; 19] = [
    "bps",
    "bps_rd",
    "bps_wr",
    "iops",
    "iops_rd",
    "iops_wr",
    "bps_max",
    "bps_rd_max",
    "bps_wr_max",
    "iops_max",
    "iops_rd_max",
    "iops_wr_max",
    "bps_max_length",
    "bps_rd_max_length",
    "bps_wr_max_length",
    "iops_max_length",
    "iops_rd_max_length",
    "iops_wr_max_length",
    "iops_size",
];
/// Those that `block_set_io_throttle` must be given.
const REQUIRED: [&str; 6] = ["bps", "bps_rd", "bps_wr", "iops", "iops_rd", "iops_wr"];

/// The limits of a disk, as a JSON object, with its throttle group.
pub(super) fn limits(vm: &Vm, device: &str) -> Result<String, String> {
    let monitor = monitor(vm)?;
    let answer = monitor.execute("query-block").map_err(|e| e.to_string())?;
    let disks = answer.as_array().map(Vec::as_slice).unwrap_or_default();
    let disk = disks
        .iter()
        .find(|disk| disk["qdev"] == device || disk["device"] == device);
    let inserted = &disk.ok_or("QEMU has no such disk")?["inserted"];
    let known = LIMITS
        .iter()
        .chain(&["group"])
        .filter_map(|key| Some(((*key).to_owned(), inserted.get(key)?.clone())));
    let mut found: Map<String, Value> = known.collect();
    // A disk without limits is in no group.
    if REQUIRED
        .iter()
        .all(|key| found.get(*key).is_none_or(|limit| *limit == 0))
    {
        found.clear();
    }
    Ok(Value::Object(found).to_string())
}

/// Sets the limits of a disk, given as JSON.
pub(super) fn set_limits(vm: &Vm, device: &str, limits: &str) -> Result<(), String> {
    let mut arguments: Map<String, Value> =
        serde_json::from_str(limits).map_err(|e| e.to_string())?;
    if !arguments
        .keys()
        .all(|key| LIMITS.contains(&&**key) || key == "group")
    {
        return Err(format!("{limits} has something that is no limit"));
    }
    for key in REQUIRED {
        arguments.entry(key).or_insert_with(|| json!(0));
    }
    arguments.insert("id".to_owned(), json!(device));
    execute(vm, "block_set_io_throttle", &Value::Object(arguments)).map(drop)
}

/// Limits of a throttle group that is an object of its own, and how long an iothread polls; other properties do other things.
pub(super) fn may_set(path: &str, property: &str) -> bool {
    path.strip_prefix("/objects/")
        .is_some_and(|name| !name.is_empty() && !name.contains('/'))
        && ["limits", "poll-max-ns"].contains(&property)
}

/// A property of an object, as JSON.
pub(super) fn property(vm: &Vm, path: &str, property: &str) -> Result<String, String> {
    let arguments = json!({ "path": path, "property": property });
    execute(vm, "qom-get", &arguments).map(|value| value.to_string())
}

/// Sets a property of an object to a value, given as JSON.
pub(super) fn set_property(vm: &Vm, path: &str, property: &str, value: &str) -> Result<(), String> {
    let value: Value =
        serde_json::from_str(value).map_err(|e| format!("{value} is no JSON: {e}"))?;
    let arguments = json!({ "path": path, "property": property, "value": value });
    execute(vm, "qom-set", &arguments).map(drop)
}

/// Opens the image of a disk again with an L2 cache of so many bytes.
pub(super) fn set_l2_cache(vm: &Vm, device: &str, size: &str) -> Result<(), String> {
    let size: u64 = size
        .parse()
        .map_err(|_| format!("{size} is no size in bytes"))?;
    qemu_io(vm, device, &format!("reopen -o l2-cache-size={size}"))
}

/// Flushes what was written to a disk.
pub(super) fn flush(vm: &Vm, device: &str) -> Result<(), String> {
    qemu_io(vm, device, "flush")
}

/// Executes a command of qemu-io on a disk.
fn qemu_io(vm: &Vm, device: &str, command: &str) -> Result<(), String> {
    if !device
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-_./[]#".contains(&b))
    {
        return Err("the device's name cannot be written in a monitor command".to_owned());
    }
    let line = format!("qemu-io -d {device} \"{command}\"");
    let arguments = json!({ "command-line": line });
    let answer = execute(vm, "human-monitor-command", &arguments)?;
    // It answers with nothing where it worked.
    match answer.as_str().unwrap_or_default().trim() {
        "" => Ok(()),
        said => Err(said.to_owned()),
    }
}

/// Executes a command of the monitor; gives its answer.
fn execute(vm: &Vm, command: &str, arguments: &Value) -> Result<Value, String> {
    let answer = monitor(vm)?.execute_with(command, arguments);
    answer.map_err(|e| e.to_string())
}

/// The monitor of a VM, or why there is none.
fn monitor(vm: &Vm) -> Result<&Monitor, String> {
    vm.monitor()
        .ok_or_else(|| format!("QEMU's monitor is needed: {}", vm.monitor_advice()))
}
