//! The configuration that a QEMU command line has.

use super::cards::nics;
use super::{ConfigurationError, is_windows_name};
use crate::twin::command_line::foreign_architecture;
use crate::twin::drives::{bus_of, cache_mode, limits, writes_back};
use crate::twin::line::{Line, file_name};
use std::collections::BTreeSet;
use vmtax_model::{ConfiguredDisk, VmConfiguration};
use vmtax_vmm::qemu::arguments::{Arguments, Properties, is_on};
use vmtax_vmm::qemu::block_graph::{BlockGraph, GuestDisk, Storage};

/// Devices of disks on a USB controller.
const USB_DISKS: [&str; 3] = ["usb-storage", "usb-bot", "usb-uas"];
/// Folder of the files with which Proxmox has QEMU make controllers.
const PROXMOX_FILES: &str = "/usr/share/qemu-server/";
/// Options that make QEMU log or count each of the guest's instructions or blocks.
const DEBUGGING: [&str; 5] = ["icount", "d", "singlestep", "plugin", "trace"];

pub(super) fn read(line: &Line) -> Result<VmConfiguration, ConfigurationError> {
    let arguments: Arguments = line.words.iter().cloned().collect();
    let program = file_name(line.words.first().map_or("", String::as_str));
    if let Some(other) = foreign_architecture(program) {
        return Err(ConfigurationError::Architecture(other.to_owned()));
    }
    if let Some(machine) = arguments
        .machine_type()
        .filter(|name| is_without_guest(name))
    {
        return Err(ConfigurationError::NoGuest(machine));
    }
    let mut found = VmConfiguration {
        source: source(&arguments),
        is_kvm: is_kvm(&arguments, program),
        cpus: u32::try_from(arguments.vcpus()).unwrap_or(1).max(1),
        memory: arguments.memory_bytes(),
        wrappers: line.deciding_wrappers().map(str::to_owned).collect(),
        further_lines: line.further,
        ..VmConfiguration::default()
    };
    read_machine(&arguments, &mut found);
    read_cpu(&arguments, &mut found);
    read_guest(&arguments, &mut found);
    let graph = BlockGraph::of(&arguments);
    let disks = graph.disks().iter();
    found.disks = disks
        .filter_map(|disk| configured_disk(&graph, disk))
        .chain(vhost_user_disks(&arguments))
        .collect();
    let machine = found.machine_type.as_deref().unwrap_or("pc");
    let is_whole = unread_file(&arguments).is_none();
    found.nics = nics(&arguments, machine, is_whole);
    Ok(found)
}

/// Kind and name of the VM, with what of it is elsewhere.
fn source(arguments: &Arguments) -> String {
    let kind = match arguments.name() {
        Some(name) => format!("QEMU command line of {name}"),
        None => "a QEMU command line".to_owned(),
    };
    match unread_file(arguments) {
        Some(file) => format!("{kind}, without what -readconfig {file} has,"),
        None => kind,
    }
}

/// The file that has more of the VM's options; `None` for those of Proxmox, which have controllers alone.
fn unread_file(arguments: &Arguments) -> Option<&str> {
    let files = arguments
        .options()
        .filter(|(option, _)| *option == "readconfig");
    let is_unread = |file: &str| !file.starts_with(PROXMOX_FILES);
    files.map(|(_, file)| file).find(|file| is_unread(file))
}

/// Returns true if KVM runs the guest, false if TCG does: QEMU's own default, unless the program is `kvm`.
fn is_kvm(arguments: &Arguments, program: &str) -> Option<bool> {
    let named: Vec<String> = arguments.accelerators().collect();
    let has = |accelerator: &str| {
        let mut words = named.iter().flat_map(|one| one.split(':'));
        words.any(|word| word == accelerator)
    };
    let machine = arguments.machine_type();
    match () {
        () if arguments.enables_kvm() || has("kvm") => Some(true),
        () if has("tcg") => Some(false),
        // Another one of the host's, as of macOS or Xen.
        () if !named.is_empty() => None,
        () if unread_file(arguments).is_some() => None,
        () if machine.is_some_and(|machine| machine.starts_with("xen")) => None,
        () => Some(["kvm", "qemu-kvm"].contains(&program)),
    }
}

/// Returns true for a machine type without vCPUs: QEMU then answers questions, or has devices of another QEMU's guest.
fn is_without_guest(machine: &str) -> bool {
    ["none", "x-remote"].contains(&machine)
}

