//! A twin of what a QEMU command line starts.

use super::definition::{Twin, TwinDisk, choose};
use super::error::TwinError;
use super::properties::{of_device, of_machine, switch};
use crate::vmm::qemu::arguments::{Arguments, Properties, is_on};
use crate::vmm::qemu::block_graph::{BlockGraph, Chain, GuestDisk, Storage};
use std::path::PathBuf;
use vmtax_host::find_program;
use vmtax_model::{Setting, SettingPart};

/// QEMU's program for x86-64, and its names of distributions.
const PROGRAMS: [&str; 4] = ["qemu-system-x86_64", "qemu-kvm", "kvm", "qemu"];
/// Options that say nothing of a VM's speed, or that were read before.
const SILENT: [&str; 44] = [
    "name",
    "uuid",
    "S",
    "no-user-config",
    "nodefaults",
    "no-shutdown",
    "no-reboot",
    "daemonize",
    "pidfile",
    "D",
    "d",
    "trace",
    "display",
    "nographic",
    "vga",
    "monitor",
    "mon",
    "qmp",
    "qmp-pretty",
    "chardev",
    "serial",
    "parallel",
    "sandbox",
    "msg",
    "rtc",
    "boot",
    "k",
    "add-fd",
    "smbios",
    "audiodev",
    "global",
    "watchdog-action",
    "runas",
    "run-with",
    "usb",
    "set",
    "action",
    "L",
    "enable-kvm",
    "accel",
    "machine",
    "M",
    "cpu",
    "m",
];

/// Parts of options of block nodes that name them, connect them, are read elsewhere or say nothing of speed.
const NODE_IDENTITY: [&str; 25] = [
    "addr",
    "aio",
    "auto-read-only",
    "bus",
    "cache",
    "discard",
    "driver",
    "drop-cache",
    "file",
    "filename",
    "force-share",
    "id",
    "if",
    "image",
    "index",
    "locking",
    "media",
    "node-name",
    "read-only",
    "rerror",
    "serial",
    "throttle-group",
    "throttling",
    "unit",
    "werror",
];

/// A disk that a test guest can have.
struct UsableDisk<'a> {
    found: &'a GuestDisk,
    bus: &'static str,
    chain: Chain<'a>,
    file: PathBuf,
}

/// The twin of what these arguments start, the first of which is the program; of the disk of that name, else of the first.
pub(super) fn read(words: &[String], disk: Option<&str>) -> Result<Twin, TwinError> {
    let arguments: Arguments = words.iter().cloned().collect();
    let mut twin = Twin {
        source: "a QEMU command line".to_owned(),
        qemu: words.first().and_then(|program| program_of(program)),
        is_kvm: arguments.is_kvm(),
        memory_mib: (arguments.memory_bytes() >> 20).max(1),
        cpus: u32::try_from(arguments.vcpus()).unwrap_or(1).max(1),
        ..Twin::default()
    };
    architecture(words.first().map_or("", String::as_str))?;
    for machine in arguments
        .options()
        .filter(|(option, _)| ["machine", "M"].contains(option))
    {
        of_machine(&mut twin, &Properties::parse(machine.1));
    }
    twin.cpu_model = arguments
        .options()
        .filter(|(option, _)| *option == "cpu")
        .map(|(_, model)| model.to_owned())
        .last();
    let smp = arguments.properties("smp").last().unwrap_or_default();
    if smp.get("threads").is_some_and(|threads| threads != "1") {
        twin.lacks("vCPU topology: each vCPU is a core of its own");
    }
    let graph = BlockGraph::of(&arguments);
    let (all, left_out) = disks(&graph);
    let chosen = choose(&all, disk, |disk| disk.found.name.clone())
        .map_err(|error| error.because(&left_out))?;
    read_disk(&mut twin, chosen, &graph);
    left_out.into_iter().for_each(|line| twin.lacks(line));
    for other in all.iter().map(|disk| &disk.found.name) {
        if *other != chosen.found.name {
            twin.lacks(format!(
                "disk {other}: one disk is tuned; --disk names another"
            ));
        }
    }
    others(&arguments, &mut twin);
    Ok(twin)
}

/// The file of a program that is on this host.
fn program_of(program: &str) -> Option<PathBuf> {
    let path = PathBuf::from(program);
    if path.is_absolute() {
        Some(path).filter(|path| path.is_file())
    } else {
        find_program(program)
    }
}

