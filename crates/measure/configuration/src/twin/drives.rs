//! The disks of a QEMU command line, by its graph of block nodes.

use super::{BACKING, Twin, TwinDisk};
use std::path::PathBuf;
use vmtax_model::{ScsiDevice, Setting, SettingPart};
use vmtax_vmm::qemu::arguments::{Properties, is_on};
use vmtax_vmm::qemu::block_graph::{BlockGraph, Chain, GuestDisk, Storage};

/// A disk that a test guest can have.
pub(super) struct UsableDisk<'a> {
    pub found: &'a GuestDisk,
    bus: &'static str,
    chain: Chain<'a>,
    file: PathBuf,
}

/// The disks that a test guest can have, and a line for each other one.
pub(super) fn disks(graph: &BlockGraph) -> (Vec<UsableDisk<'_>>, Vec<String>) {
    let (mut all, mut left_out) = (Vec::new(), Vec::new());
    for disk in graph.disks() {
        match usable(graph, disk) {
            Ok(disk) => all.push(disk),
            Err(why) => left_out.push(why),
        }
    }
    (all, left_out)
}

/// Returns the disk, or a line that says why a test guest cannot have it.
fn usable<'a>(graph: &'a BlockGraph, found: &'a GuestDisk) -> Result<UsableDisk<'a>, String> {
    let name = &found.name;
    let bus = bus_of(graph, found)?;
    let missing =
        || format!("disk {name}: the command line names no file for it, or too many block nodes");
    let chain = graph.of_disk(found).ok_or_else(missing)?;
    let file = match chain.storage().ok_or_else(missing)? {
        Storage::File(file) => file,
        Storage::Driver(driver) => {
            let driver = if driver == "rbd" {
                "Ceph's RBD"
            } else {
                &driver
            };
            return Err(format!(
                "disk {name}: its storage is {driver}, which a local file cannot replace"
            ));
        }
    };
    if chain.is_read_only() {
        return Err(format!("disk {name}: it is read-only"));
    }
    Ok(UsableDisk {
        found,
        bus,
        chain,
        file,
    })
}

/// The bus of a disk; a line about what is no disk.
pub(crate) fn bus_of(graph: &BlockGraph, found: &GuestDisk) -> Result<&'static str, String> {
    let [device, _] = graph.devices_of(found);
    let driver = device.and_then(|device| device.get("driver"));
    let bus = device.and_then(|device| device.get("bus"));
    let name = &found.name;
    match (found.interface.as_deref(), driver.unwrap_or_default()) {
        (Some("virtio"), _) => Ok("virtio-blk"),
        (Some("scsi"), _) => Ok("virtio-scsi"),
        (Some("ide"), _) => Ok(graph.own_bus()),
        (Some(other), _) => Err(format!("drive {name} ({other})")),
        (None, driver) if driver.starts_with("virtio-blk") => Ok("virtio-blk"),
        (None, "scsi-hd" | "scsi-disk") => Ok("virtio-scsi"),
        // The machine type's own controller has buses of this name.
        (None, "ide-hd" | "ide-drive") if bus.is_none_or(|bus| bus.starts_with("ide.")) => {
            Ok(graph.own_bus())
        }
        (None, "ide-hd" | "ide-drive") => Ok("sata"),
        (None, "nvme" | "nvme-ns") => Ok("nvme"),
        (None, other) => Err(format!("device {other} {name}")),
    }
}

/// Reads the disk that is tuned.
pub(super) fn read_disk(twin: &mut Twin, disk: &UsableDisk<'_>, graph: &BlockGraph) {
    let [device, controller] = graph.devices_of(disk.found);
    twin.disk = TwinDisk {
        name: disk.found.name.clone(),
        file: Some(disk.file.clone()),
        ..TwinDisk::default()
    };
    if disk.bus != "virtio-blk" {
        twin.disk.set("bus", disk.bus);
    }
    let is_other = |driver: &str| !driver.starts_with("virtio-scsi") && !driver.starts_with("nvme");
    let driver = controller.and_then(|owner| owner.get("driver"));
    let other = driver.filter(|driver| is_other(driver));
    if let Some(driver) = other {
        twin.lacks(format!("SCSI controller {driver}: replaced by virtio-scsi"));
    }
    let devices = [device, controller.filter(|_| other.is_none())];
    for device in devices.into_iter().flatten() {
        read_device(twin, device);
    }
    let mut iothreads = devices
        .iter()
        .flatten()
        .filter_map(|one| one.get("iothread"));
    if let Some(id) = iothreads.next() {
        twin.disk.set("iothread", "on");
        let object = graph.object(id).into_iter().flat_map(Properties::all);
        for (key, value) in object.map(|(key, value)| (format!("iothread.{key}"), value)) {
            if Setting::listed(&key).is_some_and(|setting| !setting.is_family()) {
                twin.disk.set(&key, value);
            }
        }
    }
    read_cache(twin, &disk.chain, writes_back(device, &disk.chain));
    read_nodes(twin, &disk.chain);
    read_limits(twin, &disk.chain, graph);
}

/// Reads QEMU's switches of a cache as its mode.
fn read_cache(twin: &mut Twin, chain: &Chain<'_>, writes_back: bool) {
    twin.disk.set("cache", cache_mode(chain, writes_back));
    let has = |switch| chain.switch(switch) == Some(true);
    if has("cache.direct") && has("cache.no-flush") {
        twin.lacks("cache.no-flush beside cache.direct: the test guest flushes");
    }
}

