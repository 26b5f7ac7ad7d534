//! The configuration of a domain's XML. Format: libvirt's `formatdomain.html`.

use super::{ConfigurationError, is_windows_name};
use crate::twin::TwinError;
use crate::twin::domain_disk::limit_of;
use crate::twin::domain_xml::memory_bytes;
use crate::twin::xml::{child, domain, text_of};
use roxmltree::{Document, Node};
use vmtax_model::{ConfiguredDisk, ConfiguredNic, Manager, VmConfiguration};

/// The model of a SCSI controller that libvirt chooses on x86 where the XML names none.
const DEFAULT_CONTROLLER: &str = "lsilogic";

pub(super) fn read(xml: &str) -> Result<VmConfiguration, ConfigurationError> {
    let document = Document::parse(xml).map_err(|e| TwinError::Xml(e.to_string()))?;
    let domain = domain(&document)?;
    let name = child(domain, "name").map_or_else(String::new, text_of);
    let mut found = VmConfiguration {
        source: format!("libvirt domain {name}"),
        manager: Some(Manager::Libvirt),
        is_kvm: domain.attribute("type").map(|kind| kind == "kvm"),
        memory: memory_bytes(domain),
        has_huge_pages: child(domain, "memoryBacking")
            .is_some_and(|backing| child(backing, "hugepages").is_some()),
        ..VmConfiguration::default()
    };
    let vcpu = child(domain, "vcpu");
    let count = vcpu.map(|vcpu| {
        vcpu.attribute("current")
            .map_or_else(|| text_of(vcpu), str::to_owned)
    });
    found.cpus = count
        .and_then(|count| count.parse().ok())
        .unwrap_or(1)
        .max(1);
    read_system(domain, &name, &mut found)?;
    read_features(domain, &mut found);
    read_limits(domain, &mut found);
    let devices = child(domain, "devices");
    for device in devices
        .iter()
        .flat_map(Node::children)
        .filter(Node::is_element)
    {
        match device.tag_name().name() {
            "disk" => found.disks.extend(disk(device, devices)),
            "interface" => found.nics.push(nic(device)),
            "input" => {
                found.has_usb_tablet |= device.attribute("type") == Some("tablet")
                    && device.attribute("bus").is_none_or(|bus| bus == "usb");
            }
            "filesystem" => found.shares_9p.extend(share_9p(device)),
            _ => {}
        }
    }
    Ok(found)
}

/// Architecture, machine type and the guest's system.
fn read_system(
    domain: Node<'_, '_>,
    name: &str,
    found: &mut VmConfiguration,
) -> Result<(), ConfigurationError> {
    let kind = child(domain, "os").and_then(|os| child(os, "type"));
    let arch = kind.and_then(|kind| kind.attribute("arch"));
    if let Some(other) = arch.filter(|arch| !["x86_64", "i686"].contains(arch)) {
        return Err(ConfigurationError::Architecture(other.to_owned()));
    }
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
    Ok(())
}

