//! The configuration of a domain's XML. Format: libvirt's `formatdomain.html`.

use super::command_line::{debugging, served_elsewhere};
use super::{ConfigurationError, card_model, is_windows_name};
use crate::twin::domain_xml::{
    DEFAULT_CONTROLLER, Disk, Limits, ScsiControllers, child, domain, foreign_architecture, is_kvm,
    max_vcpus, memory_bytes, number_among_siblings, parse, text_of, throttle_groups, vcpus,
};
use roxmltree::Node;
use std::collections::BTreeMap;
use vmtax_model::{ConfiguredDisk, ConfiguredNic, Manager, VmConfiguration};
use vmtax_vmm::qemu::arguments::Arguments;

pub(super) fn read(xml: &str) -> Result<VmConfiguration, ConfigurationError> {
    let document = parse(xml)?;
    let domain = domain(&document)?;
    let name = child(domain, "name").map_or_else(String::new, text_of);
    let mut found = VmConfiguration {
        source: format!("libvirt domain {name}"),
        manager: Some(Manager::Libvirt),
        is_kvm: is_kvm(domain),
        cpus: vcpus(domain),
        sockets: sockets(domain),
        memory: memory_bytes(domain),
        has_huge_pages: has_huge_pages(domain),
        ..VmConfiguration::default()
    };
    if let Some(other) = foreign_architecture(domain) {
        return Err(ConfigurationError::Architecture(other.to_owned()));
    }
    read_system(domain, &name, &mut found);
    read_cpu(domain, &mut found);
    read_features(domain, &mut found);
    read_timers(domain, &mut found);
    read_limits(domain, &mut found);
    if let Some(devices) = child(domain, "devices") {
        read_devices(domain, devices, &mut found);
    }
    read_arguments(domain, &mut found);
    Ok(found)
}

/// Returns true if the memory is of pages that are larger than the usual ones of 4 KiB.
fn has_huge_pages(domain: Node<'_, '_>) -> bool {
    let backing = child(domain, "memoryBacking");
    let Some(pages) = backing.and_then(|backing| child(backing, "hugepages")) else {
        return false;
    };
    let mut sizes = pages
        .children()
        .filter(|page| page.tag_name().name() == "page");
    let is_usual = |page: Node<'_, '_>| {
        page.attribute("size") == Some("4")
            && matches!(page.attribute("unit"), None | Some("KiB" | "k"))
    };
    sizes.clone().next().is_none() || sizes.any(|page| !is_usual(page))
}

/// Reads the arguments that the domain hands to QEMU itself: `<qemu:commandline>`.
fn read_arguments(domain: Node<'_, '_>, found: &mut VmConfiguration) {
    let Some(line) = child(domain, "commandline") else {
        return;
    };
    let values = line
        .children()
        .filter_map(|argument| argument.attribute("value"));
    // The program comes first.
    let words = std::iter::once("qemu").chain(values).map(str::to_owned);
    found
        .debugging
        .extend(debugging(&Arguments::from_iter(words)));
}

/// Reads disks, network cards, tablets and shared directories.
fn read_devices<'a>(domain: Node<'a, 'a>, devices: Node<'a, 'a>, found: &mut VmConfiguration) {
    let groups = throttle_groups(domain);
    let controllers = ScsiControllers::of(devices);
    for device in devices.children().filter(Node::is_element) {
        match device.tag_name().name() {
            "disk" => {
                let disk = Disk(device);
                let configured = configured_disk(&disk, &controllers);
                found.disks.extend(
                    configured.map(|configured| with_group_limits(configured, &disk, &groups)),
                );
            }
            "interface" => found.nics.push(nic(device)),
            "input" => {
                found.has_usb_tablet |= device.attribute("type") == Some("tablet")
                    && device.attribute("bus").is_none_or(|bus| bus == "usb");
            }
            "filesystem" => found.shares_9p.extend(share_9p(device)),
            _ => {}
        }
    }
}

