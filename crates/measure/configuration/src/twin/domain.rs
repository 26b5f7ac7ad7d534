//! The twin of what a domain's XML describes.

use super::domain_xml::{
    DEFAULT_CONTROLLER, Disk, ScsiControllers, ballooned_bytes, child, domain,
    foreign_architecture, is_kvm, memory_bytes, parse, text_of, throttle_groups, vcpus,
};
use super::{BACKING, FIRMWARE, TOPOLOGY, Twin, TwinDisk, TwinError, choose};
use roxmltree::Node;
use std::path::PathBuf;
use vmtax_model::{Setting, SettingPart};

/// The twin of a domain; of the disk of that name (`vda`), else of the first.
pub(super) fn read(xml: &str, disk: Option<&str>) -> Result<Twin, TwinError> {
    let document = parse(xml)?;
    let domain = domain(&document)?;
    let name = child(domain, "name").map_or_else(String::new, text_of);
    let mut twin = Twin {
        source: format!("libvirt domain {name}"),
        domain_xml: Some(xml.to_owned()),
        domain_name: Some(name),
        is_kvm: is_kvm(domain),
        memory_mib: (memory_bytes(domain) >> 20).max(1),
        cpus: vcpus(domain),
        ..Twin::default()
    };
    if let Some(other) = foreign_architecture(domain) {
        return Err(TwinError::Architecture(other.to_owned()));
    }
    read_system(domain, &mut twin);
    read_cpu(domain, &mut twin);
    name_other_elements(domain, &mut twin);
    let devices = child(domain, "devices").ok_or(TwinError::NoDisk)?;
    let emulator = child(devices, "emulator").map(|emulator| PathBuf::from(text_of(emulator)));
    twin.qemu = emulator.filter(|path| path.is_file());
    let (all, left_out) = disks(devices);
    let chosen = choose(&all, disk, Disk::name).map_err(|error| error.because(&left_out))?;
    left_out.into_iter().for_each(|line| twin.lacks(line));
    read_disk(chosen, devices, &mut twin);
    twin.lacks_other_disks(all.iter().map(Disk::name));
    name_other_devices(devices, &mut twin);
    Ok(twin)
}

/// Names what else of a domain has a part in its speed.
fn name_other_elements(domain: Node<'_, '_>, twin: &mut Twin) {
    for name in [
        "cputune",
        "numatune",
        "blkiotune",
        "memoryBacking",
        "launchSecurity",
    ] {
        if child(domain, name).is_some() {
            twin.lacks(format!("<{name}>"));
        }
    }
    if let Some(bytes) = ballooned_bytes(domain) {
        twin.lacks(format!(
            "memory balloon: it leaves the VM {} of its {} MiB",
            bytes >> 20,
            twin.memory_mib
        ));
    }
    for timer in child(domain, "clock").iter().flat_map(Node::children) {
        let name = timer.attribute("name").unwrap_or_default();
        for given in timer.attributes().filter(|given| given.name() != "name") {
            twin.lacks(format!(
                "<clock>: timer {name}, {} {}",
                given.name(),
                given.value()
            ));
        }
    }
    if domain
        .children()
        .any(|node| node.tag_name().name() == "commandline")
    {
        twin.lacks("<qemu:commandline>");
    }
}

/// Names the devices that a twin has not, but those that say nothing of a disk's speed.
fn name_other_devices(devices: Node<'_, '_>, twin: &mut Twin) {
    for device in devices.children().filter(Node::is_element) {
        let name = device.tag_name().name();
        match name {
            "disk" | "emulator" | "controller" | "input" | "channel" | "serial" | "console"
            | "audio" | "parallel" | "hub" => {}
            _ => {
                let kind = device
                    .attribute("model")
                    .or(device.attribute("type"))
                    .map_or(String::new(), |kind| format!(" {kind}"));
                let model = child(device, "model")
                    .and_then(|model| model.attribute("type"))
                    .map_or(String::new(), |model| format!(" {model}"));
                twin.lacks(format!("device <{name}>{kind}{model}"));
            }
        }
    }
}

/// Reads `<os>` and `<features>`.
fn read_system(domain: Node<'_, '_>, twin: &mut Twin) {
    let Some(os) = child(domain, "os") else {
        return;
    };
    match child(os, "type").and_then(|kind| kind.attribute("machine")) {
        Some(machine) if machine.starts_with("microvm") || machine.starts_with("xen") => {
            twin.lacks(format!("machine type {machine}: replaced by q35"));
        }
        // A name alone: what else libvirt would pass is not known.
        Some(machine) if !machine.contains([',', ' ']) => {
            twin.machine_type = Some(machine.to_owned());
        }
        _ => {}
    }
    if ["loader", "kernel", "nvram"]
        .iter()
        .any(|name| child(os, name).is_some())
        || os.attribute("firmware").is_some()
    {
        twin.lacks(FIRMWARE);
    }
    let features = child(domain, "features");
    for name in ["hyperv", "kvm", "ioapic"] {
        if features.is_some_and(|features| child(features, name).is_some()) {
            twin.lacks(format!("<features>: <{name}>"));
        }
    }
}