/// CPU, enlightenments and timers.
fn read_features(domain: Node<'_, '_>, found: &mut VmConfiguration) {
    if let Some(cpu) = child(domain, "cpu") {
        found.cpu_model = match cpu.attribute("mode") {
            Some("host-passthrough") => Some("host".to_owned()),
            Some("maximum") => Some("max".to_owned()),
            Some("host-model") => Some("host-model".to_owned()),
            _ => child(cpu, "model")
                .map(text_of)
                .filter(|model| !model.is_empty()),
        };
        let features = cpu
            .children()
            .filter(|node| node.tag_name().name() == "feature");
        for feature in features {
            let is_on = !matches!(feature.attribute("policy"), Some("disable" | "forbid"));
            let name = feature
                .attribute("name")
                .unwrap_or_default()
                .replace('_', "-");
            found.cpu_features.insert(name, is_on);
        }
        let topology = child(cpu, "topology");
        found.sockets = topology.and_then(|topology| topology.attribute("sockets")?.parse().ok());
    }
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
    let timers = child(domain, "clock");
    for timer in timers
        .iter()
        .flat_map(Node::children)
        .filter(Node::is_element)
    {
        let is_present = timer.attribute("present").map(|present| present == "yes");
        match (timer.attribute("name"), is_present) {
            (Some("hpet"), is_present) => found.hpet = is_present,
            (Some("hypervclock"), Some(is_present)) => found
                .enlightenments
                .extend([("time".to_owned(), is_present)]),
            (Some("kvmclock"), Some(is_present)) => found
                .cpu_features
                .extend([("kvmclock".to_owned(), is_present)]),
            _ => {}
        }
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
fn disk(node: Node<'_, '_>, devices: Option<Node<'_, '_>>) -> Option<ConfiguredDisk> {
    let kind = node.attribute("device").unwrap_or("disk");
    if kind != "disk" || child(node, "readonly").is_some() {
        return None;
    }
    let target = child(node, "target");
    let name = target
        .and_then(|target| target.attribute("dev"))
        .unwrap_or("unnamed");
    let by_name = if name.starts_with("vd") {
        "virtio"
    } else if name.starts_with("sd") {
        "scsi"
    } else {
        "ide"
    };
    let bus = target
        .and_then(|target| target.attribute("bus"))
        .unwrap_or(by_name);
    let controller = controller_of(node, devices).filter(|_| bus == "scsi");
    let model = controller.map(|one| one.attribute("model").unwrap_or(DEFAULT_CONTROLLER));
    let bus = match (bus, model) {
        ("virtio", _) => "virtio-blk".to_owned(),
        ("scsi", Some(model)) if !model.starts_with("virtio") => model.to_owned(),
        ("scsi", _) => "virtio-scsi".to_owned(),
        (other, _) => other.to_owned(),
    };
    let driver = child(node, "driver");
    let plain = |name: &str| {
        let value = driver.and_then(|driver| driver.attribute(name));
        value.filter(|value| *value != "default").map(str::to_owned)
    };
    let has_iothread = |driver: Option<Node<'_, '_>>| {
        driver.is_some_and(|driver| {
            driver.has_attribute("iothread") || child(driver, "iothreads").is_some()
        })
    };
    let limits = child(node, "iotune");
    let limits = limits
        .iter()
        .flat_map(Node::children)
        .filter(Node::is_element);
    let source = child(node, "source").and_then(|source| source.attribute("protocol"));
    Some(ConfiguredDisk {
        name: name.to_owned(),
        bus,
        network_storage: source.map(str::to_owned),
        format: Some(plain("type").unwrap_or_else(|| "raw".to_owned())),
        cache: plain("cache").unwrap_or_else(|| "writeback".to_owned()),
        aio: plain("io"),
        has_iothread: has_iothread(driver)
            || has_iothread(controller.and_then(|controller| child(controller, "driver"))),
        limits: limits
            .map(|limit| (limit_of(limit.tag_name().name()), text_of(limit)))
            .filter_map(|(name, value)| Some((name.filter(|_| value != "0")?, value)))
            .collect(),
        is_copied_on_read: plain("copy_on_read").as_deref() == Some("on"),
    })
}

/// The controller of a SCSI disk.
fn controller_of<'a>(disk: Node<'_, '_>, devices: Option<Node<'a, 'a>>) -> Option<Node<'a, 'a>> {
    let index = child(disk, "address").and_then(|address| address.attribute("controller"));
    devices?.children().find(|node| {
        node.tag_name().name() == "controller"
            && node.attribute("type") == Some("scsi")
            && node.attribute("index").unwrap_or("0") == index.unwrap_or("0")
    })
}

fn nic(node: Node<'_, '_>) -> ConfiguredNic {
    let attribute =
        |element: &str, name: &str| child(node, element).and_then(|one| one.attribute(name));
    let model = attribute("model", "type").unwrap_or("rtl8139");
    let backend = node.attribute("type").unwrap_or_default();
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
        assert!(found.has_usb_tablet);
        assert_eq!(
            found.shares_9p,
            [("t".to_owned(), "mapped-xattr".to_owned())]
        );
    }
}
