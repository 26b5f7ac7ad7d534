//! Elements of a domain's XML. Format: libvirt's `formatdomain.html`.

use super::TwinError;
use roxmltree::{Document, Node};

/// The model of a SCSI controller that libvirt chooses on x86 where the XML names none.
pub(crate) const DEFAULT_CONTROLLER: &str = "lsilogic";

/// The domain of a document.
pub(crate) fn domain<'a>(document: &'a Document<'a>) -> Result<Node<'a, 'a>, TwinError> {
    let root = document.root_element();
    match root.tag_name().name() {
        "domain" => Ok(root),
        // `virsh snapshot-dumpxml`, `virsh save-image-dumpxml` of old releases.
        _ => child(root, "domain")
            .ok_or_else(|| TwinError::Xml(format!("its root is <{}>", root.tag_name().name()))),
    }
}

/// The first child of that name.
pub(crate) fn child<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    node.children()
        .find(|child| child.is_element() && child.tag_name().name() == name)
}

/// The text of an element, without blanks around it.
pub(crate) fn text_of(node: Node<'_, '_>) -> String {
    node.text().unwrap_or_default().trim().to_owned()
}

/// A domain without its secrets, since what a recording keeps may be passed on: the passwords that `virsh dumpxml --security-info`
/// prints, the values of the cookies that `virsh dumpxml` prints of a disk behind HTTP.
pub(crate) fn without_secrets(xml: &str) -> String {
    let Ok(document) = Document::parse(xml) else {
        return xml.to_owned();
    };
    let mut all = Vec::new();
    for node in document.descendants() {
        let passwords = node
            .attributes()
            .filter(|one| one.name() == "passwd")
            .map(|one| one.range());
        all.extend(passwords.map(|range| xml[..range.start].trim_end().len()..range.end));
        if node.tag_name().name() == "cookie" {
            all.extend(node.children().map(|value| value.range()));
        }
    }
    all.sort_by_key(|range| range.start);
    let mut text = xml.to_owned();
    all.into_iter()
        .rev()
        .for_each(|range| text.replace_range(range, ""));
    text
}

/// The memory of a domain, bytes: `<memory unit='KiB'>`.
pub(crate) fn memory_bytes(domain: Node<'_, '_>) -> u64 {
    let Some(memory) = child(domain, "currentMemory").or_else(|| child(domain, "memory")) else {
        return 0;
    };
    let unit: u64 = match memory.attribute("unit").unwrap_or("KiB") {
        "b" | "bytes" => 1,
        "KB" => 1000,
        "MB" => 1_000_000,
        "M" | "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "G" | "GiB" => 1 << 30,
        "TB" => 1_000_000_000_000,
        "T" | "TiB" => 1 << 40,
        // KiB, also where the unit is not known.
        _ => 1 << 10,
    };
    text_of(memory)
        .parse::<u64>()
        .unwrap_or(0)
        .saturating_mul(unit)
}

/// The number of a domain's vCPUs that are there from its start.
pub(crate) fn vcpus(domain: Node<'_, '_>) -> u32 {
    let vcpu = child(domain, "vcpu");
    let count = vcpu.map(|vcpu| {
        vcpu.attribute("current")
            .map_or_else(|| text_of(vcpu), str::to_owned)
    });
    count
        .and_then(|count| count.parse().ok())
        .unwrap_or(1)
        .max(1)
}

/// The architecture of a domain, where that is not x86.
pub(crate) fn foreign_architecture<'a>(domain: Node<'a, 'a>) -> Option<&'a str> {
    child(child(domain, "os")?, "type")?
        .attribute("arch")
        .filter(|arch| !["x86_64", "i686"].contains(arch))
}

/// `<disk>` of a medium.
pub(crate) struct Disk<'a>(pub Node<'a, 'a>);

impl<'a> Disk<'a> {
    /// Returns the target of the disk, as `vda`; `unnamed` without one.
    pub fn name(&self) -> String {
        self.target("dev").unwrap_or("unnamed").to_owned()
    }

