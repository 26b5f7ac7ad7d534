//! Settings that decide how fast a running VM is: QEMU's, from its monitor, and from its command line what no monitor
//! tells; and those of the guest's kernel, by QEMU's guest agent. What that says is the guest's word.

use super::arguments::{Arguments, Properties, size};
use super::block_graph::BlockGraph;
use super::conversation::items;
use super::disks::{device_path, host_file, name_of};
use super::guest_agent::{Ask, GuestAgent, read_file};
use super::monitor::Monitor;
use crate::VmmError;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use vmtax_model::{
    CLOCK_SOURCE_FILE, DiskSettings, GuestDiskSettings, GuestSettings, IoLimits, IothreadSettings,
    Qcow2Settings, ShareDevice, ShareServer, VmSettings, in_effect, is_disk_name,
};

/// QEMU's own `l2-cache-size` since 3.1, bytes: at most that, and no more than the image needs.
const DEFAULT_L2_CACHE: u64 = 32 << 20;
/// The type of virtio-blk's part that has the disk.
const VIRTIO_BLK: &str = "virtio-blk-device";
/// Images stacked deeper than this are not followed.
const MAX_IMAGES: usize = 8;
/// More shared trees are not read.
const MAX_SHARES: usize = 64;

/// Reads the settings from the command line, and from the monitor where it is asked. One that does not answer adds
/// nothing.
pub(crate) fn settings(monitor: Option<&Monitor>, arguments: &Arguments) -> VmSettings {
    let shares = shares(arguments);
    let Some(monitor) = monitor else {
        return VmSettings {
            shares,
            ..VmSettings::default()
        };
    };
    let commands =
        ["query-version", "query-block", "query-iothreads"].map(|command| (command, json!({})));
    let answers = monitor.execute_all(&commands);
    let mut answers = answers
        .into_iter()
        .flatten()
        .map(|answer| answer.unwrap_or_default());
    let [version, block, iothreads] = [(); 3].map(|()| answers.next().unwrap_or_default());
    let mut disks = disks(&block, arguments);
    for disk in &mut disks {
        // Of other disks the controller has the iothread, if any.
        if disk.driver == VIRTIO_BLK {
            disk.iothread = monitor.iothread_of(device_path(&disk.device));
        } else if !disk.device.is_empty() {
            let answer = monitor.property(&disk.device, "type").unwrap_or_default();
            disk.driver = answer.as_str().unwrap_or_default().to_owned();
        }
        if let Some(limits) = disk.limits.as_mut().filter(|limits| limits.is_object) {
            let group = format!("/objects/{}", limits.group);
            let answer = monitor.property(&group, "limits").unwrap_or_default();
            read_group(limits, &answer);
        }
        disk.limits = disk.limits.take().filter(is_limit);
    }
    let iothreads = self::iothreads(&iothreads);
    VmSettings {
        qemu: qemu_version(&version),
        disks,
        shares,
        iothreads,
        ..VmSettings::default()
    }
}

fn qemu_version(answer: &Value) -> Option<(u32, u32)> {
    let part = |name: &str| u32::try_from(answer["qemu"][name].as_u64()?).ok();
    Some((part("major")?, part("minor")?))
}

/// The iothreads of `query-iothreads`.
fn iothreads(answer: &Value) -> Vec<IothreadSettings> {
    let one = |iothread: &Value| {
        let name = iothread["id"].as_str()?.to_owned();
        Some(IothreadSettings {
            name,
            poll_max_ns: iothread["poll-max-ns"].as_u64()?,
        })
    };
    items(answer).filter_map(one).collect()
}