/// Reads the machine type and what tells that the guest is Windows.
fn read_system(domain: Node<'_, '_>, name: &str, found: &mut VmConfiguration) {
    let kind = child(domain, "os").and_then(|os| child(os, "type"));
    let machine = kind.and_then(|kind| kind.attribute("machine"));
    found.machine_type = machine.map(str::to_owned);
    let known = domain
        .descendants()
        .filter(|node| node.tag_name().name() == "os")
        .find_map(|node| {
            node.attribute("id")
                .filter(|id| id.contains("microsoft.com"))
        });
    let clock = child(domain, "clock").and_then(|clock| clock.attribute("offset"));
    found.windows = match known {
        Some(id) => Some(format!("its metadata name {id}")),
        None if is_windows_name(name) => Some(format!("its name is {name}")),
        None if clock == Some("localtime") => {
            Some("its clock is set to local time (<clock offset='localtime'>)".to_owned())
        }
        None => None,
    };
}

/// Reads the CPU's model, features and sockets.
fn read_cpu(domain: Node<'_, '_>, found: &mut VmConfiguration) {
    let Some(cpu) = child(domain, "cpu") else {
        return;
    };
    found.cpu_model = match cpu.attribute("mode") {
        Some("host-passthrough") => Some("host".to_owned()),
        Some("maximum") => Some("max".to_owned()),
        Some("host-model") => Some("host-model".to_owned()),
        _ => child(cpu, "model")
            .map(text_of)
            .filter(|model| !model.is_empty()),
    };
    for feature in cpu
        .children()
        .filter(|node| node.tag_name().name() == "feature")
    {
        let is_on = !matches!(feature.attribute("policy"), Some("disable" | "forbid"));
        let name = feature.attribute("name").unwrap_or_default();
        found.cpu_features.insert(name.replace('_', "-"), is_on);
    }
}

/// The CPU sockets of a domain: each vCPU is one where the XML has no topology.
fn sockets(domain: Node<'_, '_>) -> Option<u32> {
    match child(domain, "cpu").and_then(|cpu| child(cpu, "topology")) {
        Some(topology) => topology.attribute("sockets")?.parse().ok(),
        None => Some(max_vcpus(domain)),
    }
}

/// Reads enlightenments, and where interrupt controllers are emulated.
fn read_features(domain: Node<'_, '_>, found: &mut VmConfiguration) {
    let features = child(domain, "features");
    let of = |name: &str| features.and_then(|features| child(features, name));
    if let Some(hyperv) = of("hyperv") {
        found.has_all_enlightenments =
            matches!(hyperv.attribute("mode"), Some("passthrough" | "host-model"));
        for one in hyperv.children().filter(Node::is_element) {
            let name = one.tag_name().name().replace('_', "-");
            found
                .enlightenments
                .insert(name, one.attribute("state") != Some("off"));
        }
        found
            .windows
            .get_or_insert_with(|| "it has Hyper-V enlightenments".to_owned());
    }
    let hidden = of("kvm").and_then(|kvm| child(kvm, "hidden"));
    if hidden.and_then(|hidden| hidden.attribute("state")) == Some("on") {
        found.cpu_features.insert("kvm".to_owned(), false);
    }
    let eoi = of("apic").and_then(|apic| apic.attribute("eoi"));
    if let Some(eoi) = eoi {
        found
            .cpu_features
            .insert("kvm-pv-eoi".to_owned(), eoi == "on");
    }
    let irqchip = of("ioapic").and_then(|ioapic| ioapic.attribute("driver"));
    found.irqchip = irqchip.map(|driver| if driver == "qemu" { "split" } else { "on" }.to_owned());
}

/// Reads the timers of the clock, of which one is an enlightenment and one a feature of the CPU.
fn read_timers(domain: Node<'_, '_>, found: &mut VmConfiguration) {
    for timer in child(domain, "clock").iter().flat_map(Node::children) {
        let is_present = timer.attribute("present").map(|present| present == "yes");
        let (switches, name) = match timer.attribute("name") {
            Some("hpet") => {
                found.hpet = is_present;
                continue;
            }
            Some("hypervclock") => (&mut found.enlightenments, "time"),
            Some("kvmclock") => (&mut found.cpu_features, "kvmclock"),
            _ => continue,
        };
        switches.extend(is_present.map(|is_present| (name.to_owned(), is_present)));
    }
}

