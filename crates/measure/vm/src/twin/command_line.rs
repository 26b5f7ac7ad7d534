//! A twin of what a QEMU command line starts.

use super::definition::{Twin, TwinDisk, choose};
use super::error::TwinError;
use super::properties::{of_device, of_machine, switch};
use crate::vmm::qemu::arguments::{Arguments, Properties};
use crate::vmm::qemu::disks::MAX_NODES;
use std::path::PathBuf;
use vmtax_host::find_program;
use vmtax_model::Setting;

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

/// A disk's device or drive, with all that its options say.
struct DiskOptions {
    name: String,
    bus: &'static str,
    /// Of the device; empty for `-drive if=virtio`.
    device: Properties,
    /// The drive or block node, and those below it.
    nodes: Vec<Properties>,
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
    let all = disks(&arguments, &mut twin);
    let found = choose(&all, disk, |found| found.name.clone())?;
    read_disk(&mut twin, found, &arguments);
    for other in all.iter().filter(|other| other.name != found.name) {
        twin.lacks(format!(
            "disk {}: one disk is tuned; --disk names another",
            other.name
        ));
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
    match program
        .rsplit('/')
        .next()
        .unwrap_or(program)
        .strip_prefix("qemu-system-")
    {
        Some(name) if !name.starts_with("x86_64") && !name.starts_with("i386") => {
            Err(TwinError::Architecture(name.to_owned()))
        }
        _ => Ok(()),
    }
}

/// Returns true if a word is QEMU's program.
pub(super) fn is_program(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    PROGRAMS.contains(&name) || name.starts_with("qemu-system-")
}

/// The disks that it names, those with a device first.
fn disks(arguments: &Arguments, twin: &mut Twin) -> Vec<DiskOptions> {
    let mut all = Vec::new();
    let mut served: Vec<String> = Vec::new();
    for device in arguments.properties("device") {
        let Some(drive) = device.get("drive").map(str::to_owned) else {
            continue;
        };
        served.push(drive.clone());
        let name = device.get("id").unwrap_or(&drive).to_owned();
        let driver = device.first("driver").unwrap_or_default().to_owned();
        let bus = match driver.as_str() {
            driver if driver.starts_with("virtio-blk") => "virtio-blk",
            "scsi-hd" | "scsi-disk" => "virtio-scsi",
            // The machine type's own controller has buses of this name.
            "ide-hd" | "ide-drive"
                if device.get("bus").is_none_or(|bus| bus.starts_with("ide.")) =>
            {
                "ide"
            }
            "ide-hd" | "ide-drive" => "sata",
            "nvme" | "nvme-ns" => "nvme",
            other => {
                twin.lacks(format!("device {other} {name}"));
                continue;
            }
        };
        all.push(DiskOptions {
            name,
            bus,
            device,
            nodes: nodes(arguments, &drive),
        });
    }
    for (number, drive) in arguments.properties("drive").enumerate() {
        let name = drive
            .get("id")
            .map_or_else(|| format!("drive{number}"), str::to_owned);
        if served.contains(&name) {
            continue;
        }
        let bus = match (drive.get("media"), drive.get("if").unwrap_or("ide")) {
            (Some("cdrom"), _) | (_, "none" | "pflash" | "floppy" | "sd" | "mtd") => {
                twin.lacks(format!(
                    "drive {name} ({})",
                    drive.get("media").or(drive.get("if")).unwrap_or("none")
                ));
                continue;
            }
            (_, "virtio") => "virtio-blk",
            (_, "scsi") => "virtio-scsi",
            _ => "ide",
        };
        all.push(DiskOptions {
            name,
            bus,
            device: Properties::default(),
            nodes: vec![drive],
        });
    }
    for (option, file) in arguments
        .options()
        .filter(|(option, _)| ["hda", "hdb", "hdc", "hdd"].contains(option))
    {
        let drive = Properties::parse(&format!(
            "file={}",
            crate::vmm::qemu::arguments::escaped(file)
        ));
        all.push(DiskOptions {
            name: option.to_owned(),
            bus: "ide",
            device: Properties::default(),
            nodes: vec![drive],
        });
    }
    all.retain(|disk| {
        let is_read_only = |node: &Properties| {
            ["read-only", "readonly"]
                .iter()
                .any(|key| node.get(key).is_some_and(|on| switch(on) == "on"))
        };
        let is_read_only = disk.nodes.iter().any(is_read_only);
        if is_read_only {
            twin.lacks(format!("disk {}: it is read-only", disk.name));
        }
        !is_read_only
    });
    all
}

/// The `-drive`, or the `-blockdev` nodes from the top to the file.
fn nodes(arguments: &Arguments, name: &str) -> Vec<Properties> {
    if let Some(drive) = arguments
        .properties("drive")
        .find(|drive| drive.get("id") == Some(name))
    {
        return vec![drive];
    }
    let (mut all, mut name) = (Vec::new(), name.to_owned());
    for _ in 0..MAX_NODES {
        let Some(node) = arguments
            .properties("blockdev")
            .find(|node| node.get("node-name") == Some(&name))
        else {
            break;
        };
        let below = node.get("file").map(str::to_owned);
        all.push(node);
        match below {
            Some(below) => name = below,
            None => break,
        }
    }
    all
}

/// Reads the disk that is tuned.
fn read_disk(twin: &mut Twin, found: &DiskOptions, arguments: &Arguments) {
    twin.disk = TwinDisk {
        name: found.name.clone(),
        ..TwinDisk::default()
    };
    if found.bus != "virtio-blk" {
        twin.disk.set("bus", found.bus);
    }
    of_device(twin, &found.device);
    let iothread_of = |device: &Properties| device.get("iothread").map(str::to_owned);
    let mut iothread = iothread_of(&found.device);
    // A controller's ID is that of its bus without the number behind the dot.
    let controller = found
        .device
        .get("bus")
        .and_then(|bus| bus.split('.').next())
        .unwrap_or_default();
    if found.bus == "virtio-scsi" {
        let owner = arguments
            .properties("device")
            .find(|device| device.get("id") == Some(controller));
        match owner {
            Some(owner)
                if owner
                    .first("driver")
                    .is_some_and(|driver| driver.starts_with("virtio-scsi")) =>
            {
                iothread = iothread.or_else(|| iothread_of(&owner));
                of_device(twin, &owner);
            }
            Some(owner) => {
                let driver = owner.first("driver").unwrap_or_default().to_owned();
                twin.lacks(format!(
                    "SCSI controller {driver}: virtio-scsi in its place"
                ));
            }
            None => {}
        }
    }
    if let Some(id) = iothread {
        twin.disk.set("iothread", "on");
        let object = arguments
            .properties("object")
            .find(|object| object.get("id") == Some(&id));
        for (key, value) in object
            .iter()
            .flat_map(|object| object.all())
            .map(|(key, value)| (format!("iothread.{key}"), value))
            .filter(|(key, _)| Setting::listed(key).is_some_and(|setting| !setting.is_family()))
        {
            twin.disk.set(&key, value);
        }
    }
    let mut cache = Cache {
        direct: false,
        no_flush: false,
        mode: None,
    };
    for node in &found.nodes {
        read_node(twin, node, &mut cache, arguments);
    }
    let write_back = found.device.get("write-cache").map_or("on", switch) != "off";
    twin.disk.set("cache", cache.mode(write_back));
    if cache.direct && cache.no_flush {
        twin.lacks("cache.no-flush beside cache.direct: the twin flushes");
    }
}

/// QEMU's cache switches.
struct Cache {
    direct: bool,
    no_flush: bool,
    /// `cache=` of a `-drive`.
    mode: Option<String>,
}

impl Cache {
    fn mode(&self, write_back: bool) -> String {
        let by_switches = match (self.direct, self.no_flush, write_back) {
            (true, _, true) => "none",
            (true, _, false) => "directsync",
            (false, true, _) => "unsafe",
            (false, false, true) => "writeback",
            (false, false, false) => "writethrough",
        };
        self.mode
            .clone()
            .filter(|mode| mode != "default")
            .unwrap_or_else(|| by_switches.to_owned())
    }
}

/// Reads a drive or a block node.
fn read_node(twin: &mut Twin, node: &Properties, cache: &mut Cache, arguments: &Arguments) {
    let driver = node.get("driver").unwrap_or_default().to_owned();
    for (key, value) in node.all() {
        // The file below a format, in one option.
        let key = key.strip_prefix("file.").unwrap_or(key);
        match key {
            "file" if driver.is_empty() => twin.disk.file = Some(PathBuf::from(value)),
            "filename" => twin.disk.file = Some(PathBuf::from(value)),
            "format" => format(twin, value),
            "driver" if ["qcow2", "raw"].contains(&value) => format(twin, value),
            "driver" if ["file", "host_device", "throttle"].contains(&value) => {}
            "driver" => twin.lacks(format!("block driver {value}: a file in its place")),
            "aio" => twin.disk.set("aio", value),
            "cache" => cache.mode = Some(value.to_owned()),
            "cache.direct" => cache.direct = switch(value) == "on",
            "cache.no-flush" => cache.no_flush = switch(value) == "on",
            "cache.writeback" if switch(value) == "off" => {
                cache.mode = Some("writethrough".to_owned())
            }
            "discard" if ["unmap", "on"].contains(&switch(value)) => {
                twin.disk.set("discard", "unmap")
            }
            "detect-zeroes" if value != "off" => twin.disk.set("detect-zeroes", value),
            "l2-cache-size" | "cache-size" | "refcount-cache-size" | "l2-cache-entry-size" => {
                twin.disk.set(key, value)
            }
            "throttle-group" => {
                let group = arguments
                    .properties("object")
                    .find(|object| object.get("id") == Some(value));
                let limits = group.iter().flat_map(|group| group.all());
                for (key, value) in limits.filter_map(|(key, value)| {
                    let key = key.strip_prefix("limits.").or(key.strip_prefix("x-"))?;
                    Some((key.to_owned(), value.to_owned()))
                }) {
                    twin.disk.set(&format!("throttling.{key}"), value);
                }
            }
            "iops" | "bps" => twin.disk.set(&format!("throttling.{key}-total"), value),
            "iops_rd" | "bps_rd" => twin.disk.set(
                &format!("throttling.{}-read", &key[..4].trim_end_matches('_')),
                value,
            ),
            "iops_wr" | "bps_wr" => twin.disk.set(
                &format!("throttling.{}-write", &key[..4].trim_end_matches('_')),
                value,
            ),
            limit if limit.starts_with("throttling.") && limit != "throttling.group" => {
                twin.disk.set(limit, value)
            }
            _ => {}
        }
    }
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
            | "plugin" | "incoming" | "fsdev" | "virtfs" | "cdrom" | "fda" | "tpmdev"
            | "snapshot" | "icount" | "no-hpet" | "no-acpi" => {
                twin.lacks(format!(
                    "-{option}{}{value}",
                    if value.is_empty() { "" } else { " " }
                ));
            }
            "smp" | "device" | "drive" | "blockdev" | "hda" | "hdb" | "hdc" | "hdd" => {}
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
        let line = r#"/usr/bin/qemu-system-x86_64 -blockdev {"driver":"file","filename":"/d","node-name":"f","aio":"io_uring","cache":{"direct":true,"no-flush":false}} -blockdev {"node-name":"q","driver":"qcow2","file":"f","discard":"unmap"} -object {"qom-type":"throttle-group","id":"g","limits":{"bps-total":9}} -blockdev driver=throttle,node-name=t,file=q,throttle-group=g -device virtio-scsi-pci,id=s,iothread=x,num_queues=4 -device scsi-hd,bus=s.0,drive=t,id=sd,write-cache=off"#;
        let twin = of(line, Some("sd")).unwrap();
        let all = "aio=io_uring bus=virtio-scsi cache=directsync discard=unmap format=qcow2 iothread=on num-queues=4 throttling.bps-total=9";
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
        assert!(matches!(
            of("qemu -m 1G -drive file=/r,if=virtio,read-only=on", None),
            Err(TwinError::NoDisk)
        ));
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

    proptest! {
        #[test]
        fn any_arguments_are_survived(
            all in proptest::collection::vec("(-device|-drive|-blockdev|-object|-M|-m|-smp|[a-z{}\":=,.-]{0,30}|drive=d,id=x|id=d,if=none,file=/x)", 0..10),
        ) {
            let _ = read(&all, None);
        }
    }
}