    /// Returns the bus of the disk, by libvirt's name.
    pub fn bus(&self) -> &'a str {
        let by_name = || match self.target("dev") {
            Some(name) if name.starts_with("vd") => "virtio",
            Some(name) if name.starts_with("sd") => "scsi",
            _ => "ide",
        };
        self.target("bus").unwrap_or_else(by_name)
    }

    fn target(&self, attribute: &str) -> Option<&'a str> {
        child(self.0, "target")?.attribute(attribute)
    }

    /// Returns the element `<driver>` of the disk.
    pub fn driver(&self) -> Option<Node<'a, 'a>> {
        child(self.0, "driver")
    }

    /// The protocol of storage that is reached over a network.
    pub fn protocol(&self) -> Option<&'a str> {
        child(self.0, "source")?.attribute("protocol")
    }

    /// Returns the limits of the disk with their values, by QEMU's names.
    pub fn limits(&self) -> impl Iterator<Item = (String, String)> {
        child(self.0, "iotune")
            .into_iter()
            .flat_map(|limits| limits.children())
            .filter(Node::is_element)
            .filter_map(|limit| Some((limit_of(limit.tag_name().name())?, text_of(limit))))
    }

    /// The controller of a SCSI disk.
    pub fn controller<'d>(&self, devices: Node<'d, 'd>) -> Option<Node<'d, 'd>> {
        if self.bus() != "scsi" {
            return None;
        }
        let index = child(self.0, "address")
            .and_then(|address| address.attribute("controller"))
            .unwrap_or("0");
        devices.children().find(|node| {
            node.tag_name().name() == "controller"
                && node.attribute("type") == Some("scsi")
                && node.attribute("index").unwrap_or("0") == index
        })
    }

    /// The controller of a SCSI disk, where it is of virtio: no other has virtio's settings.
    pub fn virtio_controller<'d>(&self, devices: Node<'d, 'd>) -> Option<Node<'d, 'd>> {
        let is_virtio = |node: &Node<'_, '_>| {
            node.attribute("model")
                .is_some_and(|model| model.starts_with("virtio"))
        };
        self.controller(devices).filter(is_virtio)
    }
}

/// QEMU's name of a limit of `<iotune>`: `total_bytes_sec_max` is `bps-total-max`.
pub(super) fn limit_of(name: &str) -> Option<String> {
    if name == "size_iops_sec" {
        return Some("iops-size".to_owned());
    }
    let (which, rest) = name.split_once('_')?;
    let which = ["total", "read", "write"]
        .into_iter()
        .find(|known| *known == which)?;
    let (unit, end) = match rest.strip_prefix("bytes_sec") {
        Some(end) => ("bps", end),
        None => ("iops", rest.strip_prefix("iops_sec")?),
    };
    let end = match end {
        "" => "",
        "_max" => "-max",
        "_max_length" => "-max-length",
        _ => return None,
    };
    Some(format!("{unit}-{which}{end}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_removed_and_nothing_else() {
        let xml = "<domain>\n  <graphics type='vnc' passwd='s&gt;cret' port='1'/>\n  <graphics passwd=\"x\"/>\n</domain>";
        let text = without_secrets(xml);
        assert_eq!(
            text,
            "<domain>\n  <graphics type='vnc' port='1'/>\n  <graphics/>\n</domain>"
        );
        assert_eq!(
            (without_secrets(&text), without_secrets("no xml")),
            (text, "no xml".to_owned())
        );
        let cookies = "<domain><source><cookies>\n<cookie name='a'>s&amp;x<!-- s --></cookie>\n<cookie name='b'><![CDATA[s]]></cookie>\n</cookies></source>\
                       <graphics passwd='s'/></domain>";
        let text = without_secrets(cookies);
        let expected = "<domain><source><cookies>\n<cookie name='a'></cookie>\n<cookie name='b'></cookie>\n</cookies></source>\
                        <graphics/></domain>";
        assert_eq!(
            (without_secrets(&text), text.as_str()),
            (text.clone(), expected)
        );
    }

    #[test]
    fn limits_have_qemus_names() {
        assert_eq!(limit_of("total_bytes_sec").as_deref(), Some("bps-total"));
        assert_eq!(
            limit_of("read_iops_sec_max_length").as_deref(),
            Some("iops-read-max-length")
        );
        assert_eq!(limit_of("size_iops_sec").as_deref(), Some("iops-size"));
        assert_eq!(
            (limit_of("group_name"), limit_of("write_bytes_sec_x")),
            (None, None)
        );
    }

    #[test]
    fn a_disk_without_a_bus_has_the_one_of_its_name() {
        for (name, bus) in [("vda", "virtio"), ("sda", "scsi"), ("hda", "ide")] {
            let xml = format!("<disk><target dev='{name}'/></disk>");
            let document = roxmltree::Document::parse(&xml).unwrap();
            assert_eq!(Disk(document.root_element()).bus(), bus, "{name}");
        }
    }
}