/// A quota of the vCPUs or of the whole VM: `<cputune>`.
fn read_limits(domain: Node<'_, '_>, found: &mut VmConfiguration) {
    let Some(tune) = child(domain, "cputune") else {
        return;
    };
    let number = |name: &str| child(tune, name).and_then(|node| text_of(node).parse::<u64>().ok());
    let limit = |quota: &str, period: &str, each: u64| {
        let quota = number(quota).filter(|quota| *quota > 0)?;
        let thousandths = quota.saturating_mul(1000) / number(period).unwrap_or(100_000).max(1);
        Some(thousandths.saturating_mul(each))
    };
    let of_vcpus = limit("quota", "period", u64::from(found.cpus));
    found.cpu_limit = [of_vcpus, limit("global_quota", "global_period", 1)]
        .into_iter()
        .flatten()
        .min();
}

/// A disk; `None` for a medium that is only read.
fn configured_disk(disk: &Disk<'_>, controllers: &ScsiControllers<'_>) -> Option<ConfiguredDisk> {
    let kind = disk.0.attribute("device").unwrap_or("disk");
    // A LUN on virtio-blk is a disk that also passes SCSI commands on.
    let is_disk = kind == "disk" || kind == "lun" && disk.bus() == "virtio";
    if !is_disk || child(disk.0, "readonly").is_some() {
        return None;
    }
    let source = disk.0.attribute("type").unwrap_or("file");
    if source == "vhostuser" {
        return Some(served_elsewhere(disk.name()));
    }
    let controller = controllers.of_disk(disk);
    let model = controller.map(|one| {
        one.attribute("model")
            .filter(|model| *model != "auto")
            .unwrap_or(DEFAULT_CONTROLLER)
    });
    let bus = match (disk.bus(), model) {
        ("virtio", _) => "virtio-blk",
        ("scsi", Some(model)) if !model.starts_with("virtio") => model,
        // libvirt adds a controller that the XML does not have.
        ("scsi", None) => DEFAULT_CONTROLLER,
        ("scsi", _) => "virtio-scsi",
        (other, _) => other,
    };
    let driver = disk.driver();
    let plain = |name: &str| {
        let value = driver.and_then(|driver| driver.attribute(name));
        value.filter(|value| *value != "default").map(str::to_owned)
    };
    let has_iothread = |driver: Option<Node<'_, '_>>| {
        driver.is_some_and(|driver| {
            driver.has_attribute("iothread") || child(driver, "iothreads").is_some()
        })
    };
    Some(ConfiguredDisk {
        name: disk.name(),
        bus: bus.to_owned(),
        network_storage: match source {
            "nvme" => Some("nvme".to_owned()),
            "vhostvdpa" => Some("virtio-blk-vhost-vdpa".to_owned()),
            _ => disk.protocol().map(str::to_owned),
        },
        format: Some(format(disk, plain("type"))),
        cache: disk.cache().to_owned(),
        aio: plain("io"),
        has_iothread: has_iothread(driver)
            || has_iothread(controller.and_then(|controller| child(controller, "driver"))),
        limits: disk.limits().filter(|(_, value)| value != "0").collect(),
        is_copied_on_read: plain("copy_on_read").as_deref() == Some("on"),
    })
}

/// The format of a disk's image, raw where the XML has none; LUKS where it is that within raw.
fn format(disk: &Disk<'_>, given: Option<String>) -> String {
    let source = child(disk.0, "source");
    let encryption = [Some(disk.0), source]
        .into_iter()
        .flatten()
        .find_map(|node| child(node, "encryption"));
    let format = given.unwrap_or_else(|| "raw".to_owned());
    // Ceph's own library decrypts it, then, and QEMU has raw data.
    let engine = encryption.and_then(|encryption| encryption.attribute("engine"));
    let is_librbds = engine == Some("librbd");
    match encryption.and_then(|encryption| encryption.attribute("format")) {
        Some(luks) if luks.starts_with("luks") && format == "raw" && !is_librbds => {
            "luks".to_owned()
        }
        _ => format,
    }
}

/// A disk with the limits of its throttle groups: those of the one that is next to the guest, and the names of the others.
fn with_group_limits(
    mut configured: ConfiguredDisk,
    disk: &Disk<'_>,
    known: &BTreeMap<String, Limits>,
) -> ConfiguredDisk {
    let mut groups: Vec<&str> = disk.throttle_groups().collect();
    let limits = groups.pop().and_then(|name| known.get(name));
    let others = groups
        .into_iter()
        .map(|name| ("group".to_owned(), name.to_owned()));
    let limits = limits.into_iter().flatten().cloned();
    configured.limits.extend(limits.chain(others));
    configured
}