/// Reads `<cpu>` as QEMU's `-cpu`.
fn read_cpu(domain: Node<'_, '_>, twin: &mut Twin) {
    let Some(cpu) = child(domain, "cpu") else {
        return;
    };
    let model = child(cpu, "model")
        .map(text_of)
        .filter(|model| !model.is_empty());
    let name = match cpu.attribute("mode") {
        Some("host-passthrough") => Some("host".to_owned()),
        Some("maximum") => Some("max".to_owned()),
        Some("host-model") => {
            twin.lacks("CPU model host-model: replaced by the host's CPU; libvirt names the model only while the domain runs");
            Some("host".to_owned())
        }
        // libvirt's own default is custom.
        _ => model,
    };
    let Some(mut name) = name.filter(|name| !name.contains([',', ' '])) else {
        return;
    };
    for feature in cpu
        .children()
        .filter(|node| node.tag_name().name() == "feature")
    {
        let sign = match feature.attribute("policy").unwrap_or("require") {
            "force" | "require" | "optional" => "on",
            _ => "off",
        };
        if let Some(feature) = feature
            .attribute("name")
            .filter(|name| !name.contains([',', ' ', '=']))
        {
            name += &format!(",{feature}={sign}");
        }
    }
    if child(cpu, "topology")
        .and_then(|topology| topology.attribute("threads"))
        .is_some_and(|threads| threads != "1")
    {
        twin.lacks(TOPOLOGY);
    }
    twin.cpu_model = Some(name);
}

/// The disks that a twin can have, and a line for each other one.
pub(super) fn disks<'a>(devices: Node<'a, 'a>) -> (Vec<Disk<'a>>, Vec<String>) {
    let (mut all, mut left_out) = (Vec::new(), Vec::new());
    let nodes = devices.children();
    for disk in nodes
        .filter(|node| node.tag_name().name() == "disk")
        .map(Disk)
    {
        match fault(&disk) {
            None => all.push(disk),
            Some(why) => left_out.push(format!("disk {}{why}", disk.name())),
        }
    }
    (all, left_out)
}

/// Why a twin cannot have a disk; behind its name.
fn fault(disk: &Disk<'_>) -> Option<String> {
    let kind = disk.0.attribute("device").unwrap_or("disk");
    let source = disk.0.attribute("type").unwrap_or("file");
    // A LUN on virtio-blk is a disk that also passes SCSI commands on.
    let is_disk = kind == "disk" || kind == "lun" && disk.bus() == "virtio";
    if kind == "lun" && !is_disk {
        Some(": a SCSI LUN that is passed through".to_owned())
    } else if !is_disk || child(disk.0, "readonly").is_some() {
        Some(format!(" ({kind}): it is read-only or removable"))
    } else if !["file", "block", "volume"].contains(&source) {
        let protocol = disk.protocol();
        let protocol = protocol.map_or(String::new(), |protocol| format!(" ({protocol})"));
        Some(format!(": its source is of the type {source}{protocol}"))
    } else if !["virtio", "scsi", "sata", "ide", "nvme"].contains(&disk.bus()) {
        Some(format!(": its bus is {}", disk.bus()))
    } else {
        None
    }
}

/// Reads the disk that is tuned.
fn read_disk(disk: &Disk<'_>, devices: Node<'_, '_>, twin: &mut Twin) {
    let source = child(disk.0, "source");
    twin.disk = TwinDisk {
        name: disk.name(),
        file: source
            .and_then(|s| s.attribute("file").or(s.attribute("dev")))
            .map(PathBuf::from),
        ..TwinDisk::default()
    };
    twin.disk.set("cache", disk.cache());
    twin.disk.set("aio", "threads");
    match disk.bus() {
        "scsi" => twin.disk.set("bus", "virtio-scsi"),
        bus @ ("nvme" | "sata" | "ide") => twin.disk.set("bus", bus),
        _ => {}
    }
    if let Some(driver) = disk.driver() {
        read_driver(twin, driver);
    }
    if disk.bus() == "scsi" {
        read_controller(disk, devices, twin);
    }
    if child(disk.0, "backingStore").is_some_and(|backing| backing.has_children()) {
        twin.lacks(BACKING);
    }
    read_limits(disk, devices, twin);
    let rate = child(disk.0, "target").and_then(|target| target.attribute("rotation_rate"));
    if let Some(rate) = rate {
        twin.disk.set("rotation_rate", rate);
    }
    if let Some(block) = child(disk.0, "blockio") {
        for name in ["logical_block_size", "physical_block_size"] {
            if let Some(size) = block.attribute(name) {
                twin.disk.set(name, size);
            }
        }
    }
    for name in ["encryption", "mirror"] {
        let has = |node: Node<'_, '_>| child(node, name).is_some();
        if has(disk.0) || source.is_some_and(has) {
            twin.lacks(format!("<{name}> of disk {}", disk.name()));
        }
    }
}