/// The disks of `query-block`; the limits of a group that is an object are not read yet.
fn disks(block: &Value, arguments: &Arguments) -> Vec<DiskSettings> {
    let graph = BlockGraph::of(arguments);
    let disk = |entry: &Value| {
        let inserted = entry.get("inserted")?;
        let file = inserted["file"].as_str()?;
        let device = entry["qdev"].as_str().unwrap_or_default().to_owned();
        // virtio-blk alone has its disk in a part of its device.
        let is_whole = device_path(&device) == device;
        let driver = if is_whole { "" } else { VIRTIO_BLK };
        Some(DiskSettings {
            name: name_of(&entry["qdev"], &entry["device"], &inserted["node-name"]),
            device,
            driver: driver.to_owned(),
            file: host_file(file),
            size: inserted["image"]["virtual-size"].as_u64(),
            iothread: None,
            write_through: write_through(&inserted["cache"]),
            limits: limits(inserted, file),
            qcow2: qcow2(inserted, &host_file(file), &graph),
        })
    };
    items(block).filter_map(disk).collect()
}

/// Returns true if writes are flushed one by one; `cache=unsafe` never flushes.
fn write_through(cache: &Value) -> Option<bool> {
    Some(!cache["writeback"].as_bool()? && cache["no-flush"] != true)
}

/// Limits that the disk has itself, else the group of a throttle node above its image.
fn limits(inserted: &Value, file: &str) -> Option<IoLimits> {
    let group = inserted["group"].as_str().unwrap_or_default().to_owned();
    let mut own = IoLimits {
        group,
        ..IoLimits::default()
    };
    read_limits(&mut own, inserted, ["", "_rd", "_wr"], '_');
    if is_limit(&own) {
        return Some(own);
    }
    let graph = BlockGraph::of_name(file);
    let group = graph.chains().next()?.throttle_groups().next()?.to_owned();
    Some(IoLimits {
        group,
        is_object: true,
        ..IoLimits::default()
    })
}

/// The limits of a group as `qom-get` has them.
fn read_group(limits: &mut IoLimits, answer: &Value) {
    read_limits(limits, answer, ["-total", "-read", "-write"], '-');
}

/// The limits of an answer in which these kinds and this character are parts of names.
fn read_limits(limits: &mut IoLimits, answer: &Value, kinds: [&str; 3], join: char) {
    let by_kind = |unit: &str, part: &str| {
        let part = part.replace('-', &join.to_string());
        kinds.map(|kind| answer[format!("{unit}{kind}{part}")].as_u64().unwrap_or(0))
    };
    limits.requests_per_s = by_kind("iops", "");
    limits.bytes_per_s = by_kind("bps", "");
    limits.burst_requests_per_s = by_kind("iops", "-max");
    limits.burst_bytes_per_s = by_kind("bps", "-max");
    limits.burst_requests_s = by_kind("iops", "-max-length");
    limits.burst_bytes_s = by_kind("bps", "-max-length");
    limits.request_size = answer[format!("iops{join}size")].as_u64().unwrap_or(0);
}

fn is_limit(limits: &IoLimits) -> bool {
    let all = limits.requests_per_s.iter().chain(&limits.bytes_per_s);
    all.copied().any(|limit| limit > 0)
}

/// The qcow2 image of a disk, also one below filters.
fn qcow2(inserted: &Value, file: &Path, graph: &BlockGraph) -> Option<Qcow2Settings> {
    let top = &inserted["image"];
    // A filter has the image that it filters in the place of a backing image.
    let mut images =
        std::iter::successors(Some(top), |image| image.get("backing-image")).take(MAX_IMAGES);
    let is_filter =
        |image: &&Value| matches!(image["format"].as_str(), Some("throttle" | "copy-on-read"));
    let image = images
        .find(|image| !is_filter(image))
        .filter(|image| image["format"] == "qcow2")?;
    let has_subclusters = image["format-specific"]["data"]["extended-l2"] == true;
    let mut found = Qcow2Settings {
        virtual_size: image["virtual-size"].as_u64()?,
        cluster_size: image["cluster-size"].as_u64().filter(|size| *size > 0)?,
        entry_size: if has_subclusters { 16 } else { 8 },
        l2_cache: None,
    };
    let node = inserted["node-name"].as_str().unwrap_or_default();
    let by_file = || graph.of_file(&[file.to_str()?.to_owned()]);
    let chain = graph.of_node(node).or_else(by_file);
    let options = chain.and_then(|chain| chain.image_options());
    found.l2_cache = options.map(|options| l2_cache(options, &found));
    Some(found)
}