/// A network card.
fn nic(node: Node<'_, '_>) -> ConfiguredNic {
    let attribute =
        |element: &str, name: &str| child(node, element).and_then(|one| one.attribute(name));
    // A card that is passed through is the host's own.
    let given = attribute("model", "type");
    let model = match node.attribute("type") {
        Some("hostdev") => "",
        Some("vdpa" | "vhostuser") => given.unwrap_or("virtio"),
        _ => given.unwrap_or("rtl8139"),
    };
    let backend = match attribute("backend", "type") {
        Some("passt") => "passt",
        _ => node.attribute("type").unwrap_or_default(),
    };
    let limit = child(node, "bandwidth").and_then(|limits| {
        let average = |way: &str| child(limits, way)?.attribute("average");
        let (inbound, outbound) = (average("inbound"), average("outbound"));
        (inbound.is_some() || outbound.is_some()).then(|| {
            let text = |rate: Option<&str>| {
                rate.map_or("no limit".to_owned(), |rate| format!("{rate} KiB/s"))
            };
            format!("{} in, {} out", text(inbound), text(outbound))
        })
    });
    ConfiguredNic {
        name: attribute("target", "dev")
            .or(attribute("mac", "address"))
            .map_or_else(
                || format!("network card {}", number_among_siblings(node)),
                str::to_owned,
            ),
        model: card_model(model).unwrap_or_else(|| model.to_owned()),
        backend: backend.to_owned(),
        // libvirt uses vhost-net where the host has it.
        has_vhost: (attribute("driver", "name") == Some("qemu")).then_some(false),
        limit,
    }
}

