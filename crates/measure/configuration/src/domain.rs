//! The configuration of a domain's XML. Format: libvirt's `formatdomain.html`.

use super::{ConfigurationError, is_windows_name};
use crate::twin::TwinError;
use crate::twin::domain_xml::{
    DEFAULT_CONTROLLER, Disk, child, domain, foreign_architecture, memory_bytes, text_of, vcpus,
};
use roxmltree::{Document, Node};
use vmtax_model::{ConfiguredDisk, ConfiguredNic, Manager, VmConfiguration};

pub(super) fn read(xml: &str) -> Result<VmConfiguration, ConfigurationError> {
    let document = Document::parse(xml).map_err(|e| TwinError::Xml(e.to_string()))?;
    let domain = domain(&document)?;
    let name = child(domain, "name").map_or_else(String::new, text_of);
    let mut found = VmConfiguration {
        source: format!("libvirt domain {name}"),
        manager: Some(Manager::Libvirt),
        is_kvm: domain.attribute("type").map(|kind| kind == "kvm"),
        cpus: vcpus(domain),
        memory: memory_bytes(domain),
        has_huge_pages: child(domain, "memoryBacking")
            .is_some_and(|backing| child(backing, "hugepages").is_some()),
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
        read_devices(devices, &mut found);
    }
    Ok(found)
}

/// Reads disks, network cards, tablets and shared directories.
fn read_devices<'a>(devices: Node<'a, 'a>, found: &mut VmConfiguration) {
    for device in devices.children().filter(Node::is_element) {
        match device.tag_name().name() {
            "disk" => found.disks.extend(configured_disk(&Disk(device), devices)),
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
            Some("its clock has local time (<clock offset='localtime'>)".to_owned())
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
    let topology = child(cpu, "topology");
    found.sockets = topology.and_then(|topology| topology.attribute("sockets")?.parse().ok());
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
fn configured_disk<'a>(disk: &Disk<'a>, devices: Node<'a, 'a>) -> Option<ConfiguredDisk> {
    let kind = disk.0.attribute("device").unwrap_or("disk");
    if kind != "disk" || child(disk.0, "readonly").is_some() {
        return None;
    }
    let controller = disk.controller(devices);
    let model = controller.map(|one| {
        one.attribute("model")
            .filter(|model| *model != "auto")
            .unwrap_or(DEFAULT_CONTROLLER)
    });
    let bus = match (disk.bus(), model) {
        ("virtio", _) => "virtio-blk",
        ("scsi", Some(model)) if !model.starts_with("virtio") => model,
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
        network_storage: disk.protocol().map(str::to_owned),
        format: Some(plain("type").unwrap_or_else(|| "raw".to_owned())),
        cache: plain("cache").unwrap_or_else(|| "writeback".to_owned()),
        aio: plain("io"),
        has_iothread: has_iothread(driver)
            || has_iothread(controller.and_then(|controller| child(controller, "driver"))),
        limits: disk.limits().filter(|(_, value)| value != "0").collect(),
        is_copied_on_read: plain("copy_on_read").as_deref() == Some("on"),
    })
}

/// A network card.
fn nic(node: Node<'_, '_>) -> ConfiguredNic {
    let attribute =
        |element: &str, name: &str| child(node, element).and_then(|one| one.attribute(name));
    // A card that is passed through is the host's own.
    let default = match node.attribute("type") {
        Some("hostdev") => "",
        _ => "rtl8139",
    };
    let model = attribute("model", "type").unwrap_or(default);
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
            .unwrap_or("unnamed")
            .to_owned(),
        model: if model.starts_with("virtio") {
            "virtio"
        } else {
            model
        }
        .to_owned(),
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
        Some("mapped") => "mapped-xattr",
        Some("squash") => "none",
        _ => "passthrough",
    };
    (driver != Some("virtiofs")).then(|| (tag, model.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
