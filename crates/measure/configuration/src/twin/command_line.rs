//! A QEMU command line, and the twin of what it starts.

use super::drives::{disks, read_disk, switch};
use super::line::{Line, file_name};
use super::{FIRMWARE, TOPOLOGY, Twin, TwinError, choose};
use std::path::PathBuf;
use vmtax_host::find_program;
use vmtax_vmm::qemu::arguments::{Arguments, Properties};
use vmtax_vmm::qemu::block_graph::BlockGraph;

impl Line {
    /// The twin of what it starts; of the disk of that name, else of the first.
    pub fn twin(&self, disk: Option<&str>) -> Result<Twin, TwinError> {
        let mut twin = read(&self.words, disk)?;
        for name in self.deciding_wrappers() {
            twin.lacks(format!("{name} before QEMU"));
        }
        Ok(twin)
    }
}

/// A machine type with what of its properties a twin takes over; names the others.
fn read_machine(twin: &mut Twin, machine: &Properties) {
    let Some(name) = machine.first("type") else {
        return;
    };
    if name.contains(',')
        || name == "none"
        || name.starts_with("microvm")
        || name.starts_with("xen")
    {
        twin.lacks(format!("machine type {name}: replaced by q35"));
        return;
    }
    let mut all = name.to_owned();
    for (key, value) in machine.all() {
        // A comma would begin another property.
        let is_whole = !value.contains(',');
        match key {
            "hpet" | "kernel-irqchip" | "kernel_irqchip" | "mem-merge" | "dump-guest-core"
            | "pcie" | "pit" | "pic" | "rtc" | "smm" | "usb" | "vmport"
                if is_whole =>
            {
                all += &format!(",{key}={}", switch(value));
            }
            // They are another option's, or name objects that a twin has not.
            "" | "type" | "accel" | "memory-backend" | "graphics" | "sata" | "i8042"
            | "suppress-vmdesc" => {}
            _ => twin.lacks(format!("property {key}={value} of the machine")),
        }
    }
    twin.machine_type = Some(all);
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
    let program = words.first().map_or("", String::as_str);
    if let Some(other) = foreign_architecture(program) {
        return Err(TwinError::Architecture(other.to_owned()));
    }
    for (option, value) in arguments.options() {
        match option {
            "machine" | "M" => read_machine(&mut twin, &Properties::parse(value)),
            "cpu" => twin.cpu_model = Some(value.to_owned()),
            _ => {}
        }
    }
    let smp = arguments.properties("smp").last().unwrap_or_default();
    if smp.get("threads").is_some_and(|threads| threads != "1") {
        twin.lacks(TOPOLOGY);
    }
    let graph = BlockGraph::of(&arguments);
    let (all, left_out) = disks(&graph);
    let chosen = choose(&all, disk, |disk| disk.found.name.clone())
        .map_err(|error| error.because(&left_out))?;
    read_disk(&mut twin, chosen, &graph);
    left_out.into_iter().for_each(|line| twin.lacks(line));
    twin.lacks_other_disks(all.iter().map(|disk| disk.found.name.clone()));
    name_other_devices(&arguments, &mut twin);
    name_other_options(&arguments, &mut twin);
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

/// The architecture of one of QEMU's programs, where that is not x86.
pub(crate) fn foreign_architecture(program: &str) -> Option<&str> {
    file_name(program)
        .strip_prefix("qemu-system-")
        .filter(|name| !name.starts_with("x86_64") && !name.starts_with("i386"))
}

/// Names the devices that a twin has not.
fn name_other_devices(arguments: &Arguments, twin: &mut Twin) {
    // Buses and controllers, which say nothing alone, and devices that every guest has.
    const USUAL: [&str; 15] = [
        "pcie-root-port",
        "pci-bridge",
        "virtio-scsi",
        "ahci",
        "ich9-ahci",
        "virtio-serial",
        "virtserialport",
        "nvme",
        "usb-tablet",
        "usb-mouse",
        "usb-kbd",
        "qemu-xhci",
        "nec-usb-xhci",
        "isa-serial",
        "virtconsole",
    ];
    for device in arguments.properties("device") {
        let driver = device.first("driver").unwrap_or_default();
        let is_usual = USUAL.iter().any(|known| driver.starts_with(known));
        if device.get("drive").is_none() && !is_usual {
            let id = device
                .get("id")
                .map_or(String::new(), |id| format!(" {id}"));
            twin.lacks(format!("device {driver}{id}"));
        }
    }
}

/// Names the options that a twin has not.
fn name_other_options(arguments: &Arguments, twin: &mut Twin) {
    const USUAL_OBJECTS: [&str; 6] = [
        "secret",
        "iothread",
        "throttle-group",
        "tls",
        "rng",
        "memory-backend-ram",
    ];
    for (option, value) in arguments.options() {
        match option {
            "kernel" | "initrd" | "append" | "bios" | "pflash" => twin.lacks(FIRMWARE),
            "netdev" | "nic" | "net" => twin.lacks("network: not needed to tune a disk"),
            "object" => {
                let object = Properties::parse(value);
                let kind = object.first("qom-type").unwrap_or_default();
                if !USUAL_OBJECTS.iter().any(|known| kind.starts_with(known)) {
                    twin.lacks(format!("object {kind}: the test guest has ordinary memory"));
                }
            }
            "mem-path" | "mem-prealloc" | "overcommit" | "numa" | "readconfig" | "writeconfig"
            | "plugin" | "incoming" | "fsdev" | "virtfs" | "tpmdev" | "snapshot" | "icount"
            | "no-hpet" | "no-acpi" => {
                let blank = if value.is_empty() { "" } else { " " };
                twin.lacks(format!("-{option}{blank}{value}"));
            }
            // Read elsewhere.
            "smp" | "device" | "drive" | "blockdev" | "hda" | "hdb" | "hdc" | "hdd" | "cdrom"
            | "fda" | "fdb" | "mtdblock" | "sd" | "enable-kvm" | "accel" | "machine" | "M"
            | "cpu" | "m" => {}
            // They say nothing of a VM's speed.
            "name" | "uuid" | "S" | "no-user-config" | "nodefaults" | "no-shutdown"
            | "no-reboot" | "daemonize" | "pidfile" | "D" | "d" | "trace" | "display"
            | "nographic" | "vga" | "monitor" | "mon" | "qmp" | "qmp-pretty" | "chardev"
            | "serial" | "parallel" | "sandbox" | "msg" | "rtc" | "boot" | "k" | "add-fd"
            | "smbios" | "audiodev" | "global" | "watchdog-action" | "runas" | "run-with"
            | "usb" | "set" | "action" | "L" => {}
            other => twin.lacks(format!("-{other}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn twin_of(line: &str, disk: Option<&str>) -> Result<Twin, TwinError> {
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
        let twin = twin_of(line, None).unwrap();
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
        let twin = twin_of(line, Some("sd")).unwrap();
        let all = "aio=io_uring bus=virtio-scsi cache=directsync format=qcow2 iothread=on num-queues=4 throttling.bps-total=9";
        assert_eq!(set(&twin), all);
        assert_eq!(twin.disk.file, Some(PathBuf::from("/d")));
        assert!(
            twin_of(line, Some("nope"))
                .unwrap_err()
                .to_string()
                .contains("sd")
        );
    }

    #[test]
    fn drives_without_a_device_have_an_interface() {
        assert_eq!(
            set(&twin_of("qemu -drive file=/a,if=virtio,cache=none,iops_rd=5", None).unwrap()),
            "cache=none throttling.iops-read=5"
        );
        assert_eq!(
            set(&twin_of("kvm -hda /a", None).unwrap()),
            "bus=ide cache=writeback"
        );
        let read_only = twin_of("qemu -m 1G -drive file=/r,if=virtio,read-only=on", None);
        let why = read_only.unwrap_err().to_string();
        assert!(why.contains("(disk drive0: it is read-only)"), "{why}");
        assert!(matches!(
            twin_of("qemu -m 1G", None),
            Err(TwinError::NoDisk)
        ));
        assert!(matches!(
            twin_of("qemu-system-aarch64 -hda /a", None),
            Err(TwinError::Architecture(_))
        ));
        let micro = twin_of(
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
        let twin = twin_of(line, None).unwrap();
        let all = "aio=io_uring bus=virtio-scsi cache=none detect-zeroes=unmap format=qcow2 iothread=on throttling.iops-total=800";
        assert_eq!(set(&twin), all, "the filter does not discard");
        assert_eq!(twin.disk.file, Some(PathBuf::from("/srv/v,1")));
        assert_eq!(twin.not_twinned, Vec::<String>::new());
        let discards = line.replace(
            r#""node-name":"drive-scsi0""#,
            r#""discard":"unmap","node-name":"drive-scsi0""#,
        );
        assert!(set(&twin_of(&discards, None).unwrap()).contains("discard=unmap"));
    }

    #[test]
    fn discard_is_that_of_each_node() {
        let storage = r#"qemu -blockdev {"driver":"file","filename":"/a","node-name":"s1","discard":"unmap"} "#;
        let format = r#"-blockdev {"node-name":"f1","driver":"qcow2","file":"s1","backing":null} "#;
        let device = r#"-device {"driver":"virtio-blk-pci","drive":"f1","id":"virtio-disk0"}"#;
        let twin = twin_of(&format!("{storage}{format}{device}"), None).unwrap();
        assert_eq!(set(&twin), "cache=writeback format=qcow2");
        assert_eq!(twin.not_twinned, Vec::<String>::new());
        let drive = twin_of("qemu -drive file=/a,if=virtio,format=raw,discard=on", None).unwrap();
        assert_eq!(set(&drive), "cache=writeback discard=unmap");
    }

    #[test]
    fn old_options_of_drives_are_limits_and_switches() {
        let line = "qemu -drive file=/a,if=virtio,format=raw,iops_wr=200,iops_wr_max=600,iops_size=4096,bps_rd=7,bps_rd_max_length=3,iops=0";
        let all = "cache=writeback throttling.bps-read=7 throttling.bps-read-max-length=3 throttling.iops-size=4096 throttling.iops-write=200 \
                   throttling.iops-write-max=600";
        assert_eq!(set(&twin_of(line, None).unwrap()), all);
        let line = "qemu -drive file=/a,id=d,if=none,cache=writethrough,cache.direct=on -device virtio-blk-pci,drive=d";
        assert_eq!(set(&twin_of(line, None).unwrap()), "cache=directsync");
        let back = format!("{line},write-cache=on");
        assert_eq!(set(&twin_of(&back, None).unwrap()), "cache=none");
    }

    #[test]
    fn a_group_that_is_no_object_is_named() {
        let line = "qemu -blockdev driver=throttle,throttle-group=g,node-name=t,file.driver=file,file.filename=/a -device virtio-blk,drive=t";
        let twin = twin_of(line, None).unwrap();
        assert_eq!(twin.not_twinned, ["limits of throttle group g"]);
        let line =
            format!("{line} -object throttle-group,id=g,x-bps-read=9,x-bps-read-max-length=2");
        let limits = "throttling.bps-read=9 throttling.bps-read-max-length=2";
        assert!(set(&twin_of(&line, None).unwrap()).ends_with(limits));
    }

    #[test]
    fn what_an_image_has_besides_is_named() {
        let named = |options: &str, line: &str| {
            let drive = format!("qemu -drive file=/a,if=virtio,{options}");
            let twin = twin_of(&drive, None).unwrap();
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
            "image format luks: replaced by raw",
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
        let twin = twin_of("qemu -no-hpet -rtc base=utc -drive file=/a,id=d,if=none -device virtio-scsi-pci,id=s -device scsi-hd,bus=s.0,drive=d", None).unwrap();
        assert_eq!(twin.not_twinned, ["-no-hpet"]);
        assert!(twin.disk.is_format_probed);
    }

    #[test]
    fn storage_without_a_path_is_refused_by_its_kind_alone() {
        let refused = |file: &str| {
            let line = format!(
                "qemu -drive file={file},if=virtio,format=raw -cdrom http://u:SECRET@h/x.iso"
            );
            let why = twin_of(&line, None).unwrap_err().to_string();
            assert!(!why.contains("SECRET"), "{why}");
            why
        };
        let ceph = refused("rbd:p/vm-a:id=SECRET:key=SECRET==:mon_host=192.0.2.1");
        assert!(
            ceph.contains("disk drive0: its storage is Ceph's RBD, which"),
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
        let twin = twin_of(line, None).unwrap();
        assert!(twin.not_twinned[0].starts_with("disk drive1: its storage is Ceph's RBD"));
        assert!(!format!("{twin:?}").contains("SECRET"));
    }

    #[test]
    fn a_namespace_has_the_controller_of_nvme() {
        let line = "qemu -drive file=/a,id=d,if=none,format=raw -device nvme,id=n,serial=x -device nvme-ns,drive=d,bus=n,logical_block_size=4096";
        let twin = twin_of(line, None).unwrap();
        assert_eq!(
            set(&twin),
            "bus=nvme cache=writeback logical_block_size=4096"
        );
        assert_eq!(twin.not_twinned, Vec::<String>::new());
        let missing = twin_of("qemu -device virtio-blk-pci,drive=none", None);
        assert!(missing.unwrap_err().to_string().contains("no file for it"));
    }

    fn read_line(text: &str) -> Result<Twin, TwinError> {
        Line::find(text).and_then(|line| line.unwrap().twin(None))
    }

    #[test]
    fn what_stands_before_qemu_is_named_where_it_decides_how_it_runs() {
        let line = "exec env A=b /usr/bin/taskset -c 4,5 chrt -f 50 qemu-system-x86_64 -m 1G -drive file=/a,if=virtio,format=raw";
        let twin = read_line(line).unwrap();
        assert_eq!(twin.memory_mib, 1024);
        let of_wrappers: Vec<&str> = twin
            .not_twinned
            .iter()
            .filter_map(|line| line.strip_suffix(" before QEMU"))
            .collect();
        assert_eq!(of_wrappers, ["taskset", "chrt"]);
    }

    #[test]
    fn a_variable_without_its_value_is_named() {
        let refused = |word: &str| {
            let line = format!("qemu-system-x86_64 -m {word} -drive file=/a,if=virtio");
            read_line(&line).unwrap_err().to_string()
        };
        assert!(refused("$MEMORY").contains("variable $MEMORY:"));
        assert!(
            refused("${M}G").contains("variable ${M:")
                && refused("$(free)").contains("variable $(free:")
        );
        assert!(read_line("qemu-system-x86_64 -append cost=5$ -drive file=/a,if=virtio").is_ok());
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
