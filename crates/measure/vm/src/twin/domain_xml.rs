//! A twin of what a domain's XML describes. Format: libvirt's `formatdomain.html`.

use super::definition::{Twin, choose};
use super::domain_disk::{Disk, disks};
use super::error::TwinError;
use super::xml::{child, domain, text_of};
use roxmltree::{Document, Node};
use std::path::PathBuf;

/// Elements of `<devices>` that say nothing of a disk's speed.
const SILENT: [&str; 10] = [
    "disk",
    "emulator",
    "controller",
    "input",
    "channel",
    "serial",
    "console",
    "audio",
    "parallel",
    "hub",
];

/// The twin of a domain; of the disk of that name (`vda`), else of the first.
pub(super) fn read(xml: &str, disk: Option<&str>) -> Result<Twin, TwinError> {
    let document = Document::parse(xml).map_err(|e| TwinError::Xml(e.to_string()))?;
    let domain = domain(&document)?;
    let mut twin = Twin {
        domain_xml: Some(xml.to_owned()),
        ..Twin::default()
    };
    let name = child(domain, "name").map_or_else(String::new, text_of);
    twin.source = format!("libvirt domain {name}");
    twin.domain_name = Some(name);
    twin.is_kvm = domain.attribute("type").map(|kind| kind == "kvm");
    twin.memory_mib = (memory_bytes(domain) >> 20).max(1);
    let vcpu = child(domain, "vcpu");
    let count = vcpu.map(|vcpu| {
        vcpu.attribute("current")
            .map_or_else(|| text_of(vcpu), str::to_owned)
    });
    twin.cpus = count
        .and_then(|count| count.parse().ok())
        .unwrap_or(1)
        .max(1);
    system(domain, &mut twin)?;
    cpu(domain, &mut twin);
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
    let devices = child(domain, "devices").ok_or(TwinError::NoDisk)?;
    let emulator = child(devices, "emulator").map(|emulator| PathBuf::from(text_of(emulator)));
    twin.qemu = emulator.filter(|path| path.is_file());
    let all = disks(devices, &mut twin);
    let of_disks = twin
        .not_twinned
        .iter()
        .filter(|line| line.starts_with("disk "));
    let left_out: Vec<String> = of_disks.cloned().collect();
    let chosen = choose(&all, disk, Disk::name).map_err(|error| error.because(&left_out))?;
    chosen.read(devices, &mut twin);
    for other in all.iter().filter(|other| other.name() != chosen.name()) {
        twin.lacks(format!(
            "disk {}: one disk is tuned; --disk names another",
            other.name()
        ));
    }
    for device in devices.children().filter(Node::is_element) {
        let name = device.tag_name().name();
        if !SILENT.contains(&name) {
            let kind = device
                .attribute("model")
                .or(device.attribute("type"))
                .map_or(String::new(), |kind| format!(" {kind}"));
            let model = child(device, "model")
                .and_then(|model| model.attribute("type"))
                .map_or(String::new(), |m| format!(" {m}"));
            twin.lacks(format!("device <{name}>{kind}{model}"));
        }
    }
    Ok(twin)
}

/// `<memory unit='KiB'>`, bytes.
pub(crate) fn memory_bytes(domain: Node<'_, '_>) -> u64 {
    let Some(memory) = child(domain, "currentMemory").or_else(|| child(domain, "memory")) else {
        return 0;
    };
    let unit: u64 = match memory.attribute("unit").unwrap_or("KiB") {
        "b" | "bytes" => 1,
        "KB" => 1000,
        "k" | "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "M" | "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "G" | "GiB" => 1 << 30,
        "TB" => 1_000_000_000_000,
        "T" | "TiB" => 1 << 40,
        _ => 1 << 10,
    };
    text_of(memory)
        .parse::<u64>()
        .unwrap_or(0)
        .saturating_mul(unit)
}

/// `<os>` and `<features>`.
fn system(domain: Node<'_, '_>, twin: &mut Twin) -> Result<(), TwinError> {
    let Some(os) = child(domain, "os") else {
        return Ok(());
    };
    if let Some(kind) = child(os, "type") {
        if let Some(other) = kind
            .attribute("arch")
            .filter(|arch| !["x86_64", "i686"].contains(arch))
        {
            return Err(TwinError::Architecture(other.to_owned()));
        }
        match kind.attribute("machine") {
            Some(machine) if machine.starts_with("microvm") || machine.starts_with("xen") => {
                twin.lacks(format!("machine type {machine}: q35 in its place"));
            }
            // A name alone: what else libvirt would pass is not known.
            Some(machine) if !machine.contains([',', ' ']) => {
                twin.machine_type = Some(machine.to_owned())
            }
            _ => {}
        }
    }
    if ["loader", "kernel", "nvram"]
        .iter()
        .any(|name| child(os, name).is_some())
        || os.attribute("firmware").is_some()
    {
        twin.lacks("firmware and kernel: vmtax boots a kernel of its own");
    }
    let features = child(domain, "features");
    for name in ["hyperv", "kvm", "ioapic"] {
        if features.is_some_and(|features| child(features, name).is_some()) {
            twin.lacks(format!("<features>: <{name}>"));
        }
    }
    Ok(())
}

/// `<cpu>` as QEMU's `-cpu`.
fn cpu(domain: Node<'_, '_>, twin: &mut Twin) {
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
            twin.lacks("CPU model host-model: the host's CPU in its place; of a running domain its own is known");
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
        twin.lacks("vCPU topology: each vCPU is a core of its own");
    }
    twin.cpu_model = Some(name);
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
            let line = format!("SCSI controller {model}: virtio-scsi in its place");
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
