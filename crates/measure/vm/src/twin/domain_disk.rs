//! The disks of a domain's XML.

use super::definition::{Twin, TwinDisk};
use super::xml::{child, text_of};
use roxmltree::Node;
use std::path::PathBuf;
use vmtax_model::{Setting, SettingPart};

/// The model of a SCSI controller that libvirt chooses on x86 where the XML names none.
const DEFAULT_CONTROLLER: &str = "lsilogic";

/// `<disk>` of a medium that can be written.
pub(super) struct Disk<'a>(Node<'a, 'a>);

/// The disks that a twin can have.
pub(super) fn disks<'a>(devices: Node<'a, 'a>, twin: &mut Twin) -> Vec<Disk<'a>> {
    let mut all = Vec::new();
    for node in devices
        .children()
        .filter(|node| node.tag_name().name() == "disk")
    {
        let disk = Disk(node);
        let kind = node.attribute("device").unwrap_or("disk");
        let source = node.attribute("type").unwrap_or("file");
        let protocol = child(node, "source").and_then(|source| source.attribute("protocol"));
        let protocol = protocol.map_or(String::new(), |protocol| format!(" ({protocol})"));
        if kind == "lun" {
            twin.lacks(format!(
                "disk {}: a SCSI LUN that is passed through",
                disk.name()
            ));
        } else if kind != "disk" || child(node, "readonly").is_some() {
            twin.lacks(format!(
                "disk {} ({kind}): it is read-only or removable",
                disk.name()
            ));
        } else if !["file", "block", "volume"].contains(&source) {
            twin.lacks(format!(
                "disk {}: its source is of the type {source}{protocol}",
                disk.name()
            ));
        } else if !["virtio", "scsi", "sata", "ide", "nvme"].contains(&disk.bus()) {
            twin.lacks(format!("disk {}: its bus is {}", disk.name(), disk.bus()));
        } else {
            all.push(disk);
        }
    }
    all
}

impl<'a> Disk<'a> {
    /// Returns the target of the disk, as `vda`; `unnamed` without one.
    pub fn name(&self) -> String {
        child(self.0, "target")
            .and_then(|target| target.attribute("dev"))
            .unwrap_or("unnamed")
            .to_owned()
    }

    /// Returns the bus of the disk, by libvirt's name.
    pub fn bus(&self) -> &'a str {
        let target = child(self.0, "target");
        let named = target.and_then(|target| target.attribute("bus"));
        let by_name = || match target.and_then(|target| target.attribute("dev")) {
            Some(name) if name.starts_with("vd") => "virtio",
            Some(name) if name.starts_with("sd") => "scsi",
            _ => "ide",
        };
        named.unwrap_or_else(by_name)
    }

    /// Returns the element `<driver>` of the disk.
    pub fn driver(&self) -> Option<Node<'a, 'a>> {
        child(self.0, "driver")
    }

    /// The element itself.
    pub fn node(&self) -> Node<'a, 'a> {
        self.0
    }

    /// Reads it into the twin.
    pub fn read<'d>(&self, devices: Node<'d, 'd>, twin: &mut Twin) {
        twin.disk = TwinDisk {
            name: self.name(),
            ..TwinDisk::default()
        };
        let disk = &mut twin.disk;
        let source = child(self.0, "source");
        disk.file = source
            .and_then(|s| s.attribute("file").or(s.attribute("dev")))
            .map(PathBuf::from);
        disk.set("cache", "writeback");
        disk.set("aio", "threads");
        match self.bus() {
            "scsi" => disk.set("bus", "virtio-scsi"),
            "nvme" => disk.set("bus", "nvme"),
            "sata" => disk.set("bus", "sata"),
            "ide" => disk.set("bus", "ide"),
            _ => {}
        }
        if let Some(driver) = self.driver() {
            read_driver(twin, driver);
        }
        if self.bus() == "scsi" {
            match self.virtio_controller(devices) {
                Some(controller) => child(controller, "driver")
                    .into_iter()
                    .for_each(|driver| read_driver(twin, driver)),
                None => {
                    let model = self
                        .controller(devices)
                        .and_then(|controller| controller.attribute("model"));
                    let model = model
                        .filter(|model| *model != "auto")
                        .unwrap_or(DEFAULT_CONTROLLER);
                    twin.lacks(format!("SCSI controller {model}: virtio-scsi in its place"));
                }
            }
        }
        if child(self.0, "backingStore").is_some_and(|backing| backing.has_children()) {
            twin.lacks("backing image: the scratch image has none");
        }
        for limit in child(self.0, "iotune")
            .iter()
            .flat_map(Node::children)
            .filter(Node::is_element)
        {
            if let Some(name) = limit_of(limit.tag_name().name()) {
                twin.disk.set(&format!("throttling.{name}"), text_of(limit));
            }
        }
        if let Some(block) = child(self.0, "blockio") {
            for name in ["logical_block_size", "physical_block_size"] {
                if let Some(size) = block.attribute(name) {
                    twin.disk.set(name, size);
                }
            }
        }
        for name in ["encryption", "mirror", "throttlefilters"] {
            let has = |node: Node<'_, '_>| child(node, name).is_some();
            if has(self.0) || source.is_some_and(has) {
                twin.lacks(format!("<{name}> of disk {}", self.name()));
            }
        }
    }

    /// The controller of a SCSI disk, where it is of virtio: no other has virtio's settings.
    pub fn virtio_controller<'d>(&self, devices: Node<'d, 'd>) -> Option<Node<'d, 'd>> {
        let is_virtio = |node: &Node<'_, '_>| {
            node.attribute("model")
                .is_some_and(|model| model.starts_with("virtio"))
        };
        self.controller(devices).filter(is_virtio)
    }

    /// The controller of a SCSI disk.
    fn controller<'d>(&self, devices: Node<'d, 'd>) -> Option<Node<'d, 'd>> {
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
}

/// The attributes of a `<driver>`.
fn read_driver(twin: &mut Twin, driver: Node<'_, '_>) {
    let plain = |name: &str| {
        driver
            .attribute(name)
            .filter(|value| !value.is_empty() && *value != "default")
    };
    match plain("type") {
        Some("qcow2") => twin.disk.set("format", "qcow2"),
        Some("raw") | None => {}
        Some(other) => twin.lacks(format!("image format {other}: raw in its place")),
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
            twin.lacks("<iothreads> of the disk: the twin has one iothread");
        }
    }
    let size = child(driver, "metadata_cache").and_then(|cache| child(cache, "max_size"));
    if let Some(size) = size.filter(|size| matches!(size.attribute("unit"), None | Some("bytes"))) {
        twin.disk.set("cache-size", text_of(size));
    }
}

/// QEMU's name of a limit of `<iotune>`: `total_bytes_sec_max` is `bps-total-max`.
pub(crate) fn limit_of(name: &str) -> Option<String> {
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
    use super::{Disk, limit_of};

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