/// Returns the mode that QEMU's switches of a cache make together.
pub(crate) fn cache_mode(chain: &Chain<'_>, writes_back: bool) -> &'static str {
    let has = |switch| chain.switch(switch) == Some(true);
    match (has("cache.direct"), has("cache.no-flush"), writes_back) {
        (true, _, true) => "none",
        (true, _, false) => "directsync",
        (false, true, _) => "unsafe",
        (false, false, true) => "writeback",
        (false, false, false) => "writethrough",
    }
}

/// Returns true if writes to the disk are complete before they are flushed.
pub(crate) fn writes_back(device: Option<&Properties>, chain: &Chain<'_>) -> bool {
    let given = device.and_then(|device| is_on(device.get("write-cache")?));
    given.unwrap_or(chain.switch("cache.writeback") != Some(false))
}

/// Reads the format, and the options of the block nodes.
fn read_nodes(twin: &mut Twin, chain: &Chain<'_>) {
    match chain.format() {
        Some(given) => twin.set_format(given),
        None => twin.disk.is_format_probed = true,
    }
    for filter in chain.filters().filter(|filter| *filter != "throttle") {
        twin.lacks(format!("block filter {filter} of the disk"));
    }
    if let Some(aio) = chain.of_file("aio") {
        twin.disk.set("aio", aio);
    }
    if chain.discards() {
        twin.disk.set("discard", "unmap");
    }
    for (key, value) in chain
        .options()
        .filter(|(_, value)| is_on(value) != Some(false))
    {
        let name = key.split('.').next().unwrap_or(key);
        match name {
            "backing" if value == "null" => {}
            "backing" => twin.lacks(BACKING),
            "aio-max-batch" => twin.disk.set("drive.aio-max-batch", value),
            // They name nodes, connect them, are read elsewhere or say nothing of speed.
            "addr" | "aio" | "auto-read-only" | "bus" | "cache" | "discard" | "driver"
            | "drop-cache" | "file" | "filename" | "force-share" | "id" | "if" | "image"
            | "index" | "locking" | "media" | "node-name" | "read-only" | "rerror" | "serial"
            | "throttle-group" | "throttling" | "unit" | "werror" => {}
            _ if is_of_image(key) => twin.disk.set(key, switch(value)),
            // Values may be keys.
            _ => twin.lacks(format!("option {name} of the disk's image")),
        }
    }
}

/// Returns true if the test guest's image has an option of block nodes by the same name.
fn is_of_image(option: &str) -> bool {
    let part = Setting::listed(option).map(|setting| setting.part);
    matches!(part, Some(SettingPart::FormatNode | SettingPart::AllNodes))
}

/// Reads the limits of the drive, or of the first throttle group above its file.
fn read_limits(twin: &mut Twin, chain: &Chain<'_>, graph: &BlockGraph) {
    let (limits, unread) = limits(chain, graph);
    for id in unread {
        twin.lacks(format!("limits of throttle group {id}"));
    }
    for (limit, value) in limits {
        twin.disk.set(&format!("throttling.{limit}"), value);
    }
}

/// Returns the limits of the drive, or of the first throttle group above its file, and the groups that were not read.
pub(crate) fn limits<'a>(
    chain: &Chain<'a>,
    graph: &'a BlockGraph,
) -> (Vec<(&'a str, &'a str)>, Vec<&'a str>) {
    let own = chain.options().filter_map(|(key, value)| {
        let limit = key
            .strip_prefix("throttling.")
            .filter(|key| *key != "group")?;
        Some((limit, value))
    });
    let mut all: Vec<(&str, &str)> = own.collect();
    let mut unread = Vec::new();
    for id in chain.throttle_groups() {
        let group = graph.object(id).filter(|_| all.is_empty());
        if group.is_none() {
            unread.push(id);
        }
        let limits = group.into_iter().flat_map(Properties::all);
        all.extend(limits.filter_map(|(key, value)| {
            let limit = key.strip_prefix("limits.").or(key.strip_prefix("x-"))?;
            Some((limit, value))
        }));
    }
    all.retain(|(_, value)| *value != "0");
    (all, unread)
}

/// Takes over the properties of a disk's device; names the others.
fn read_device(twin: &mut Twin, device: &Properties) {
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
            twin.lacks("iothread-vq-mapping: the test guest has one iothread");
        } else {
            match name {
                // They name it, connect it to others, or were read before.
                "driver" | "id" | "drive" | "bus" | "addr" | "bootindex" | "serial"
                | "multifunction" | "write-cache" | "iothread" | "share-rw" | "werror"
                | "rerror" | "romfile" | "rombar" | "acpi-index" | "failover_pair_id"
                | "channel" | "scsi-id" | "lun" | "unit" | "ver" | "wwn" | "device_id"
                | "vendor" | "product" | "scsi" | "model" | "disable-legacy" | "disable-modern" => {
                }
                _ => twin.lacks(format!("property {name}={value} of the disk")),
            }
        }
    }
}

/// JSON's `true` as QEMU's `on`.
pub(super) fn switch(value: &str) -> &str {
    match value {
        "true" | "yes" => "on",
        "false" | "no" => "off",
        other => other,
    }
}