/// Reads the machine, its timers and interrupt controllers, its memory and what makes QEMU log or count.
fn read_machine(arguments: &Arguments, found: &mut VmConfiguration) {
    let machines = ["machine", "M"]
        .into_iter()
        .flat_map(|option| arguments.properties(option));
    for machine in machines {
        if let Some(name) = machine.first("type") {
            found.machine_type = Some(name.to_owned());
        }
        if let Some(hpet) = machine.get("hpet").and_then(is_on) {
            found.hpet = Some(hpet);
        }
        read_irqchip(&machine, found);
    }
    for accel in arguments.properties("accel") {
        read_irqchip(&accel, found);
        if accel.get("one-insn-per-tb").and_then(is_on) == Some(true) {
            found.debugging.push("one-insn-per-tb".to_owned());
        }
    }
    found.debugging.extend(debugging(arguments));
    let devices = arguments.properties("device");
    let plugged: BTreeSet<String> = devices
        .filter_map(|device| device.get("memdev").map(str::to_owned))
        .collect();
    for (option, value) in arguments.options() {
        match option {
            "no-hpet" => found.hpet = Some(false),
            "mem-path" => found.has_huge_pages |= value.contains("huge"),
            "object" => {
                let object = Properties::parse(value);
                let path = object.get("mem-path").unwrap_or_default();
                let is_huge = object.get("hugetlb").and_then(is_on) == Some(true);
                // Memory that is plugged in says nothing of the rest.
                let id = object.get("id").unwrap_or_default();
                found.has_huge_pages |= (is_huge || path.contains("huge")) && !plugged.contains(id);
            }
            _ => {}
        }
    }
    found.sockets = arguments
        .properties("smp")
        .last()
        .and_then(|smp| smp.get("sockets")?.parse().ok());
}

/// Options that make QEMU log or count what the guest executes.
pub(super) fn debugging(arguments: &Arguments) -> Vec<String> {
    let is_debugging = |(option, value): &(&str, &str)| match *option {
        // A file alone switches no event on.
        "trace" => value
            .split(',')
            .any(|part| !part.is_empty() && !part.starts_with("file=")),
        option => DEBUGGING.contains(&option),
    };
    arguments
        .options()
        .filter(is_debugging)
        .map(|(option, _)| format!("-{option}"))
        .collect()
}

/// Reads where interrupt controllers are emulated, as the machine or the accelerator says.
fn read_irqchip(given: &Properties, found: &mut VmConfiguration) {
    let irqchip = given.get("kernel-irqchip").or(given.get("kernel_irqchip"));
    found.irqchip = irqchip.map(str::to_owned).or(found.irqchip.take());
}

/// Reads the CPU's model, features and enlightenments.
fn read_cpu(arguments: &Arguments, found: &mut VmConfiguration) {
    let Some(cpu) = arguments.properties("cpu").last() else {
        return;
    };
    found.cpu_model = cpu.first("model").map(str::to_owned);
    for (key, value) in cpu.all().skip(1) {
        let (name, is_on) = match (key, value.split_at_checked(1)) {
            ("", Some(("+", name))) => (name, Some(true)),
            ("", Some(("-", name))) => (name, Some(false)),
            ("", _) => (value, Some(true)),
            (key, _) => (key, is_on(value)),
        };
        let name = name.replace('_', "-");
        let (switches, name) = match name.strip_prefix("hv-") {
            Some("passthrough") => {
                found.has_all_enlightenments |= is_on == Some(true);
                continue;
            }
            Some(rest) => (&mut found.enlightenments, rest),
            None => (&mut found.cpu_features, name.as_str()),
        };
        // The value of spinlocks is a number of retries.
        let is_on = is_on.or((name == "spinlocks").then_some(true));
        switches.extend(is_on.map(|is_on| (name.to_owned(), is_on)));
    }
}

