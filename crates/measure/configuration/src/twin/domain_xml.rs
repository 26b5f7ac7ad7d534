//! Elements of a domain's XML. Format: libvirt's `formatdomain.html`.

use super::TwinError;
use roxmltree::{Document, Node};
use std::collections::BTreeMap;

/// The model of a SCSI controller that libvirt chooses on x86 where the XML names none.
pub(crate) const DEFAULT_CONTROLLER: &str = "lsilogic";

/// More attributes, or declarations of name spaces, in an element or domain are none of libvirt's, and take time that grows with
/// the square of their number.
const MAX_ATTRIBUTES: usize = 500;

/// Parses a domain's XML.
///
/// # Errors
/// [`TwinError::Xml`] for a text that is no XML, or has more than 500 attributes in an element or name spaces in all.
pub(crate) fn parse(xml: &str) -> Result<Document<'_>, TwinError> {
    let begins_value = |(_, rest): &(&str, &str)| rest.trim_start().starts_with(['"', '\'']);
    let is_wide = |element: &str| {
        let mut signs = element
            .match_indices('=')
            .filter(|(at, _)| begins_value(&element.split_at(at + 1)));
        signs.nth(MAX_ATTRIBUTES).is_some()
    };
    if xml.split('<').any(is_wide) || xml.matches("xmlns").nth(MAX_ATTRIBUTES).is_some() {
        let why = format!("it has more than {MAX_ATTRIBUTES} attributes in an element");
        return Err(TwinError::Xml(why));
    }
    Document::parse(xml).map_err(|e| TwinError::Xml(e.to_string()))
}

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

/// Returns true if KVM runs a domain, false if TCG does; `None` for another hypervisor.
pub(crate) fn is_kvm(domain: Node<'_, '_>) -> Option<bool> {
    match domain.attribute("type")? {
        "kvm" => Some(true),
        "qemu" => Some(false),
        _ => None,
    }
}

/// The memory that a domain starts with, bytes: that of its NUMA cells where they have some, with its DIMMs and without its
/// persistent memory. libvirt starts QEMU with whole MiB.
pub(crate) fn memory_bytes(domain: Node<'_, '_>) -> u64 {
    let bytes = |text: &str, unit: Option<&str>| {
        let count = text.trim().parse::<u64>().unwrap_or(0);
        count.saturating_mul(unit_bytes(unit))
    };
    let size = |node: Node<'_, '_>| bytes(&text_of(node), node.attribute("unit"));
    let in_whole_mib = |bytes: u64| bytes.div_ceil(1 << 20).saturating_mul(1 << 20);
    let cells = child(domain, "cpu").and_then(|cpu| child(cpu, "numa"));
    let cells = cells.iter().flat_map(Node::children);
    let of_cells = cells
        .filter_map(|cell| Some(bytes(cell.attribute("memory")?, cell.attribute("unit"))))
        .map(in_whole_mib)
        .fold(0, u64::saturating_add);
    let mut plugged = 0u64;
    let mut initial = child(domain, "memory").map_or(0, size);
    let devices = child(domain, "devices");
    let devices = devices.iter().flat_map(Node::children);
    for device in devices.filter(|node| node.tag_name().name() == "memory") {
        let target = child(device, "target");
        let of_target = |name: &str| target.and_then(|one| child(one, name)).map_or(0, size);
        initial = initial.saturating_sub(of_target("size"));
        plugged = plugged.saturating_add(match device.attribute("model") {
            // They have an alignment of their own.
            Some("dimm") => of_target("size").div_ceil(2 << 20).saturating_mul(2 << 20),
            Some("virtio-mem") => of_target("requested"),
            _ => 0,
        });
    }
    let initial = match of_cells {
        0 => in_whole_mib(initial),
        cells => cells,
    };
    initial.saturating_add(plugged)
}