/// The size of the L2 cache that these options give an image, bytes, as `read_cache_sizes` of QEMU's qcow2 driver has it.
fn l2_cache(options: &Properties, image: &Qcow2Settings) -> u64 {
    let most = image
        .full_cache()
        .checked_next_multiple_of(image.cluster_size)
        .unwrap_or(u64::MAX);
    let given = |key: &str| options.get(key).and_then(|text| size(text, 1));
    let size = match (
        given("l2-cache-size"),
        given("cache-size"),
        given("refcount-cache-size"),
    ) {
        (Some(l2), _, _) => l2,
        (None, Some(both), Some(refcounts)) => both.saturating_sub(refcounts),
        (None, Some(both), None) => both.saturating_sub(image.cluster_size.saturating_mul(4)),
        (None, None, _) => DEFAULT_L2_CACHE,
    };
    size.min(most)
}

/// The devices that share trees of files.
fn shares(arguments: &Arguments) -> Vec<ShareDevice> {
    let share = |tag: &str, server| ShareDevice {
        tag: tag.to_owned(),
        server,
    };
    let device = |device: Properties| {
        let driver = device.first("driver")?;
        if driver.starts_with("virtio-9p") {
            return Some(share(device.get("mount_tag")?, ShareServer::Qemu));
        }
        let is_served = driver.starts_with("vhost-user-fs");
        let socket = arguments.chardev_path(device.get("chardev").filter(|_| is_served)?)?;
        Some(share(device.get("tag")?, ShareServer::Daemon(socket)))
    };
    let virtfs = |virtfs: Properties| Some(share(virtfs.get("mount_tag")?, ShareServer::Qemu));
    let virtfs = arguments.properties("virtfs").filter_map(virtfs);
    arguments
        .properties("device")
        .filter_map(device)
        .chain(virtfs)
        .take(MAX_SHARES)
        .collect()
}

/// Returns the number of disks and shares in an answer to `query-block` and a command line, for fuzzing.
pub fn read_settings(block: &Value, arguments: &[String]) -> usize {
    let arguments: Arguments = arguments.iter().cloned().collect();
    disks(block, &arguments).len() + shares(&arguments).len()
}

/// Time limit for all answers of the agent together.
const AGENT_TIMEOUT: Duration = Duration::from_secs(5);
/// More disks are not read: a file takes three commands.
const MAX_GUEST_DISKS: usize = 16;
/// The governor of the guest's idle states in use.
const CPUIDLE_GOVERNOR: &str = "/sys/devices/system/cpu/cpuidle/current_governor";
/// A sector of `/sys/block/NAME/size`, bytes.
const SECTOR: u64 = 512;

/// Reads, through the agent, the settings of the guest's clock and of the disks that are known.
///
/// # Errors
/// [`VmmError::Monitor`] where it does not answer, or may not read files.
pub(crate) fn guest_settings(
    agent: &GuestAgent,
    known: &[DiskSettings],
) -> Result<GuestSettings, VmmError> {
    let sources = CLOCK_SOURCE_FILE.replace("current_", "available_");
    agent.session(AGENT_TIMEOUT, |ask| {
        let clock_source = read_file(ask, CLOCK_SOURCE_FILE)?;
        let clock_sources = read_file(ask, &sources).unwrap_or_default();
        let named = guest_disk_names(&ask("guest-get-disks", &json!({})).unwrap_or_default());
        let named = named
            .into_iter()
            .filter(|name| known.iter().any(|disk| name.starts_with(prefix(disk))));
        let sized = named.filter_map(|name| {
            let sectors = read_file(ask, &format!("/sys/block/{name}/size")).ok()?;
            let bytes = sectors.parse::<u64>().ok()?.checked_mul(SECTOR)?;
            Some((name, bytes))
        });
        let disks = disk_of_each(known, &sized.collect::<Vec<_>>());
        Ok(GuestSettings {
            clock_source,
            clock_sources: clock_sources
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
            cpuidle_governor: read_file(ask, CPUIDLE_GOVERNOR).ok(),
            command_line: read_file(ask, "/proc/cmdline").ok(),
            disks: disks
                .into_iter()
                .map(|(disk, name)| guest_disk_settings(ask, disk, name))
                .collect(),
        })
    })
}

