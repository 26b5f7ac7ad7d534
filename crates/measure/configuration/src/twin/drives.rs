//! The disks of a QEMU command line, by its graph of block nodes; settings in the header of a disk's image (format:
//! `docs/interop/qcow2.txt` of QEMU).

use super::{BACKING, Twin, TwinDisk};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
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

const MAGIC: [u8; 4] = *b"QFI\xfb";
/// The header of version 3 up to its feature bits.
const HEADER_BYTES: usize = 104;
/// Incompatible feature: L2 entries with subclusters.
const EXTENDED_L2: u64 = 1 << 4;
/// Compatible feature: lazy refcounts.
const LAZY_REFCOUNTS: u64 = 1;

/// The place and bytes by which QEMU finds the format of an image that is not qcow2.
const MAGICS: [(usize, &[u8], &str); 10] = [
    (0, b"KDMV", "vmdk"),
    (0, b"COWD", "vmdk"),
    (0, b"# Disk DescriptorFile", "vmdk"),
    (0, b"QED\0", "qed"),
    (0, b"LUKS\xba\xbe", "luks"),
    (0, b"vhdxfile", "vhdx"),
    (0, b"conectix", "vpc"),
    (0, b"WithoutFreeSpace", "parallels"),
    (0, b"WithouFreSpacExt", "parallels"),
    (64, b"\x7f\x10\xda\xbe", "vdi"),
];

/// A qcow2 image, by its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Qcow2 {
    /// 2 or 3.
    pub version: u32,
    /// Size of a cluster, bytes.
    pub cluster_size: u64,
    /// The guest's disk, bytes.
    pub size: u64,
    /// True if entries of its L2 tables have subclusters.
    pub extended_l2: bool,
    /// True if refcounts are written late.
    pub lazy_refcounts: bool,
    /// True if another image lies behind it.
    pub has_backing: bool,
}

/// Reads the header of a qcow2 image; `None` of other formats.
pub(super) fn qcow2(header: &[u8]) -> Option<Qcow2> {
    let word = |at: usize| {
        header
            .get(at..at + 4)
            .map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    };
    let long = |at: usize| Some(u64::from(word(at)?) << 32 | u64::from(word(at + 4)?));
    if header.get(..4)? != MAGIC {
        return None;
    }
    let version = word(4)?;
    let bits = word(20).filter(|bits| (9..=21).contains(bits))?;
    // Version 2 has no feature bits.
    let features = |at| if version >= 3 { long(at) } else { Some(0) };
    Some(Qcow2 {
        version,
        cluster_size: 1 << bits,
        size: long(24)?,
        extended_l2: features(72)? & EXTENDED_L2 != 0,
        lazy_refcounts: features(80)? & LAZY_REFCOUNTS != 0,
        has_backing: long(8)? != 0,
    })
}

/// Adds what the image itself says: its format where nothing else does, its size, of qcow2 how it was made. One that cannot be
/// read is named.
pub(super) fn read_images(twin: &mut Twin) {
    let Some(path) = twin.disk.file.clone() else {
        return;
    };
    let image = read(&path);
    let name = path.display();
    if let Some(header) = twin.disk.is_format_probed.then_some(image.as_ref()) {
        match header.map(|(_, header)| format_of(header)) {
            Ok(format) => twin.set_format(format),
            Err(_) => twin.lacks(format!("image format of {name}: unknown, replaced by raw")),
        }
    }
    let set = &twin.disk.set;
    let is_qcow2 = set.get("format").is_some_and(|format| format == "qcow2");
    match image.map(|(bytes, header)| (bytes, qcow2(&header))) {
        Err(why) => twin.lacks(format!(
            "image {name}: {why}; its size and format options are not known"
        )),
        Ok((_, Some(image))) if is_qcow2 => {
            twin.disk.size = Some(image.size);
            made(&mut twin.disk, &image);
            if image.has_backing {
                twin.lacks(BACKING);
            }
        }
        Ok((bytes, _)) => {
            twin.disk.size = Some(bytes).filter(|_| !is_qcow2);
            if is_qcow2 {
                twin.lacks(format!("image {name}: it has no qcow2 header"));
            }
        }
    }
}

/// The format that QEMU finds in the first bytes of an image.
fn format_of(header: &[u8]) -> &'static str {
    let has = |(at, magic, _): &&(usize, &[u8], &str)| {
        header
            .get(*at..)
            .is_some_and(|rest| rest.starts_with(magic))
    };
    match qcow2(header) {
        Some(image) if image.version >= 2 => "qcow2",
        _ if header.starts_with(&MAGIC) => "qcow",
        _ => MAGICS.iter().find(has).map_or("raw", |(.., format)| format),
    }
}