/// The memory that the balloon leaves the guest, bytes, where that is less than it starts with.
pub(crate) fn ballooned_bytes(domain: Node<'_, '_>) -> Option<u64> {
    let current = child(domain, "currentMemory")?;
    let count = text_of(current).parse::<u64>().ok()?;
    let bytes = count.saturating_mul(unit_bytes(current.attribute("unit")));
    (bytes.div_ceil(1 << 20) < memory_bytes(domain) >> 20).then_some(bytes)
}

/// The bytes of a unit of libvirt's; KiB also where it is not known.
fn unit_bytes(unit: Option<&str>) -> u64 {
    match unit.unwrap_or("KiB") {
        "b" | "bytes" => 1,
        "KB" => 1000,
        "MB" => 1_000_000,
        "M" | "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "G" | "GiB" => 1 << 30,
        "TB" => 1_000_000_000_000,
        "T" | "TiB" => 1 << 40,
        _ => 1 << 10,
    }
}

/// The number of a domain's vCPUs that are there from its start.
pub(crate) fn vcpus(domain: Node<'_, '_>) -> u32 {
    let current = child(domain, "vcpu").and_then(|vcpu| vcpu.attribute("current")?.parse().ok());
    current.unwrap_or_else(|| max_vcpus(domain)).max(1)
}

/// The number of vCPUs that a domain may have.
pub(crate) fn max_vcpus(domain: Node<'_, '_>) -> u32 {
    let vcpu = child(domain, "vcpu").and_then(|vcpu| text_of(vcpu).parse().ok());
    vcpu.unwrap_or(1)
}

/// The architecture of a domain, where that is not x86.
pub(crate) fn foreign_architecture<'a>(domain: Node<'a, 'a>) -> Option<&'a str> {
    child(child(domain, "os")?, "type")?
        .attribute("arch")
        .filter(|arch| !["x86_64", "i686"].contains(arch))
}

/// The number of an element among those of its name beside it, from 1.
pub(crate) fn number_among_siblings(node: Node<'_, '_>) -> usize {
    let is_same = |other: &Node<'_, '_>| other.tag_name() == node.tag_name();
    1 + node.prev_siblings().skip(1).filter(is_same).count()
}

/// `<disk>` of a medium.
pub(crate) struct Disk<'a>(pub Node<'a, 'a>);

impl<'a> Disk<'a> {
    /// Returns the target of the disk, as `vda`; without one its number, as `disk 1`.
    pub fn name(&self) -> String {
        let number = || format!("disk {}", number_among_siblings(self.0));
        self.target("dev").map_or_else(number, str::to_owned)
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

    /// Returns the disk's mode of caching, by QEMU's name. libvirt has QEMU bypass the page cache where several VMs use the disk.
    pub fn cache(&self) -> &'a str {
        let given = self.driver().and_then(|driver| driver.attribute("cache"));
        let is_shared = child(self.0, "shareable").is_some();
        given
            .filter(|cache| *cache != "default")
            .unwrap_or(if is_shared { "none" } else { "writeback" })
    }

    /// Returns the limits of the disk with their values, by QEMU's names.
    pub fn limits(&self) -> impl Iterator<Item = (String, String)> {
        limits_in(child(self.0, "iotune"))
    }

    /// Returns the names of the throttle groups that the disk's requests pass, the last of which is the guest's next.
    pub fn throttle_groups(&self) -> impl Iterator<Item = &'a str> {
        let filters = child(self.0, "throttlefilters").into_iter();
        filters
            .flat_map(|filters| filters.children())
            .filter_map(|filter| filter.attribute("group"))
    }
}

/// The SCSI controllers of a domain by their indexes; of several with one index the first.
pub(crate) struct ScsiControllers<'a>(BTreeMap<&'a str, Node<'a, 'a>>);