fn guest_disk_settings(ask: &mut Ask<'_>, disk: String, name: String) -> GuestDiskSettings {
    let mut of = |file: &str| read_file(ask, &format!("/sys/block/{name}/{file}")).ok();
    let cache_type = of("cache_type");
    let scheduler = of("queue/scheduler").map(|text| in_effect(&text).to_owned());
    let read_ahead_kb = of("queue/read_ahead_kb").and_then(|text| text.parse().ok());
    let rotational = of("queue/rotational").and_then(|text| switch(&text));
    GuestDiskSettings {
        disk,
        name,
        cache_type,
        scheduler,
        read_ahead_kb,
        rotational,
    }
}

/// A switch of sysfs.
fn switch(text: &str) -> Option<bool> {
    match text.trim() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// The guest's disks in the answer to `guest-get-disks`, without partitions and devices on others.
fn guest_disk_names(answer: &Value) -> Vec<String> {
    let name = |disk: &Value| {
        let is_own =
            disk["partition"] == false && disk["dependencies"].as_array().is_none_or(Vec::is_empty);
        let name = disk["name"].as_str()?.strip_prefix("/dev/")?;
        (is_own && is_disk_name(name)).then(|| name.to_owned())
    };
    items(answer)
        .filter_map(name)
        .take(MAX_GUEST_DISKS)
        .collect()
}

/// Returns the beginning of Linux' names for disks on a disk's bus.
fn prefix(disk: &DiskSettings) -> &'static str {
    match disk.driver.as_str() {
        driver if driver.starts_with("virtio-blk") => "vd",
        driver if driver.starts_with("nvme") => "nvme",
        _ => "sd",
    }
}

/// Matches QEMU's disks with the guest's: the only one of its bus that has that size. Returns the names of both.
fn disk_of_each(known: &[DiskSettings], sized: &[(String, u64)]) -> Vec<(String, String)> {
    let one = |disk: &DiskSettings| {
        let is_like =
            |other: &&DiskSettings| prefix(other) == prefix(disk) && other.size == disk.size;
        let mut named = sized
            .iter()
            .filter(|(name, size)| name.starts_with(prefix(disk)) && Some(*size) == disk.size);
        let (name, _) = named.next()?;
        (named.next().is_none() && known.iter().filter(is_like).count() == 1)
            .then(|| (disk.name.clone(), name.clone()))
    };
    known.iter().filter_map(one).collect()
}