/// Reads signs that the guest is Windows, and the devices that wake QEMU or share files.
fn read_guest(arguments: &Arguments, found: &mut VmConfiguration) {
    let rtc = arguments.properties("rtc").last().unwrap_or_default();
    if rtc.get("base") == Some("localtime") {
        found.windows = Some("its clock is set to local time (-rtc base=localtime)".to_owned());
    }
    if let Some(name) = arguments.name().filter(|name| is_windows_name(name)) {
        found.windows = Some(format!("its name is {name}"));
    }
    if !found.enlightenments.is_empty() {
        found.windows = Some("it has Hyper-V enlightenments".to_owned());
    }
    let mut add_share = |tag: &str, backend: &Properties| {
        let model = match backend.get("security_model").unwrap_or_default() {
            "mapped" => "mapped-xattr",
            other => other,
        };
        found.shares_9p.push((tag.to_owned(), model.to_owned()));
    };
    let backends = arguments.by_id("fsdev");
    for device in arguments.properties("device") {
        let driver = device.first("driver").unwrap_or_default();
        found.has_usb_tablet |= driver == "usb-tablet";
        let tag = device.get("mount_tag");
        if let Some(tag) = tag.filter(|_| driver.starts_with("virtio-9p")) {
            let backend = device.get("fsdev").and_then(|id| backends.get(id));
            add_share(tag, backend.unwrap_or(&Properties::default()));
        }
    }
    for share in arguments.properties("virtfs") {
        add_share(share.get("mount_tag").unwrap_or_default(), &share);
    }
    found.has_usb_tablet |= arguments
        .options()
        .any(|(option, value)| option == "usbdevice" && value.starts_with("tablet"));
}

/// A disk; `None` for a CD-ROM and other media that are only read.
fn configured_disk(graph: &BlockGraph, disk: &GuestDisk) -> Option<ConfiguredDisk> {
    let chain = graph.of_disk(disk).filter(|chain| !chain.is_read_only())?;
    let [device, controller] = graph.devices_of(disk);
    let driver = device
        .and_then(|device| device.get("driver"))
        .unwrap_or_default();
    let mut bus = match bus_of(graph, disk) {
        Ok(bus) => bus.to_owned(),
        Err(_) if USB_DISKS.contains(&driver) => "usb".to_owned(),
        Err(_) => return None,
    };
    let controllers = controller.and_then(|one| one.get("driver"));
    if let Some(other) =
        controllers.filter(|driver| !driver.starts_with("virtio-scsi") && bus == "virtio-scsi")
    {
        bus = other.to_owned();
    }
    let has_iothread = [device, controller].into_iter().flatten().any(|one| {
        one.all()
            .any(|(key, _)| key == "iothread" || key.starts_with("iothread-vq-mapping"))
    });
    let (limits, unread) = limits(&chain, graph);
    let unread = unread
        .into_iter()
        .map(|group| ("group".to_owned(), group.to_owned()));
    Some(ConfiguredDisk {
        name: disk.name.clone(),
        bus,
        network_storage: match chain.storage() {
            Some(Storage::Driver(driver)) => Some(driver),
            _ => None,
        },
        format: chain.format().map(str::to_owned),
        cache: cache_mode(&chain, writes_back(device, &chain)).to_owned(),
        aio: chain.of_file("aio").map(str::to_owned),
        has_iothread,
        limits: limits
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .chain(unread)
            .collect(),
        is_copied_on_read: chain.filters().any(|filter| filter == "copy-on-read")
            || chain
                .options()
                .any(|(key, value)| key == "copy-on-read" && is_on(value) == Some(true)),
    })
}

/// The disks that another process serves, which has their settings.
fn vhost_user_disks(arguments: &Arguments) -> impl Iterator<Item = ConfiguredDisk> {
    arguments.properties("device").filter_map(|device| {
        let driver = device.first("driver")?;
        let name = device.get("id").unwrap_or(driver).to_owned();
        driver
            .starts_with("vhost-user-blk")
            .then(|| served_elsewhere(name))
    })
}