/// Adds the creation options of a qcow2 image that are not `qemu-img create`'s defaults.
fn made(disk: &mut TwinDisk, image: &Qcow2) {
    if image.cluster_size != 65536 {
        disk.set("image.cluster_size", image.cluster_size.to_string());
    }
    if image.version < 3 {
        disk.set("image.compat", "0.10");
    }
    for (key, is_on) in [
        ("image.extended_l2", image.extended_l2),
        ("image.lazy_refcounts", image.lazy_refcounts),
    ] {
        if is_on {
            disk.set(key, "on");
        }
    }
}

/// The bytes of an image and its header.
fn read(path: &Path) -> std::io::Result<(u64, Vec<u8>)> {
    let kind = path.metadata()?.file_type();
    // Opening a FIFO would wait for a writer.
    if !kind.is_file() && !std::os::unix::fs::FileTypeExt::is_block_device(&kind) {
        return Err(std::io::Error::other(
            "it is neither a file nor a block device",
        ));
    }
    let mut file = File::open(path)?;
    let mut header = Vec::with_capacity(HEADER_BYTES);
    file.by_ref()
        .take(HEADER_BYTES as u64)
        .read_to_end(&mut header)?;
    Ok((file.seek(SeekFrom::End(0))?, header))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(version: u32, cluster_bits: u32, incompatible: u64, compatible: u64) -> Vec<u8> {
        let mut all = MAGIC.to_vec();
        all.extend(version.to_be_bytes());
        all.extend([0; 12]);
        all.extend(cluster_bits.to_be_bytes());
        all.extend((8_u64 << 30).to_be_bytes());
        all.extend([0; 40]);
        all.extend(incompatible.to_be_bytes());
        all.extend(compatible.to_be_bytes());
        all.resize(HEADER_BYTES, 0);
        all
    }

    #[test]
    fn a_header_says_how_the_image_was_made() {
        let usual = qcow2(&header(3, 16, 0, 0)).unwrap();
        assert_eq!(
            (usual.cluster_size, usual.size, usual.has_backing),
            (65536, 8 << 30, false)
        );
        let other = qcow2(&header(3, 17, EXTENDED_L2, LAZY_REFCOUNTS)).unwrap();
        assert!(other.extended_l2 && other.lazy_refcounts);
        let mut disk = TwinDisk::default();
        made(&mut disk, &other);
        assert_eq!(
            disk.set.get("image.cluster_size").map(String::as_str),
            Some("131072")
        );
        assert_eq!(disk.set.len(), 3);
        let old = qcow2(&header(2, 16, u64::MAX, u64::MAX)).unwrap();
        assert!(!old.extended_l2 && !old.lazy_refcounts);
        assert_eq!(
            (qcow2(b"QFI\xfb"), qcow2(&header(3, 64, 0, 0)), qcow2(b"")),
            (None, None, None)
        );
    }

    #[test]
    fn a_format_that_nothing_names_is_that_of_the_image() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |bytes: &[u8]| {
            std::fs::write(file.path(), bytes).unwrap();
            let mut twin = Twin::default();
            twin.disk.file = Some(file.path().to_owned());
            twin.disk.is_format_probed = true;
            read_images(&mut twin);
            (
                twin.disk.set.get("format").cloned(),
                twin.disk.size,
                twin.not_twinned,
            )
        };
        let (format, size, lacks) = read(&header(3, 17, 0, 0));
        assert_eq!((format.as_deref(), size), (Some("qcow2"), Some(8 << 30)));
        assert!(lacks.is_empty(), "{lacks:?}");
        assert_eq!(read(b"any bytes"), (None, Some(9), Vec::new()));
        let (_, _, lacks) = read(b"KDMV");
        assert_eq!(lacks, ["image format vmdk: replaced by raw"]);
        assert_eq!(format_of(&header(1, 16, 0, 0)), "qcow");
        let mut gone = Twin::default();
        gone.disk.file = Some("/nonexistent/a".into());
        gone.disk.is_format_probed = true;
        read_images(&mut gone);
        let unknown = "image format of /nonexistent/a: unknown, replaced by raw";
        assert_eq!(gone.not_twinned[0], unknown);
    }

    proptest! {
        #[test]
        fn any_header_is_survived(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), is_qcow2 in any::<bool>()) {
            if is_qcow2 {
                bytes.splice(0..bytes.len().min(4), MAGIC);
            }
            let _ = format_of(&bytes);
        }
    }
}