/// The disks that an answer of a guest's agent names, for fuzzing: at most 16.
pub fn read_guest_disks(answer: &Value) -> Vec<String> {
    guest_disk_names(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(name: &str, inserted: Value) -> Value {
        json!({ "device": "", "qdev": format!("/machine/peripheral/{name}/virtio-backend"), "inserted": inserted })
    }

    fn qcow2_image() -> Value {
        let specific = json!({ "type": "qcow2", "data": { "extended-l2": false } });
        json!({ "format": "qcow2", "virtual-size": 8_u64 << 30, "cluster-size": 65536, "format-specific": specific })
    }

    fn first(inserted: Value, line: &str) -> DiskSettings {
        disks(
            &json!([entry("vd0", inserted)]),
            &Arguments::from_line(line),
        )
        .remove(0)
    }

    #[test]
    fn iothreads_are_named_with_their_polling() {
        let answer = json!([{ "id": "io0", "thread-id": 7, "poll-max-ns": 0, "poll-grow": 0 }, { "id": "old" }, 3]);
        assert_eq!(
            iothreads(&answer),
            [IothreadSettings {
                name: "io0".to_owned(),
                poll_max_ns: 0
            }]
        );
        assert_eq!(iothreads(&json!({})), []);
    }

    #[test]
    fn limits_of_a_drive_are_its_own() {
        let inserted = json!({ "file": "/d", "iops": 20, "bps_rd": 7, "group": "d2", "cache": { "writeback": false } });
        let disk = first(inserted, "q");
        let limits = disk.limits.unwrap();
        assert_eq!(
            (limits.requests_per_s, limits.bytes_per_s),
            ([20, 0, 0], [0, 7, 0])
        );
        assert_eq!((limits.group.as_str(), limits.is_object), ("d2", false));
        let inserted = json!({ "file": "/d", "iops": 20, "iops_max": 90, "iops_max_length": 3, "bps_wr": 7, "bps_wr_max": 8,
            "bps_wr_max_length": 1, "iops_size": 4096 });
        let limits = first(inserted, "q").limits.unwrap();
        assert_eq!(
            (limits.burst_requests_per_s, limits.burst_requests_s),
            ([90, 0, 0], [3, 0, 0])
        );
        assert_eq!(
            (limits.burst_bytes_per_s, limits.burst_bytes_s),
            ([0, 0, 8], [0, 0, 1])
        );
        assert_eq!(limits.request_size, 4096);
        assert_eq!(disk.driver, "virtio-blk-device");
        let sata = json!([{ "device": "", "qdev": "/machine/peripheral/sata0", "inserted": { "file": "/d" } }]);
        assert_eq!(
            disks(&sata, &Arguments::from_line("q"))[0].driver,
            "",
            "its type is asked for"
        );
        assert_eq!(
            (disk.name.as_str(), disk.write_through, disk.file.as_path()),
            ("vd0", Some(true), Path::new("/d"))
        );
        let none = first(json!({ "file": "/d", "iops": 0 }), "q");
        assert_eq!(
            write_through(&json!({ "writeback": false, "no-flush": true })),
            Some(false)
        );
        assert_eq!(
            (none.limits, none.write_through, none.qcow2),
            (None, None, None)
        );
    }

    #[test]
    fn the_group_of_a_throttle_node_is_found_above_the_image() {
        let file = r#"json:{"throttle-group":"g1","driver":"throttle","file":{"driver":"qcow2","file":{"filename":"/d"}}}"#;
        let image = json!({ "format": "throttle", "virtual-size": 8_u64 << 30, "backing-image": qcow2_image() });
        let line = r#"q -blockdev driver=qcow2,node-name=n1,l2-cache-size=256K,file.filename=/d -blockdev {"driver":"throttle","node-name":"t1","file":"n1"}"#;
        let disk = first(
            json!({ "file": file, "iops": 0, "node-name": "t1", "image": image }),
            line,
        );
        let mut limits = disk.limits.unwrap();
        assert_eq!((limits.group.as_str(), limits.is_object), ("g1", true));
        read_group(
            &mut limits,
            &json!({ "iops-total": 50, "bps-write": 9, "iops-total-max": 70, "iops-total-max-length": 2,
            "iops-size": 512 }),
        );
        assert_eq!(
            (limits.burst_requests_per_s, limits.burst_requests_s),
            ([70, 0, 0], [2, 0, 0])
        );
        assert_eq!(limits.request_size, 512);
        assert_eq!(
            (limits.requests_per_s, limits.bytes_per_s),
            ([50, 0, 0], [0, 0, 9])
        );
        assert_eq!(
            (disk.qcow2.unwrap().l2_cache, disk.file.as_path()),
            (Some(256 << 10), Path::new("/d"))
        );
    }

    #[test]
    fn the_l2_cache_is_that_of_the_command_line_or_qemus_own() {
        let l2_cache_with = |options: &str| {
            let line = format!("q -drive if=none,file=/d{options}");
            first(json!({ "file": "/d", "image": qcow2_image() }), &line)
                .qcow2
                .unwrap()
                .l2_cache
        };
        assert_eq!(
            (l2_cache_with(""), l2_cache_with(",l2-cache-size=131072")),
            (Some(1 << 20), Some(128 << 10)),
            "no more than it needs"
        );
        assert_eq!(
            (
                l2_cache_with(",cache-size=512K"),
                l2_cache_with(",cache-size=1M,refcount-cache-size=512K")
            ),
            (Some(256 << 10), Some(512 << 10))
        );
        assert_eq!(
            first(json!({ "file": "/x", "image": qcow2_image() }), "q")
                .qcow2
                .unwrap()
                .l2_cache,
            None,
            "plugged in later"
        );
    }

    #[test]
    fn shares_are_found_with_their_servers() {
        let line = "q -virtfs local,path=/a,mount_tag=one -device virtio-9p-pci,fsdev=f,mount_tag=two -chardev socket,id=c,path=/run/fs.sock -device vhost-user-fs-pci,chardev=c,tag=three -device virtio-blk-pci,chardev=c,tag=x";
        let shares = shares(&Arguments::from_line(line));
        let server_of_share = |tag: &str| {
            shares
                .iter()
                .find(|share| share.tag == tag)
                .map(|share| share.server.clone())
        };
        assert_eq!(
            (server_of_share("one"), server_of_share("two")),
            (Some(ShareServer::Qemu), Some(ShareServer::Qemu))
        );
        assert_eq!(
            (server_of_share("three"), shares.len()),
            (Some(ShareServer::Daemon("/run/fs.sock".into())), 3)
        );
    }

    #[test]
    fn a_version_has_two_parts() {
        assert_eq!(
            qemu_version(&json!({ "qemu": { "major": 5, "minor": 2, "micro": 0 } })),
            Some((5, 2))
        );
        assert_eq!(
            (
                qemu_version(&Value::Null),
                qemu_version(&json!({ "qemu": { "major": -1 } }))
            ),
            (None, None)
        );
    }

    proptest! {
        #[test]
        fn any_answer_is_survived(
            file in "(json:)?[\\[\\]{}\":,a-z-]{0,60}", size in any::<u64>(), cluster in any::<u64>(), option in "[a-z0-9=,.-]{0,40}",
        ) {
            let image = json!({ "format": "qcow2", "virtual-size": size, "cluster-size": cluster });
            let block = json!([entry("a", json!({ "file": file, "image": image, "iops": size })), option]);
            let arguments = ["q", "-drive", &format!("file={file},l2-cache-size={option}"), "-device", &option];
            let found = read_settings(&block, &arguments.map(str::to_owned));
            prop_assert!(found <= 2);
        }
    }

    #[test]
    fn disks_are_named_without_partitions_and_what_lies_on_others() {
        let answer = json!([
            { "name": "/dev/vda1", "partition": true, "dependencies": ["/dev/vda"] },
            { "name": "/dev/vda", "partition": false, "address": {} },
            { "name": "/dev/dm-0", "partition": false, "dependencies": ["/dev/vda1"] },
            { "name": "/dev/nvme0n1", "partition": false, "dependencies": [] },
            { "name": "/dev/../etc", "partition": false },
            { "name": "vdz", "partition": false },
        ]);
        assert_eq!(guest_disk_names(&answer), ["vda", "nvme0n1"]);
        assert_eq!(guest_disk_names(&json!({ "name": 1 })), [""; 0]);
    }

    #[test]
    fn a_disk_is_the_only_one_of_its_bus_and_size() {
        let disk = |name: &str, driver: &str, size| DiskSettings {
            name: name.to_owned(),
            driver: driver.to_owned(),
            size: Some(size),
            ..DiskSettings::default()
        };
        let sized = [
            ("vda", 10),
            ("vdb", 20),
            ("vdc", 20),
            ("sda", 10),
            ("nvme0n1", 30),
        ];
        let sized = sized.map(|(name, size)| (name.to_owned(), size));
        let known = [
            disk("root", "virtio-blk-device", 10),
            disk("one", "virtio-blk-device", 20),
            disk("two", "virtio-blk-device", 20),
            disk("sata", "ide-hd", 10),
            disk("fast", "nvme-ns", 30),
            disk("gone", "scsi-hd", 40),
            DiskSettings {
                size: None,
                ..disk("unknown", "scsi-hd", 0)
            },
        ];
        let found = disk_of_each(&known, &sized);
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|(disk, name)| (&**disk, &**name))
            .collect();
        assert_eq!(
            found,
            [("root", "vda"), ("sata", "sda"), ("fast", "nvme0n1")]
        );
        assert_eq!(
            disk_of_each(&known[1..2], &sized),
            [],
            "two of the guest's could be it"
        );
    }
}