/// A disk that another process serves by vhost-user.
pub(super) fn served_elsewhere(name: String) -> ConfiguredDisk {
    let bus = "vhost-user-blk".to_owned();
    ConfiguredDisk {
        name,
        network_storage: Some(bus.clone()),
        bus,
        ..ConfiguredDisk::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_line(text: &str) -> VmConfiguration {
        read(&Line::find(text).unwrap().unwrap()).unwrap()
    }

    #[test]
    fn of_several_command_lines_the_first_is_read_and_the_others_are_counted() {
        let further = |text: &str| {
            let found = read_line(text);
            assert_eq!(found.cpus, 3, "{text}");
            found.further_lines
        };
        let first = "qemu-system-x86_64 -smp 3";
        assert_eq!(further(first), 0);
        assert_eq!(further(&format!("{first}\nqemu-img info a.raw\n")), 0);
        assert_eq!(
            further(&format!("{first} &\nqemu-kvm -m 1G; kvm -m 2G\n")),
            2
        );
        assert_eq!(further(&format!("{first}\nqemu-kvm -m 1G\n")), 1);
        // What cannot be read is one, too.
        assert_eq!(further(&format!("{first}\nqemu-kvm -m $MEMORY\n")), 1);
    }

    #[test]
    fn a_command_line_by_hand_is_read() {
        let found = read_line(
            "taskset -c 3 qemu-system-x86_64 -name win10,debug-threads=on -smp 4,sockets=4 -m 1.5G -cpu qemu64,+aes,hv_relaxed,hv_time=off,kvm=off \
             -machine q35,kernel_irqchip=split -drive file=/a.qcow2,if=ide,cache=writethrough -drive file=/b,if=virtio,format=raw,iops=300 \
             -netdev tap,id=n0,ifname=t0 -device e1000,netdev=n0 -nic user,model=virtio-net-pci -device usb-tablet -no-hpet -icount shift=1",
        );
        assert_eq!(
            (found.is_kvm, found.cpus, found.sockets),
            (Some(false), 4, Some(4))
        );
        assert_eq!(found.memory, 1536 << 20);
        assert_eq!(found.cpu_model.as_deref(), Some("qemu64"));
        assert!(!found.cpu_features["kvm"]);
        assert_eq!(
            (
                found.enlightenments["relaxed"],
                found.enlightenments["time"]
            ),
            (true, false)
        );
        assert!(found.windows.is_some() && found.has_usb_tablet);
        assert_eq!(
            (found.hpet, found.irqchip.as_deref()),
            (Some(false), Some("split"))
        );
        assert_eq!(
            (found.wrappers, found.debugging),
            (vec!["taskset".to_owned()], vec!["-icount".to_owned()])
        );
        let disks: Vec<_> = found
            .disks
            .iter()
            .map(|disk| (disk.bus.as_str(), disk.cache.as_str()))
            .collect();
        assert_eq!(
            disks,
            [("sata", "writethrough"), ("virtio-blk", "writeback")]
        );
        assert_eq!(
            found.disks[1].limits.values().next().map(String::as_str),
            Some("300")
        );
        let nics: Vec<_> = found
            .nics
            .iter()
            .map(|nic| (nic.model.as_str(), nic.backend.as_str(), nic.has_vhost))
            .collect();
        assert_eq!(
            nics,
            [("e1000", "tap", Some(false)), ("virtio", "user", None)]
        );
    }

    #[test]
    fn devices_that_are_plugged_in_or_served_elsewhere_are_read() {
        let line = "qemu-system-x86_64 -machine q35,accel=hvf -m 1G -smp 1,maxcpus=4 -device host-x86_64-cpu,id=c1 \
            -object memory-backend-ram,id=d,size=2G -device pc-dimm,memdev=d,id=dimm0 \
            -object memory-backend-file,id=e,size=1073741824,mem-path=/dev/hugepages/x -device pc-dimm,memdev=e,id=dimm1 \
            -drive file=/u.img,if=none,id=u,format=raw -device usb-storage,drive=u,id=stick \
            -drive file=/s.img,if=none,id=s,format=raw -device ide-hd,drive=s,bus=ide.1,id=sata1 \
            -chardev socket,id=v,path=/run/v -device vhost-user-blk-pci,chardev=v,id=vu \
            -fsdev local,id=f,path=/f,security_model=mapped -device virtio-9p-pci,fsdev=f,mount_tag=t \
            -netdev user,id=n -device usb-net,netdev=n,id=nic";
        let found = read(&Line::find(line).unwrap().unwrap()).unwrap();
        assert_eq!((found.cpus, found.memory, found.is_kvm), (2, 4 << 30, None));
        assert!(!found.has_huge_pages, "a DIMM alone has them");
        let disks: Vec<_> = found
            .disks
            .iter()
            .map(|disk| (disk.name.as_str(), disk.bus.as_str()))
            .collect();
        assert_eq!(
            disks,
            [
                ("stick", "usb"),
                ("sata1", "sata"),
                ("vu", "vhost-user-blk")
            ]
        );
        assert_eq!(found.disks[2].cache, "", "it is that of another process");
        assert_eq!(
            found.shares_9p,
            [("t".to_owned(), "mapped-xattr".to_owned())]
        );
        assert_eq!(found.nics[0].model, "usb-net");
    }

    #[test]
    fn managers_command_lines_are_read() {
        let found = read_line(
            r#"/usr/bin/kvm -id 201 -accel kvm -cpu host,hv_ipi -object memory-backend-memfd,id=m,hugetlb=on -device virtio-scsi-pci,id=s0,iothread=io0
               -object iothread,id=io0 -blockdev '{"driver":"throttle","node-name":"t","throttle-group":"g","file":{"driver":"raw","node-name":"f","file":{"driver":"host_device","filename":"/dev/x","aio":"io_uring","cache":{"direct":true},"node-name":"p"}}}'
               -device scsi-hd,bus=s0.0,drive=t,write-cache=on -netdev type=tap,id=n,vhost=on -device virtio-net-pci,netdev=n,id=net0"#,
        );
        assert_eq!((found.is_kvm, found.has_huge_pages), (Some(true), true));
        let disk = &found.disks[0];
        assert_eq!(
            (disk.bus.as_str(), disk.cache.as_str(), disk.aio.as_deref()),
            ("virtio-scsi", "none", Some("io_uring"))
        );
        assert!(disk.has_iothread && disk.limits["group"] == "g");
        assert_eq!((found.nics.len(), found.nics[0].has_vhost), (1, Some(true)));
    }

    #[test]
    fn accelerators_and_cards_that_nobody_names_are_those_of_qemu() {
        let of_line = |line: &str| {
            let found = read_line(line);
            let cards = found.nics.into_iter().map(|nic| nic.model);
            (found.is_kvm, cards.collect::<Vec<_>>().join(","))
        };
        let card = |name: &str| name.to_owned();
        assert_eq!(
            of_line("qemu-system-x86_64 -m 1G"),
            (Some(false), card("e1000"))
        );
        assert_eq!(of_line("qemu-kvm -M q35"), (Some(true), card("e1000e")));
        assert_eq!(
            of_line("qemu-system-x86_64 -accel hvf -M microvm"),
            (None, card(""))
        );
        assert_eq!(
            of_line("qemu-system-x86_64 -M pc,accel=kvm:tcg -nic none"),
            (Some(true), card(""))
        );
    }

    #[test]
    fn what_the_line_does_not_say_is_not_made_up() {
        let is_kvm = |line: &str| read_line(line).is_kvm;
        for line in [
            "qemu-system-x86_64 -readconfig /srv/vm.cfg",
            "qemu-system-x86_64 -machine xenfv -m 1G",
        ] {
            assert_eq!(is_kvm(line), None, "{line}");
        }
        let found = read_line("qemu-system-x86_64 -name a -readconfig /srv/vm.cfg -m 1G");
        assert_eq!(found.nics, []);
        assert_eq!(
            found.source,
            "QEMU command line of a, without what -readconfig /srv/vm.cfg has,"
        );
        let proxmox = read_line("kvm -readconfig /usr/share/qemu-server/pve-q35-4.0.cfg -m 1G");
        assert_eq!(
            (proxmox.source.as_str(), proxmox.is_kvm),
            ("a QEMU command line", Some(true))
        );
    }

    #[test]
    fn a_node_on_a_drive_leads_to_its_file() {
        let line = "kvm -drive file=a.qcow2,if=none,snapshot,id=d -drive driver=blkreplay,if=none,image=d,id=r -device ide-hd,drive=r -drive file=gluster://192.0.2.1/v/b,";
        let disks: Vec<_> = read_line(line)
            .disks
            .into_iter()
            .map(|disk| (disk.name, disk.network_storage))
            .collect();
        let expected = [("r", None), ("drive2", Some("gluster"))];
        assert_eq!(
            disks,
            expected.map(|(name, storage)| (name.to_owned(), storage.map(str::to_owned)))
        );
    }

    #[test]
    fn other_architectures_are_refused_by_name() {
        let line = Line::find("qemu-system-aarch64 -M virt").unwrap().unwrap();
        assert!(
            read(&line)
                .unwrap_err()
                .to_string()
                .starts_with("the VM's architecture is aarch64")
        );
        for machine in ["none", "x-remote"] {
            let line = format!("qemu-system-x86_64 -M {machine} -m 1G");
            let why = read(&Line::find(&line).unwrap().unwrap()).unwrap_err();
            assert!(
                why.to_string()
                    .starts_with(&format!("machine type {machine} runs no guest"))
            );
        }
    }
}