/// Reads the limits of the disk and of the throttle group that its requests pass first.
fn read_limits(disk: &Disk<'_>, devices: Node<'_, '_>, twin: &mut Twin) {
    let mut groups: Vec<&str> = disk.throttle_groups().collect();
    let of_group = groups.pop().zip(devices.parent());
    let of_group = of_group.and_then(|(name, domain)| throttle_groups(domain).remove(name));
    let of_group = of_group.into_iter().flatten();
    for (limit, value) in disk.limits().chain(of_group) {
        twin.disk.set(&format!("throttling.{limit}"), value);
    }
    for name in groups {
        twin.lacks(format!("limits of throttle group {name}"));
    }
}

/// Reads what the controller of a SCSI disk has, where it is of virtio.
fn read_controller(disk: &Disk<'_>, devices: Node<'_, '_>, twin: &mut Twin) {
    let controllers = ScsiControllers::of(devices);
    if let Some(controller) = controllers.virtio_of_disk(disk) {
        if let Some(driver) = child(controller, "driver") {
            read_driver(twin, driver);
        }
        return;
    }
    let model = controllers
        .of_disk(disk)
        .and_then(|controller| controller.attribute("model"))
        .filter(|model| *model != "auto")
        .unwrap_or(DEFAULT_CONTROLLER);
    twin.lacks(format!("SCSI controller {model}: replaced by virtio-scsi"));
}