/// Tag and security model of a directory that QEMU itself shares.
fn share_9p(node: Node<'_, '_>) -> Option<(String, String)> {
    let driver = child(node, "driver").and_then(|driver| driver.attribute("type"));
    let tag = child(node, "target")?.attribute("dir")?.to_owned();
    let model = match node.attribute("accessmode") {
        _ if driver == Some("handle") => "",
        Some("mapped") => "mapped-xattr",
        Some("squash") => "none",
        _ => "passthrough",
    };
    matches!(driver, None | Some("path" | "handle")).then(|| (tag, model.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libvirt_decides_itself_is_read() {
        let xml = "<domain type='hvf' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><name>a</name>
            <memory>1048576</memory><vcpu current='2'>6</vcpu>
            <memoryBacking><hugepages><page size='4' unit='KiB'/></hugepages></memoryBacking>
            <throttlegroups><throttlegroup><group_name>g</group_name><total_iops_sec>90</total_iops_sec><read_bytes_sec>0</read_bytes_sec>
            </throttlegroup></throttlegroups><features><apic eoi='off'/></features><devices>
            <disk type='file' device='disk'><driver type='raw'/><source file='/a'><encryption format='luks'/></source>
            <target dev='sda' bus='scsi'/><throttlefilters><throttlefilter group='h'/><throttlefilter group='g'/></throttlefilters>
            <shareable/></disk>
            <disk type='vhostuser' device='disk'><source type='unix' path='/run/v'/><target dev='vda' bus='virtio'/></disk>
            <disk type='nvme' device='disk'><driver type='raw'/><target dev='vdb' bus='virtio'/></disk>
            <disk type='block' device='lun'><driver type='raw'/><source dev='/dev/sdx'/><target dev='vdc' bus='virtio'/></disk>
            <interface type='vdpa'/><interface type='user'><model type='ViRtIo-transitional'/></interface>
            <filesystem><driver type='mtp'/><source dir='/m'/><target dir='m'/></filesystem></devices>
            <qemu:commandline><qemu:arg value='-icount'/><qemu:arg value='1'/></qemu:commandline></domain>";
        let found = read(xml).unwrap();
        assert_eq!(
            (found.is_kvm, found.cpus, found.sockets),
            (None, 2, Some(6))
        );
        assert!(!found.has_huge_pages && !found.cpu_features["kvm-pv-eoi"]);
        assert_eq!(found.debugging, ["-icount"]);
        let disk = &found.disks[0];
        assert_eq!(
            (
                disk.bus.as_str(),
                disk.format.as_deref(),
                disk.cache.as_str()
            ),
            ("lsilogic", Some("luks"), "none")
        );
        let limits: Vec<_> = disk
            .limits
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        assert_eq!(limits, ["group=h", "iops-total=90"]);
        let storage = |at: usize| {
            (
                found.disks[at].bus.as_str(),
                found.disks[at].network_storage.as_deref(),
            )
        };
        assert_eq!(storage(1), ("vhost-user-blk", Some("vhost-user-blk")));
        assert_eq!(
            (storage(2), storage(3)),
            (("virtio-blk", Some("nvme")), ("virtio-blk", None))
        );
        assert_eq!(
            [&found.nics[0].model, &found.nics[1].model],
            ["virtio", "virtio"]
        );
        assert_eq!(found.shares_9p, []);
    }

    #[test]
    fn a_domain_is_read() {
        let xml = "<domain type='qemu'><name>srv</name><memory unit='GiB'>4</memory><vcpu>2</vcpu>
            <metadata><x:libosinfo xmlns:x='http://libosinfo.org/xmlns/libvirt/domain/1.0'><x:os id='http://microsoft.com/win/11'/></x:libosinfo></metadata>
            <os><type arch='x86_64' machine='pc-q35-9.0'>hvm</type></os>
            <features><hyperv><relaxed state='on'/><stimer state='off'/></hyperv><kvm><hidden state='on'/></kvm><ioapic driver='qemu'/></features>
            <cpu mode='host-passthrough'><topology sockets='2' cores='1' threads='1'/></cpu>
            <clock offset='localtime'><timer name='hpet' present='no'/><timer name='hypervclock' present='yes'/></clock>
            <cputune><quota>50000</quota><period>100000</period></cputune>
            <devices><disk type='network' device='disk'><driver type='raw' cache='writethrough'/><source protocol='rbd' name='p/v'/>
                <target dev='sda' bus='scsi'/><iotune><total_iops_sec>500</total_iops_sec><read_bytes_sec>0</read_bytes_sec></iotune></disk>
              <controller type='scsi' index='0'/>
              <disk type='file' device='cdrom'><target dev='sdb'/></disk>
              <interface type='bridge'><model type='e1000'/><bandwidth><inbound average='100'/></bandwidth></interface>
              <interface type='network'><model type='virtio'/><driver name='qemu'/></interface>
              <interface type='user'><backend type='passt'/></interface>
              <interface type='hostdev'/>
              <input type='tablet' bus='usb'/><filesystem accessmode='mapped'><target dir='t'/></filesystem></devices></domain>";
        let found = read(xml).unwrap();
        assert_eq!(
            (found.is_kvm, found.cpu_limit, found.sockets),
            (Some(false), Some(1000), Some(2))
        );
        assert_eq!(
            found.windows.as_deref(),
            Some("its metadata name http://microsoft.com/win/11")
        );
        let has = |name: &str| found.enlightenments[name];
        assert!(has("relaxed") && has("time") && !has("stimer") && !found.cpu_features["kvm"]);
        assert_eq!(
            (found.hpet, found.irqchip.as_deref()),
            (Some(false), Some("split"))
        );
        let disk = &found.disks[0];
        assert_eq!(
            (
                found.disks.len(),
                disk.bus.as_str(),
                disk.network_storage.as_deref()
            ),
            (1, "lsilogic", Some("rbd"))
        );
        assert_eq!(
            (
                disk.cache.as_str(),
                disk.limits.len(),
                disk.limits["iops-total"].as_str()
            ),
            ("writethrough", 1, "500")
        );
        assert_eq!(
            found.nics[0].limit.as_deref(),
            Some("100 KiB/s in, no limit out")
        );
        assert_eq!(
            (found.nics[0].model.as_str(), found.nics[1].has_vhost),
            ("e1000", Some(false))
        );
        assert_eq!(found.nics[2].backend, "passt");
        assert_eq!(found.nics[3].model, "");
        assert!(found.has_usb_tablet);
        assert_eq!(
            found.shares_9p,
            [("t".to_owned(), "mapped-xattr".to_owned())]
        );
    }
}