impl<'a> ScsiControllers<'a> {
    /// Reads them among the devices of a domain.
    pub fn of(devices: Node<'a, 'a>) -> ScsiControllers<'a> {
        let is_scsi = |node: &Node<'_, '_>| {
            node.tag_name().name() == "controller" && node.attribute("type") == Some("scsi")
        };
        let mut all = BTreeMap::new();
        for node in devices.children().filter(is_scsi) {
            let index = node.attribute("index").unwrap_or("0");
            all.entry(index).or_insert(node);
        }
        ScsiControllers(all)
    }

    /// The controller of a SCSI disk.
    pub fn of_disk(&self, disk: &Disk<'_>) -> Option<Node<'a, 'a>> {
        if disk.bus() != "scsi" {
            return None;
        }
        let index = child(disk.0, "address")
            .and_then(|address| address.attribute("controller"))
            .unwrap_or("0");
        self.0.get(index).copied()
    }

    /// The controller of a SCSI disk, where it is of virtio: no other has virtio's settings.
    pub fn virtio_of_disk(&self, disk: &Disk<'_>) -> Option<Node<'a, 'a>> {
        let is_virtio = |node: &Node<'_, '_>| {
            node.attribute("model")
                .is_some_and(|model| model.starts_with("virtio"))
        };
        self.of_disk(disk).filter(is_virtio)
    }
}

/// Limits by QEMU's names.
pub(crate) type Limits = Vec<(String, String)>;

/// The limits of the domain's throttle groups, by the groups' names.
pub(crate) fn throttle_groups(domain: Node<'_, '_>) -> BTreeMap<String, Limits> {
    let groups = child(domain, "throttlegroups");
    let groups = groups.iter().flat_map(Node::children);
    let named = groups.filter_map(|group| {
        let limits = limits_in(Some(group)).filter(|(_, value)| value != "0");
        Some((text_of(child(group, "group_name")?), limits.collect()))
    });
    named.collect()
}

/// The limits that an element has, by QEMU's names.
fn limits_in<'a>(element: Option<Node<'a, 'a>>) -> impl Iterator<Item = (String, String)> {
    let limits = element.into_iter().flat_map(|limits| limits.children());
    limits
        .filter(Node::is_element)
        .filter_map(|limit| Some((limit_of(limit.tag_name().name())?, text_of(limit))))
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
    fn memory_is_what_the_domain_starts_with() {
        let memory_of = |rest: &str| {
            let xml =
                format!("<domain type='kvm'><memory unit='KiB'>2096641</memory>{rest}</domain>");
            let document = Document::parse(&xml).unwrap();
            let domain = document.root_element();
            (
                memory_bytes(domain) >> 20,
                ballooned_bytes(domain).map(|bytes| bytes >> 20),
            )
        };
        assert_eq!(memory_of(""), (2048, None), "whole MiB");
        assert_eq!(
            memory_of("<currentMemory>1048576</currentMemory>"),
            (2048, Some(1024))
        );
        assert_eq!(
            memory_of("<currentMemory>2096641</currentMemory>"),
            (2048, None)
        );
        let cells = "<cpu><numa><cell memory='3' unit='GiB'/><cell memory='1048576'/></numa></cpu>";
        assert_eq!(memory_of(cells), (4096, None));
        let device = |model: &str, sizes: &str| {
            format!("<devices><memory model='{model}'><target>{sizes}</target></memory></devices>")
        };
        let dimm = device("dimm", "<size unit='MiB'>511</size>");
        assert_eq!(memory_of(&dimm), (1537 + 512, None));
        assert_eq!(memory_of(&format!("{cells}{dimm}")), (4096 + 512, None));
        assert_eq!(
            memory_of(&device("nvdimm", "<size unit='MiB'>1024</size>")),
            (1024, None)
        );
        let virtio = device(
            "virtio-mem",
            "<size unit='MiB'>1024</size><requested unit='MiB'>256</requested>",
        );
        assert_eq!(memory_of(&virtio), (1024 + 256, None));
        assert_eq!(
            memory_of("<cpu><numa><cell memory='18446744073709551615' unit='TiB'/></numa></cpu>").0,
            u64::MAX >> 20
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