/// Refuses QEMU's programs for other architectures.
fn architecture(program: &str) -> Result<(), TwinError> {
    match file_name(program).strip_prefix("qemu-system-") {
        Some(name) if !name.starts_with("x86_64") && !name.starts_with("i386") => {
            Err(TwinError::Architecture(name.to_owned()))
        }
        _ => Ok(()),
    }
}

/// Returns the name of a program without its folder.
pub(crate) fn file_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// Returns true if a word is QEMU's program.
pub(super) fn is_program(word: &str) -> bool {
    let name = file_name(word);
    PROGRAMS.contains(&name) || name.starts_with("qemu-system-")
}

/// The disks that a test guest can have, and a line for each other one.
fn disks(graph: &BlockGraph) -> (Vec<UsableDisk<'_>>, Vec<String>) {
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
    let missing = || format!("disk {name}: the command line has no file of it, or too many nodes");
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
                "disk {name}: its storage is {driver}, for which a local file cannot stand"
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
        (Some("ide"), _) => Ok("ide"),
        (Some(other), _) => Err(format!("drive {name} ({other})")),
        (None, driver) if driver.starts_with("virtio-blk") => Ok("virtio-blk"),
        (None, "scsi-hd" | "scsi-disk") => Ok("virtio-scsi"),
        // The machine type's own controller has buses of this name.
        (None, "ide-hd" | "ide-drive") if bus.is_none_or(|bus| bus.starts_with("ide.")) => {
            Ok("ide")
        }
        (None, "ide-hd" | "ide-drive") => Ok("sata"),
        (None, "nvme" | "nvme-ns") => Ok("nvme"),
        (None, other) => Err(format!("device {other} {name}")),
    }
}