/// Reads the attributes of a `<driver>`, of a disk or of its controller.
fn read_driver(twin: &mut Twin, driver: Node<'_, '_>) {
    let plain = |name: &str| {
        driver
            .attribute(name)
            .filter(|value| !value.is_empty() && *value != "default")
    };
    if let Some(format) = plain("type") {
        twin.set_format(format);
    }
    for setting in Setting::all().filter(|setting| setting.part != SettingPart::Iothread) {
        let value = setting.libvirt.driver_attribute().and_then(plain);
        // A default, which a twin has without it.
        let unset = setting
            .unset_value(1)
            .filter(|_| setting.part == SettingPart::AllNodes);
        if let Some(value) = value.filter(|value| unset.as_deref() != Some(*value)) {
            twin.disk.set(setting.key, value);
        }
    }
    if plain("iothread").is_some() || child(driver, "iothreads").is_some() {
        twin.disk.set("iothread", "on");
        if child(driver, "iothreads").is_some() {
            twin.lacks("<iothreads> of the disk: the test guest has one iothread");
        }
    }
    let size = child(driver, "metadata_cache").and_then(|cache| child(cache, "max_size"));
    if let Some(size) = size.filter(|size| matches!(size.attribute("unit"), None | Some("bytes"))) {
        twin.disk.set("cache-size", text_of(size));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAIN: &str = "<domain type='kvm'>
  <name>web01</name>
  <memory unit='GiB'>4</memory>
  <vcpu current='2'>4</vcpu>
  <os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os>
  <cpu mode='custom' match='exact'><model fallback='forbid'>Westmere</model><feature policy='disable' name='vme'/></cpu>
  <devices>
    <emulator>/nonexistent/qemu</emulator>
    <disk type='file' device='cdrom'><target dev='sda' bus='sata'/><readonly/></disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' cache='none' io='native' discard='unmap' queues='4' iothread='1'>
        <metadata_cache><max_size unit='bytes'>131072</max_size></metadata_cache>
      </driver>
      <source file='/nonexistent/a.qcow2'/>
      <target dev='vda' bus='virtio'/>
      <iotune><total_iops_sec>500</total_iops_sec><write_bytes_sec_max>9</write_bytes_sec_max></iotune>
    </disk>
    <disk type='block' device='disk'><source dev='/nonexistent/b'/><target dev='sdb' bus='scsi'/></disk>
    <controller type='scsi' index='0' model='virtio-scsi'><driver queues='3' iothread='2'/></controller>
    <interface type='network'><model type='virtio'/></interface>
    <oddity kind='x'/>
  </devices>
</domain>";

    /// A domain with this clock and these disks.
    fn domain_with(clock: &str, disks: &str) -> String {
        format!(
            "<domain type='kvm'><name>a</name><memory unit='GiB'>2</memory><vcpu>2</vcpu>\
             <os><type arch='x86_64' machine='pc'>hvm</type></os>{clock}<devices>{disks}</devices></domain>"
        )
    }

    #[test]
    fn encryption_and_timers_are_named() {
        let disk = "<disk><source file='/a'><encryption format='luks'/></source><target dev='vda' bus='virtio'/></disk>";
        let clock = "<clock offset='utc'><timer name='hpet' present='yes'/><timer name='kvmclock' present='no'/></clock>";
        let twin = read(&domain_with(clock, disk), None).unwrap();
        let expected = [
            "<clock>: timer hpet, present yes",
            "<clock>: timer kvmclock, present no",
            "<encryption> of disk vda",
        ];
        assert_eq!(twin.not_twinned, expected);
    }

    #[test]
    fn disks_that_cannot_be_tuned_are_named_by_what_they_are() {
        let lun = "<disk type='block' device='lun'><source dev='/d'/><target dev='sda' bus='scsi'/></disk>";
        let ceph = "<disk type='network'><source protocol='rbd' name='p/a'/><target dev='vda' bus='virtio'/></disk>";
        let why = read(&domain_with("", &format!("{lun}{ceph}")), None)
            .unwrap_err()
            .to_string();
        let both = "(disk sda: a SCSI LUN that is passed through; disk vda: its source is of the type network (rbd))";
        assert!(why.contains(both), "{why}");
    }

    #[test]
    fn a_domain_is_read_with_its_first_disk_or_another() {
        let twin = read(DOMAIN, None).unwrap();
        assert_eq!(
            (twin.memory_mib, twin.cpus, twin.is_kvm),
            (4096, 2, Some(true))
        );
        assert_eq!(twin.machine_type.as_deref(), Some("pc-q35-7.2"));
        assert_eq!(twin.cpu_model.as_deref(), Some("Westmere,vme=off"));
        let set: Vec<String> = twin
            .disk
            .set
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let all = "aio=native cache=none cache-size=131072 discard=unmap format=qcow2 iothread=on num-queues=4 \
                   throttling.bps-write-max=9 throttling.iops-total=500";
        assert_eq!(
            (twin.disk.name.as_str(), set.join(" ").as_str()),
            ("vda", all)
        );
        let lacks = |part: &str| twin.not_twinned.iter().any(|line| line.contains(part));
        for part in [
            "sda",
            "sdb",
            "<interface> network virtio",
            "<oddity>",
            "a.qcow2",
        ] {
            assert!(
                lacks(part) || part == "a.qcow2",
                "{part}: {:?}",
                twin.not_twinned
            );
        }
        let other = read(DOMAIN, Some("sdb")).unwrap();
        let set: Vec<String> = other
            .disk
            .set
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        assert_eq!(
            set.join(" "),
            "aio=threads bus=virtio-scsi cache=writeback iothread=on num-queues=3"
        );
        assert!(
            !other
                .not_twinned
                .iter()
                .any(|line| line.contains("SCSI controller")),
            "{:?}",
            other.not_twinned
        );
        let of_virtio = "<controller type='scsi' index='0' model='virtio-scsi'><driver queues='3' iothread='2'/></controller>";
        for (controller, model) in [
            ("<controller type='scsi' model='lsisas1068'/>", "lsisas1068"),
            ("<controller type='scsi'/>", "lsilogic"),
            ("", "lsilogic"),
        ] {
            let twin = read(&DOMAIN.replace(of_virtio, controller), Some("sdb")).unwrap();
            let line = format!("SCSI controller {model}: replaced by virtio-scsi");
            assert!(twin.not_twinned.contains(&line), "{:?}", twin.not_twinned);
            assert!(
                !twin.disk.set.contains_key("iothread"),
                "{:?}",
                twin.disk.set
            );
        }
        let unknown = read(DOMAIN, Some("vdz")).unwrap_err().to_string();
        assert!(
            unknown.contains("vdz") && unknown.contains("vda, sdb"),
            "{unknown}"
        );
    }

    #[test]
    fn what_is_no_domain_is_said() {
        assert!(
            read("<network/>", None)
                .unwrap_err()
                .to_string()
                .contains("<network>")
        );
        assert!(
            read("no xml", None)
                .unwrap_err()
                .to_string()
                .contains("virsh dumpxml")
        );
        assert!(matches!(
            read("<domain><devices/></domain>", None),
            Err(TwinError::NoDisk)
        ));
        let arm = "<domain><os><type arch='aarch64'>hvm</type></os></domain>";
        assert!(matches!(read(arm, None), Err(TwinError::Architecture(_))));
    }
}