/// Reads the disk that is tuned.
fn read_disk(twin: &mut Twin, disk: &UsableDisk<'_>, graph: &BlockGraph) {
    let [device, controller] = graph.devices_of(disk.found);
    twin.disk = TwinDisk {
        name: disk.found.name.clone(),
        file: Some(disk.file.clone()),
        ..TwinDisk::default()
    };
    if disk.bus != "virtio-blk" {
        twin.disk.set("bus", disk.bus);
    }
    let driver = controller.and_then(|owner| owner.get("driver"));
    let is_other = |driver: &&str| {
        !["virtio-scsi", "nvme"]
            .iter()
            .any(|own| driver.starts_with(own))
    };
    if let Some(driver) = driver.filter(is_other) {
        twin.lacks(format!(
            "SCSI controller {driver}: virtio-scsi in its place"
        ));
    }
    let controller = controller.filter(|_| driver.is_none_or(|driver| !is_other(&driver)));
    let devices = [device, controller];
    for device in devices.into_iter().flatten() {
        of_device(twin, device);
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
        twin.lacks("cache.no-flush beside cache.direct: the twin flushes");
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
        Some(given) => format(twin, given),
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
            "backing" => twin.lacks("backing image: the scratch image has none"),
            "aio-max-batch" => twin.disk.set("drive.aio-max-batch", value),
            _ if NODE_IDENTITY.contains(&name) => {}
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

/// raw is vmtax's own.
fn format(twin: &mut Twin, format: &str) {
    match format {
        "raw" => {}
        "qcow2" => twin.disk.set("format", "qcow2"),
        other => twin.lacks(format!("image format {other}: raw in its place")),
    }
}

/// Names what else the command line has.
fn others(arguments: &Arguments, twin: &mut Twin) {
    for device in arguments
        .properties("device")
        .filter(|device| device.get("drive").is_none())
    {
        let driver = device.first("driver").unwrap_or_default().to_owned();
        let is_bus = [
            "pcie-root-port",
            "pci-bridge",
            "virtio-scsi",
            "ahci",
            "ich9-ahci",
            "virtio-serial",
            "virtserialport",
            "nvme",
        ];
        let is_usual = [
            "usb-tablet",
            "usb-mouse",
            "usb-kbd",
            "qemu-xhci",
            "nec-usb-xhci",
            "isa-serial",
            "virtconsole",
        ];
        if !is_bus
            .iter()
            .chain(&is_usual)
            .any(|known| driver.starts_with(known))
        {
            let id = device
                .get("id")
                .map_or(String::new(), |id| format!(" {id}"));
            twin.lacks(format!("device {driver}{id}"));
        }
    }
    for (option, value) in arguments.options() {
        match option {
            "kernel" | "initrd" | "append" | "bios" | "pflash" => {
                twin.lacks("firmware and kernel: vmtax boots a kernel of its own");
            }
            "netdev" | "nic" | "net" => twin.lacks("network: a tuning of a disk has none"),
            "object" => {
                let object = Properties::parse(value);
                let kind = object.first("qom-type").unwrap_or_default().to_owned();
                let is_usual = [
                    "secret",
                    "iothread",
                    "throttle-group",
                    "tls",
                    "rng",
                    "memory-backend-ram",
                ];
                if !is_usual.iter().any(|known| kind.starts_with(known)) {
                    twin.lacks(format!(
                        "object {kind}: the guest's memory is of the usual kind"
                    ));
                }
            }
            "mem-path" | "mem-prealloc" | "overcommit" | "numa" | "readconfig" | "writeconfig"
            | "plugin" | "incoming" | "fsdev" | "virtfs" | "tpmdev" | "snapshot" | "icount"
            | "no-hpet" | "no-acpi" => {
                twin.lacks(format!(
                    "-{option}{}{value}",
                    if value.is_empty() { "" } else { " " }
                ));
            }
            "smp" | "device" | "drive" | "blockdev" | "hda" | "hdb" | "hdc" | "hdd" | "cdrom"
            | "fda" | "fdb" | "mtdblock" | "sd" => {}
            known if SILENT.contains(&known) => {}
            other => twin.lacks(format!("-{other}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(line: &str, disk: Option<&str>) -> Result<Twin, TwinError> {
        read(
            &line.split(' ').map(str::to_owned).collect::<Vec<_>>(),
            disk,
        )
    }

    fn set(twin: &Twin) -> String {
        twin.disk
            .set
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn drives_are_read_with_their_device() {
        let line = "qemu-system-x86_64 -M pc-q35-7.2,accel=kvm,vmport=off,memory-backend=m -cpu Westmere,-vme -smp 3,threads=1 -m 2G \
            -object iothread,id=i,poll-max-ns=0 -drive file=/a,,b.qcow2,if=none,id=d0,format=qcow2,cache=writethrough,aio=native,throttling.iops-total=50,l2-cache-size=1M \
            -device virtio-blk-pci,drive=d0,id=vd,iothread=i,num-queues=2,oddity=7 -drive file=/c.iso,media=cdrom -netdev user,id=n -device vfio-pci,host=1";
        let twin = of(line, None).unwrap();
        assert_eq!(
            (twin.machine_type.as_deref(), twin.is_kvm),
            (Some("pc-q35-7.2,vmport=off"), Some(true))
        );
        assert_eq!(
            (twin.cpu_model.as_deref(), twin.cpus, twin.memory_mib),
            (Some("Westmere,-vme"), 3, 2048)
        );
        let all = "aio=native cache=writethrough format=qcow2 iothread=on iothread.poll-max-ns=0 l2-cache-size=1M num-queues=2 throttling.iops-total=50";
        assert_eq!(set(&twin), all);
        assert_eq!(
            (twin.disk.name.as_str(), twin.disk.file),
            ("vd", Some(PathBuf::from("/a,b.qcow2")))
        );
        for part in ["oddity=7", "cdrom", "network", "device vfio-pci"] {
            assert!(
                twin.not_twinned.iter().any(|line| line.contains(part)),
                "{part}: {:?}",
                twin.not_twinned
            );
        }
        assert!(
            twin.not_twinned
                .iter()
                .all(|line| !line.contains("memory-backend") && !line.contains("iothread"))
        );
    }

    #[test]
    fn block_nodes_are_followed_to_the_file() {
        let line = r#"/usr/bin/qemu-system-x86_64 -blockdev {"driver":"file","filename":"/d","node-name":"f","aio":"io_uring","cache":{"direct":true,"no-flush":false}} -blockdev {"node-name":"q","driver":"qcow2","file":"f"} -object {"qom-type":"throttle-group","id":"g","limits":{"bps-total":9}} -blockdev driver=throttle,node-name=t,file=q,throttle-group=g -device virtio-scsi-pci,id=s,iothread=x,num_queues=4 -device scsi-hd,bus=s.0,drive=t,id=sd,write-cache=off"#;
        let twin = of(line, Some("sd")).unwrap();
        let all = "aio=io_uring bus=virtio-scsi cache=directsync format=qcow2 iothread=on num-queues=4 throttling.bps-total=9";
        assert_eq!(set(&twin), all);
        assert_eq!(twin.disk.file, Some(PathBuf::from("/d")));
        assert!(
            of(line, Some("nope"))
                .unwrap_err()
                .to_string()
                .contains("sd")
        );
    }

    #[test]
    fn drives_without_a_device_have_an_interface() {
        assert_eq!(
            set(&of("qemu -drive file=/a,if=virtio,cache=none,iops_rd=5", None).unwrap()),
            "cache=none throttling.iops-read=5"
        );
        assert_eq!(
            set(&of("kvm -hda /a", None).unwrap()),
            "bus=ide cache=writeback"
        );
        let read_only = of("qemu -m 1G -drive file=/r,if=virtio,read-only=on", None);
        let why = read_only.unwrap_err().to_string();
        assert!(why.contains("(disk drive0: it is read-only)"), "{why}");
        assert!(matches!(of("qemu -m 1G", None), Err(TwinError::NoDisk)));
        assert!(matches!(
            of("qemu-system-aarch64 -hda /a", None),
            Err(TwinError::Architecture(_))
        ));
        let micro = of(
            "qemu-system-x86_64 -M microvm -drive file=/a,if=virtio",
            None,
        )
        .unwrap();
        assert_eq!((micro.machine_type, micro.not_twinned.len()), (None, 1));
    }

    #[test]
    fn nodes_within_one_another_are_read_to_the_file() {
        // As Proxmox VE 9 writes them.
        let line = r#"/usr/bin/kvm -object {"id":"throttle-drive-scsi0","limits":{"iops-total":800,"iops-total-max":0},"qom-type":"throttle-group"} -device virtio-scsi-pci,id=scsihw0,bus=pci.0,iothread=io -blockdev {"driver":"throttle","node-name":"drive-scsi0","throttle-group":"throttle-drive-scsi0","file":{"driver":"qcow2","node-name":"f0","discard":"unmap","detect-zeroes":"unmap","cache":{"direct":true,"no-flush":false},"file":{"driver":"file","node-name":"e0","filename":"/srv/v,1","aio":"io_uring","discard":"unmap","cache":{"direct":true,"no-flush":false}}}} -device scsi-hd,bus=scsihw0.0,drive=drive-scsi0,id=scsi0,write-cache=on"#;
        let twin = of(line, None).unwrap();
        let all = "aio=io_uring bus=virtio-scsi cache=none detect-zeroes=unmap format=qcow2 iothread=on throttling.iops-total=800";
        assert_eq!(set(&twin), all, "the filter does not discard");
        assert_eq!(twin.disk.file, Some(PathBuf::from("/srv/v,1")));
        assert_eq!(twin.not_twinned, Vec::<String>::new());
        let discards = line.replace(
            r#""node-name":"drive-scsi0""#,
            r#""discard":"unmap","node-name":"drive-scsi0""#,
        );
        assert!(set(&of(&discards, None).unwrap()).contains("discard=unmap"));
    }

    #[test]
    fn discard_is_that_of_each_node() {
        let storage = r#"qemu -blockdev {"driver":"file","filename":"/a","node-name":"s1","discard":"unmap"} "#;
        let format = r#"-blockdev {"node-name":"f1","driver":"qcow2","file":"s1","backing":null} "#;
        let device = r#"-device {"driver":"virtio-blk-pci","drive":"f1","id":"virtio-disk0"}"#;
        let twin = of(&format!("{storage}{format}{device}"), None).unwrap();
        assert_eq!(set(&twin), "cache=writeback format=qcow2");
        assert_eq!(twin.not_twinned, Vec::<String>::new());
        let drive = of("qemu -drive file=/a,if=virtio,format=raw,discard=on", None).unwrap();
        assert_eq!(set(&drive), "cache=writeback discard=unmap");
    }

    #[test]
    fn old_options_of_drives_are_limits_and_switches() {
        let line = "qemu -drive file=/a,if=virtio,format=raw,iops_wr=200,iops_wr_max=600,iops_size=4096,bps_rd=7,bps_rd_max_length=3,iops=0";
        let all = "cache=writeback throttling.bps-read=7 throttling.bps-read-max-length=3 throttling.iops-size=4096 throttling.iops-write=200 \
                   throttling.iops-write-max=600";
        assert_eq!(set(&of(line, None).unwrap()), all);
        let line = "qemu -drive file=/a,id=d,if=none,cache=writethrough,cache.direct=on -device virtio-blk-pci,drive=d";
        assert_eq!(set(&of(line, None).unwrap()), "cache=directsync");
        let back = format!("{line},write-cache=on");
        assert_eq!(set(&of(&back, None).unwrap()), "cache=none");
    }

    #[test]
    fn a_group_that_is_no_object_is_named() {
        let line = "qemu -blockdev driver=throttle,throttle-group=g,node-name=t,file.driver=file,file.filename=/a -device virtio-blk,drive=t";
        let twin = of(line, None).unwrap();
        assert_eq!(twin.not_twinned, ["limits of throttle group g"]);
        let line =
            format!("{line} -object throttle-group,id=g,x-bps-read=9,x-bps-read-max-length=2");
        let limits = "throttling.bps-read=9 throttling.bps-read-max-length=2";
        assert!(set(&of(&line, None).unwrap()).ends_with(limits));
    }

    #[test]
    fn what_an_image_has_besides_is_named() {
        let named = |options: &str, line: &str| {
            let drive = format!("qemu -drive file=/a,if=virtio,{options}");
            let twin = of(&drive, None).unwrap();
            assert!(
                twin.not_twinned.iter().any(|own| own == line),
                "{options}: {:?}",
                twin.not_twinned
            );
        };
        named("copy-on-read=on", "option copy-on-read of the disk's image");
        named("snapshot=on", "option snapshot of the disk's image");
        named("offset=512", "option offset of the disk's image");
        named(
            "format=luks,key-secret=s",
            "image format luks: raw in its place",
        );
        named(
            "format=luks,key-secret=s",
            "option key-secret of the disk's image",
        );
        named(
            "driver=copy-on-read",
            "block filter copy-on-read of the disk",
        );
        named(
            "backing.file.filename=/b",
            "backing image: the scratch image has none",
        );
        named(
            "data-file.filename=/b",
            "option data-file of the disk's image",
        );
        let twin = of("qemu -no-hpet -rtc base=utc -drive file=/a,id=d,if=none -device virtio-scsi-pci,id=s -device scsi-hd,bus=s.0,drive=d", None).unwrap();
        assert_eq!(twin.not_twinned, ["-no-hpet"]);
        assert!(twin.disk.is_format_probed);
    }

    #[test]
    fn storage_without_a_path_is_refused_by_its_kind_alone() {
        let refused = |file: &str| {
            let line = format!(
                "qemu -drive file={file},if=virtio,format=raw -cdrom http://u:SECRET@h/x.iso"
            );
            let why = of(&line, None).unwrap_err().to_string();
            assert!(!why.contains("SECRET"), "{why}");
            why
        };
        let ceph = refused("rbd:p/vm-a:id=SECRET:key=SECRET==:mon_host=192.0.2.1");
        assert!(
            ceph.contains("disk drive0: its storage is Ceph's RBD, for"),
            "{ceph}"
        );
        for (file, kind) in [
            ("iscsi://u%SECRET@h/iqn/1", "iscsi"),
            ("nbd:unix:/SECRET", "nbd"),
            ("nfs://h/x?SECRET", "nfs"),
            ("https://u:SECRET@h/x", "https"),
            (
                r#"json:{"driver":"raw",,"file.driver":"ssh",,"file.user":"SECRET"}"#,
                "ssh",
            ),
            (r#"json:{"driver":"rbd",,"key":"SECRET"#, "json"),
        ] {
            let why = refused(file);
            assert!(why.contains(&format!("its storage is {kind}, ")), "{why}");
        }
        let line = "qemu -drive file=/a,if=virtio -drive file=rbd:p/i:key=SECRET,if=virtio";
        let twin = of(line, None).unwrap();
        assert!(twin.not_twinned[0].starts_with("disk drive1: its storage is Ceph's RBD"));
        assert!(!format!("{twin:?}").contains("SECRET"));
    }

    #[test]
    fn a_namespace_has_the_controller_of_nvme() {
        let line = "qemu -drive file=/a,id=d,if=none,format=raw -device nvme,id=n,serial=x -device nvme-ns,drive=d,bus=n,logical_block_size=4096";
        let twin = of(line, None).unwrap();
        assert_eq!(
            set(&twin),
            "bus=nvme cache=writeback logical_block_size=4096"
        );
        assert_eq!(twin.not_twinned, Vec::<String>::new());
        let missing = of("qemu -device virtio-blk-pci,drive=none", None);
        assert!(missing.unwrap_err().to_string().contains("no file of it"));
    }

    proptest! {
        #[test]
        fn any_arguments_are_survived(
            all in proptest::collection::vec("(-device|-drive|-blockdev|-object|-M|-m|-smp|[a-z{}\":=,.-]{0,30}|drive=d,id=x|id=d,if=none,file=(json:|rbd:|/x)|node-name=d,file(\\.file){0,12}\\.(filename|driver)=d)", 0..10),
        ) {
            let _ = read(&all, None);
        }
    }
}
