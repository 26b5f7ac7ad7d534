//! The block devices of a QEMU's command line: from the guest's devices through drives and block nodes down to the files.

use super::arguments::{Arguments, Properties, is_on};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Chains of more nodes are not followed.
const MAX_NODES: usize = 8;
/// Options of more parts, as `file.cache.direct` has three, are of nodes that are not followed.
const MAX_PARTS: usize = 2 * MAX_NODES;
/// Options of a node that name others.
const OTHERS: [&str; 4] = ["file", "image", "backing", "data-file"];
/// Drivers of what has a path on the host.
const FILES: [&str; 3] = ["file", "host_device", "host_cdrom"];
/// Drivers of image formats, beside raw. All other nodes above a file are filters.
const FORMATS: [&str; 12] = [
    "qcow2",
    "bochs",
    "cloop",
    "dmg",
    "luks",
    "parallels",
    "qcow",
    "qed",
    "vdi",
    "vhdx",
    "vmdk",
    "vpc",
];
/// Driver of a name that begins as JSON and is none.
const UNREAD: &str = "json";
/// Options with an image's file alone, and the interface to which QEMU attaches it.
const SHORT: [(&str, &str); 9] = [
    ("hda", "ide"),
    ("hdb", "ide"),
    ("hdc", "ide"),
    ("hdd", "ide"),
    ("cdrom", "cdrom"),
    ("fda", "floppy"),
    ("fdb", "floppy"),
    ("mtdblock", "mtd"),
    ("sd", "sd"),
];
/// SCSI controllers, by the begin of their names.
const SCSI_CONTROLLERS: [&str; 8] = [
    "virtio-scsi",
    "am53c974",
    "dc390",
    "esp",
    "lsi53c",
    "megasas",
    "mptsas",
    "pvscsi",
];

/// The block devices of a command line.
#[derive(Debug, Default)]
pub struct BlockGraph {
    nodes: Vec<Node>,
    by_name: BTreeMap<String, usize>,
    by_drive: BTreeMap<String, usize>,
    /// The nodes on which no other stands, in order.
    tops: Vec<usize>,
    /// The objects that `-object` makes, by ID.
    objects: BTreeMap<String, Properties>,
    devices: Vec<Properties>,
    disks: Vec<GuestDisk>,
    /// True for a machine type whose own controller of IDE's buses is AHCI.
    has_ahci: bool,
}

/// A block node.
#[derive(Debug)]
struct Node {
    /// Options of the node itself, by the names that `-blockdev` has.
    options: Properties,
    /// The node within which it is written: that gives it options that it does not have itself.
    parent: Option<usize>,
    /// The nodes that are written within it, with the option that has each.
    within: Vec<(String, usize)>,
    /// True for a `-drive`: QEMU finds the format of its file where it names none.
    is_drive: bool,
}

/// A disk of the guest, or another drive.
#[derive(Debug)]
pub struct GuestDisk {
    /// ID of its device, else of its drive.
    pub name: String,
    /// Interface of a drive for which QEMU makes the device, as `virtio`; `cdrom` for such a medium; `None` with a device.
    pub interface: Option<String>,
    /// The device, and the controller of a SCSI disk or an NVMe namespace, by their places among the devices.
    devices: [Option<usize>; 2],
    /// The first of its nodes; `None` where the command line has none of that name.
    top: Option<usize>,
}

/// Place of a disk's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// File or device of the host.
    File(PathBuf),
    /// QEMU's driver of what has no path, as `rbd`. The address is not kept: keys and passwords may be part of it.
    Driver(String),
}

impl Storage {
    /// Returns the path; the driver, as `null-co://`, of what has none.
    pub fn name(self) -> PathBuf {
        match self {
            Storage::File(path) => path,
            Storage::Driver(driver) => format!("{driver}://").into(),
        }
    }
}

/// A block node with those beneath it, down to the one that has the data.
#[derive(Debug, Clone)]
pub struct Chain<'a> {
    nodes: Vec<&'a Node>,
    graph: &'a BlockGraph,
    /// False where a node is missing, or there are too many.
    is_whole: bool,
}

impl BlockGraph {
    /// Reads the block devices of a command line.
    pub fn of(arguments: &Arguments) -> BlockGraph {
        let machine = arguments.machine_type();
        let mut graph = BlockGraph {
            has_ahci: machine.is_some_and(|name| name.contains("q35")),
            ..BlockGraph::default()
        };
        let (mut drives, mut short) = (Vec::new(), Vec::new());
        for (option, value) in arguments.options() {
            match option {
                "blockdev" => {
                    graph.add(&Properties::parse(value).with_first("driver"), false);
                }
                "drive" => drives.push(graph.add_drive(&Properties::parse(value))),
                "device" => {
                    let device = Properties::parse(value).with_first("driver");
                    graph.devices.push(device);
                }
                "object" => {
                    let object = Properties::parse(value).with_first("qom-type");
                    let id = object.get("id").unwrap_or_default().to_owned();
                    graph.objects.entry(id).or_insert(object);
                }
                _ => {
                    for (name, interface) in SHORT.iter().filter(|(name, _)| *name == option) {
                        let mut drive = Properties::default();
                        drive.push("id", *name);
                        drive.push("if", *interface);
                        drive.push("file", value);
                        short.push(graph.add_drive(&drive));
                    }
                }
            }
        }
        drives.append(&mut short);
        graph.find_devices();
        graph.find_drives(&drives);
        graph.tops = graph.find_tops();
        graph
    }

    /// Reads the name that QEMU gives an image: a path, an address, or `json:` with the options of its nodes.
    pub fn of_name(name: &str) -> BlockGraph {
        let mut graph = BlockGraph::default();
        graph.add(&opened(name), false);
        graph.tops = graph.find_tops();
        graph
    }

    /// The guest's disks, those with a device first, and drives that are no disks.
    pub fn disks(&self) -> &[GuestDisk] {
        &self.disks
    }

    /// The chains that begin at a node on which no other stands, in order.
    pub fn chains(&self) -> impl Iterator<Item = Chain<'_>> {
        self.tops.iter().map(|top| self.chain(*top))
    }

    /// The chain of a disk.
    pub fn of_disk(&self, disk: &GuestDisk) -> Option<Chain<'_>> {
        disk.top.map(|top| self.chain(top))
    }

    /// The chain that begins at a node of this name.
    pub fn of_node(&self, name: &str) -> Option<Chain<'_>> {
        self.by_name.get(name).map(|top| self.chain(*top))
    }

    /// The chain that ends at a file with one of these names.
    pub fn of_file(&self, names: &[String]) -> Option<Chain<'_>> {
        self.chains().find(|chain| chain.has_file(names))
    }

    /// The disk of the guest on a file with one of these names.
    pub fn disk_of_file(&self, names: &[String]) -> Option<&GuestDisk> {
        let is_on = |disk: &&GuestDisk| self.of_disk(disk).is_some_and(|one| one.has_file(names));
        self.disks.iter().find(is_on)
    }

    /// The device of a disk and its controller, where the command line has them.
    pub fn devices_of(&self, disk: &GuestDisk) -> [Option<&Properties>; 2] {
        disk.devices.map(|place| self.devices.get(place?))
    }

    /// Returns the bus of a disk on the machine type's own controller.
    pub fn own_bus(&self) -> &'static str {
        if self.has_ahci { "sata" } else { "ide" }
    }

    /// The properties of an object that `-object` makes.
    pub fn object(&self, id: &str) -> Option<&Properties> {
        self.objects.get(id)
    }

    fn add_drive(&mut self, drive: &Properties) -> usize {
        let top = self.add(&drive_options(drive), true);
        if let Some(id) = drive.get("id") {
            self.by_drive.entry(id.to_owned()).or_insert(top);
        }
        top
    }

    /// Adds a node with those that are written within it, and returns its place.
    fn add(&mut self, options: &Properties, is_drive: bool) -> usize {
        let top = self.nodes.len();
        let is_near = |(key, _): &(&str, &str)| key.split('.').nth(MAX_PARTS).is_none();
        let inner = options.all().filter(is_near).filter_map(|(key, _)| {
            let (place, option) = key.rsplit_once('.')?;
            ["driver", "filename", "node-name"]
                .contains(&option)
                .then_some(place)
        });
        // `file` of `file.driver`, `file.file` of `file.file.driver`: sorted, each is behind the one that has it.
        let inner: BTreeSet<&str> = inner.filter(|place| !place.is_empty()).collect();
        let places: BTreeMap<&str, usize> = inner.into_iter().zip(top + 1..).collect();
        self.nodes.push(Node::new(None, is_drive));
        for (place, at) in &places {
            let (parent, key) = innermost(&places, place).unwrap_or((top, place));
            self.nodes.push(Node::new(Some(parent), false));
            self.nodes[parent].within.push((key.to_owned(), *at));
        }
        for (key, value) in options.all().filter(is_near) {
            let (node, key) = innermost(&places, key).unwrap_or((top, key));
            self.nodes[node].options.push(key, value);
        }
        for (node, at) in self.nodes[top..].iter().zip(top..) {
            if let Some(name) = node.options.get("node-name") {
                self.by_name.entry(name.to_owned()).or_insert(at);
            }
        }
        top
    }

    /// Finds the disks that have a device.
    fn find_devices(&mut self) {
        let with_place = (0..).zip(&self.devices);
        let by_id: BTreeMap<&str, usize> = with_place
            .filter_map(|(place, device)| Some((device.get("id")?, place)))
            .collect();
        // The name of a bus is the controller's ID, mostly with a number.
        let of_bus = |bus: &str| {
            let id = bus.rsplit_once('.').map_or(bus, |(id, _)| id);
            by_id.get(bus).or(by_id.get(id)).copied()
        };
        // Without a bus the controller is the last before the disk.
        let (mut scsi, mut nvme) = (None, None);
        for (place, device) in self.devices.iter().enumerate() {
            let driver = device.get("driver").unwrap_or_default();
            if SCSI_CONTROLLERS.iter().any(|one| driver.starts_with(one)) {
                scsi = Some(place);
            } else if driver == "nvme" {
                nvme = Some(place);
            }
            let controller = match driver {
                "nvme-ns" => device.get("bus").map_or(nvme, of_bus),
                _ if driver.starts_with("scsi-") => device.get("bus").map_or(scsi, of_bus),
                _ => None,
            };
            let on_drive = |drive: &str| GuestDisk {
                name: device.get("id").unwrap_or(drive).to_owned(),
                interface: None,
                devices: [Some(place), controller],
                top: (self.by_drive.get(drive).or(self.by_name.get(drive))).copied(),
            };
            self.disks.extend(device.get("drive").map(on_drive));
        }
    }

    /// Finds the disks that have a drive alone.
    fn find_drives(&mut self, drives: &[usize]) {
        let served = self.devices.iter().filter_map(|device| device.get("drive"));
        let served: BTreeSet<&str> = served.collect();
        for (number, top) in drives.iter().enumerate() {
            let drive = &self.nodes[*top].options;
            let id = drive.get("id");
            let is_served = id.is_some_and(|id| served.contains(id));
            let name = id.map_or_else(|| format!("drive{number}"), str::to_owned);
            let of_medium = drive.get("media").filter(|media| *media == "cdrom");
            let interface = of_medium.or(drive.get("if")).unwrap_or("ide");
            if !is_served {
                self.disks.push(GuestDisk {
                    name,
                    interface: Some(interface.to_owned()),
                    devices: [None, None],
                    top: Some(*top),
                });
            }
        }
    }

    fn find_tops(&self) -> Vec<usize> {
        let below = |node| OTHERS.iter().filter_map(move |key| self.child(node, key));
        let below: BTreeSet<usize> = self.nodes.iter().flat_map(below).collect();
        let is_top = |at: &usize| self.nodes[*at].parent.is_none() && !below.contains(at);
        (0..self.nodes.len()).filter(is_top).collect()
    }

    /// The node that an option names, or has within.
    fn child(&self, node: &Node, key: &str) -> Option<usize> {
        let within = node.within.iter().find(|(own, _)| own == key);
        let named = || {
            let name = node.options.get(key)?;
            self.by_name.get(name).or(self.by_drive.get(name))
        };
        within.map(|(_, at)| at).or_else(named).copied()
    }

    fn chain(&self, top: usize) -> Chain<'_> {
        let mut chain = Chain {
            nodes: Vec::new(),
            graph: self,
            is_whole: true,
        };
        let mut next = Some(top);
        while let Some(node) = next.and_then(|at| self.nodes.get(at)) {
            chain.nodes.push(node);
            let key = node.data_option();
            let is_above =
                node.options.get(key).is_some() || node.within.iter().any(|(own, _)| own == key);
            let is_followed = is_above && chain.nodes.len() < MAX_NODES;
            next = self.child(node, key).filter(|_| is_followed);
            chain.is_whole = is_above == next.is_some();
        }
        chain
    }
}

impl Node {
    fn new(parent: Option<usize>, is_drive: bool) -> Node {
        Node {
            options: Properties::default(),
            parent,
            within: Vec::new(),
            is_drive,
        }
    }

    fn driver(&self) -> Option<&str> {
        self.options.get("driver")
    }

    /// The option that names the node beneath with the data, or has it within.
    fn data_option(&self) -> &'static str {
        match self.driver() {
            Some("blkdebug" | "blkreplay") => "image",
            _ => "file",
        }
    }
}

impl<'a> Chain<'a> {
    /// The place of the data; `None` where no chain leads to it.
    pub fn storage(&self) -> Option<Storage> {
        let last = self.nodes.last().filter(|_| self.is_whole)?;
        match (last.driver(), last.options.get("filename")) {
            (None, file) => Some(Storage::File(file?.into())),
            (Some(driver), Some(file)) if FILES.contains(&driver) => {
                Some(Storage::File(file.into()))
            }
            (Some("raw"), _) => None,
            (Some(driver), _) => (!FORMATS.contains(&driver) && !FILES.contains(&driver))
                .then(|| Storage::Driver(driver.to_owned())),
        }
    }

    /// Returns true if the data is in a file that has one of these names.
    pub fn has_file(&self, names: &[String]) -> bool {
        let Some(Storage::File(file)) = self.storage() else {
            return false;
        };
        names.iter().any(|name| file.as_os_str() == name.as_str())
    }

    /// The format of the image, raw where no node has one; `None` where QEMU finds it in the file.
    pub fn format(&self) -> Option<&'a str> {
        match self.image() {
            Some(node) => node.driver(),
            None => self.is_whole.then_some("raw"),
        }
    }

    /// The options of the node that reads the image's format, where that is not raw.
    pub fn image_options(&self) -> Option<&'a Properties> {
        self.image().map(|node| &node.options)
    }

    fn image(&self) -> Option<&'a Node> {
        let is_image = |node: &&&Node| match node.driver() {
            Some(driver) => FORMATS.contains(&driver),
            None => node.is_drive,
        };
        self.nodes.iter().find(is_image).copied()
    }

    /// Returns true if the guest's disk is a part of a raw image.
    pub fn has_offset(&self) -> bool {
        let mut offsets = self
            .nodes
            .iter()
            .filter_map(|node| node.options.get("offset"));
        offsets.any(|offset| offset != "0")
    }

    /// A switch of the node that has the data.
    pub fn switch(&self, key: &str) -> Option<bool> {
        self.of_file(key).and_then(is_on)
    }

    /// An option of the node that has the data: its own, else that of the node within which it is written.
    pub fn of_file(&self, key: &str) -> Option<&'a str> {
        let parent = |node: &&'a Node| self.graph.nodes.get(node.parent?);
        std::iter::successors(self.nodes.last().copied(), parent)
            .find_map(|node| node.options.get(key))
    }

    /// Returns true if what the guest discards is discarded in the file: each node asks for it, one that is written within
    /// another unless it says otherwise.
    pub fn discards(&self) -> bool {
        self.nodes.iter().all(|node| {
            let given = node.options.get("discard");
            given.map_or(node.parent.is_some(), |given| {
                ["unmap", "on"].contains(&given)
            })
        })
    }

    /// Returns true if one of its nodes may not be written, so that the disk may not.
    pub fn is_read_only(&self) -> bool {
        let mut given = self
            .nodes
            .iter()
            .filter_map(|node| node.options.get("read-only"));
        given.any(|value| is_on(value) == Some(true))
    }

    /// The IDs of the throttle groups of its filters, from the top.
    pub fn throttle_groups(&self) -> impl Iterator<Item = &'a str> {
        let nodes = self.nodes.iter();
        nodes.filter_map(|node| node.options.get("throttle-group"))
    }

    /// The drivers of filters, from the top.
    pub fn filters(&self) -> impl Iterator<Item = &'a str> {
        let above = self.nodes.split_last().map_or(&[][..], |(_, above)| above);
        let drivers = above.iter().filter_map(|node| node.driver());
        drivers.filter(|driver| *driver != "raw" && !FORMATS.contains(driver))
    }

    /// The options of all nodes, from the top; of nodes beside the chain their place alone.
    pub fn options(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.nodes.iter().flat_map(|node| {
            let beside = node.within.iter().map(|(key, _)| (key.as_str(), ""));
            let beside = beside.filter(|(key, _)| *key != node.data_option());
            node.options.all().chain(beside)
        })
    }
}

/// The innermost of these places that a key is in, with the rest of the key.
fn innermost<'k>(places: &BTreeMap<&str, usize>, key: &'k str) -> Option<(usize, &'k str)> {
    key.rmatch_indices('.')
        .find_map(|(dot, _)| Some((*places.get(&key[..dot])?, &key[dot + 1..])))
}

/// The options of the node that opens an image by its name.
fn opened(name: &str) -> Properties {
    let mut options = Properties::default();
    if let Some(json) = name.strip_prefix("json:") {
        // QEMU cuts long names.
        return Properties::of_json(json).unwrap_or_else(|| {
            options.push("driver", UNREAD);
            options
        });
    }
    // A colon is part of a path behind a slash.
    match name
        .split_once(':')
        .filter(|(scheme, _)| !scheme.contains('/'))
    {
        Some((scheme, path)) => {
            options.push("driver", scheme);
            if FILES.contains(&scheme) {
                options.push("filename", path);
            }
        }
        None => options.push("filename", name),
    }
    options
}

/// The options of a `-drive` as `-blockdev` has them.
fn drive_options(drive: &Properties) -> Properties {
    // Of two options the last counts.
    let (mut all, mut specific) = (Properties::default(), Properties::default());
    let driver = drive.get("driver").or(drive.get("format"));
    let is_file = driver.is_some_and(|driver| FILES.contains(&driver));
    // A comma may be the last.
    let given = drive.all().filter(|property| *property != ("", ""));
    for (key, value) in given {
        // A word alone is a switch.
        let (key, value) = if key.is_empty() {
            (value, "on")
        } else {
            (key, value)
        };
        match key {
            "file" => {
                let opened = opened(value);
                let is_json = value.starts_with("json:") && opened.get("driver") != Some(UNREAD);
                let place = if is_file || is_json { "" } else { "file." };
                for (key, value) in opened.all() {
                    all.push(format!("{place}{key}"), value);
                }
            }
            "cache" => cache_mode(value, &mut all),
            "format" => specific.push("driver", value),
            "readonly" => specific.push("read-only", value),
            "group" => specific.push("throttling.group", value),
            key => match limit(key) {
                Some(limit) => specific.push(format!("throttling.{limit}"), value),
                None => specific.push(key, value),
            },
        }
    }
    specific.all().for_each(|(key, value)| all.push(key, value));
    all
}

/// QEMU's cache modes as its three switches.
fn cache_mode(mode: &str, options: &mut Properties) {
    let switches = match mode {
        "none" | "off" => ["on", "off", "on"],
        "directsync" => ["on", "off", "off"],
        "writeback" => ["off", "off", "on"],
        "writethrough" => ["off", "off", "off"],
        "unsafe" => ["off", "on", "on"],
        _ => return,
    };
    let keys = ["cache.direct", "cache.no-flush", "cache.writeback"];
    for (key, value) in keys.into_iter().zip(switches) {
        options.push(key, value);
    }
}

/// The limit that an old option of `-drive` is: `iops_wr_max` is `iops-write-max`.
fn limit(key: &str) -> Option<String> {
    if key == "iops_size" {
        return Some("iops-size".to_owned());
    }
    let unit = ["iops", "bps"]
        .into_iter()
        .find(|unit| key.starts_with(unit))?;
    let rest = &key[unit.len()..];
    let kinds = [("_rd", "read"), ("_wr", "write"), ("", "total")];
    let (kind, end) = kinds
        .into_iter()
        .find_map(|(prefix, kind)| Some((kind, rest.strip_prefix(prefix)?)))?;
    ["", "_max", "_max_length"]
        .contains(&end)
        .then(|| format!("{unit}-{kind}{}", end.replace('_', "-")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, Instant};

    fn graph(line: &str) -> BlockGraph {
        BlockGraph::of(&Arguments::from_line(line))
    }

    fn file(chain: Option<Chain<'_>>) -> Option<String> {
        let name = chain?.storage()?.name();
        Some(name.to_str()?.to_owned())
    }

    fn files(line: &str) -> Vec<String> {
        let graph = graph(line);
        let all = graph.chains().filter_map(|chain| file(Some(chain)));
        all.collect()
    }

    #[test]
    fn nodes_are_followed_in_either_syntax() {
        let json = r#"{"driver":"throttle","node-name":"t","throttle-group":"g","file":{"driver":"raw","node-name":"r","file":{"driver":"file","filename":"/x","aio":"io_uring","cache":{"direct":true}}}}"#;
        let dotted = "driver=throttle,node-name=t,throttle-group=g,file.driver=raw,file.node-name=r,file.file.driver=file,file.file.filename=/x,file.file.aio=io_uring,file.file.cache.direct=on";
        for nodes in [json, dotted] {
            let graph = graph(&format!(
                "q -blockdev {nodes} -blockdev raw,file=r,node-name=top"
            ));
            for name in ["t", "r", "top"] {
                let chain = graph.of_node(name).unwrap();
                assert_eq!(file(Some(chain.clone())).as_deref(), Some("/x"));
                assert_eq!(
                    (
                        chain.of_file("aio"),
                        chain.switch("cache.direct"),
                        chain.format()
                    ),
                    (Some("io_uring"), Some(true), Some("raw"))
                );
            }
            let groups: Vec<&str> = graph.of_node("t").unwrap().throttle_groups().collect();
            assert_eq!(groups, ["g"]);
        }
        let line = "q -blockdev driver=blkdebug,node-name=b,image=n -blockdev driver=other,node-name=n,file.driver=luks,file.file.driver=file,file.file.filename=/y";
        let graph = graph(line);
        let chain = graph.of_node("b").unwrap();
        assert_eq!(chain.filters().collect::<Vec<_>>(), ["blkdebug", "other"]);
        assert_eq!(chain.format(), Some("luks"));
        assert_eq!(files(line), ["/y"]);
    }

    #[test]
    fn options_of_nodes_beside_the_chain_are_not_its_own() {
        let line = "q -blockdev driver=qcow2,node-name=q,file=f,backing.driver=raw,backing.file.driver=file,backing.file.filename=/base,data-file=d \
            -blockdev driver=file,node-name=f,filename=/f -blockdev driver=file,node-name=d,filename=/d";
        assert_eq!(files(line), ["/f"]);
        assert_eq!(
            files("q -drive file=/f,backing.file.filename=/base"),
            ["/f"]
        );
    }

    #[test]
    fn drives_have_many_spellings() {
        for drive in [
            "file=/a,format=qcow2",
            "file.filename=/a,driver=qcow2",
            "driver=qcow2,file.driver=file,file.filename=/a,id=d,if=none",
            "file=file:/a,format=qcow2",
            r#"file=json:{"driver":"qcow2",,"file.driver":"file",,"file.filename":"/a"}"#,
            r#"file=json:{"driver":"qcow2",,"file":{"filename":"/a"}}"#,
            "file=/b,file=/a,format=raw,format=qcow2",
        ] {
            let graph = graph(&format!("q -drive {drive}"));
            let chain = graph.chains().next().unwrap();
            assert_eq!(file(Some(chain.clone())).as_deref(), Some("/a"), "{drive}");
            assert_eq!(chain.format(), Some("qcow2"), "{drive}");
        }
        let line = "q -drive file=/a -hdb /b,c -cdrom /c.iso /d -drive file=/e,format=host_device";
        assert_eq!(files(line), ["/a", "/b,c", "/c.iso", "/d", "/e"]);
        let graph = graph(line);
        let formats: Vec<Option<&str>> = graph.chains().map(|chain| chain.format()).collect();
        assert_eq!(formats, [None, None, None, None, Some("raw")]);
        let names: Vec<&str> = graph
            .disks()
            .iter()
            .map(|disk| disk.name.as_str())
            .collect();
        assert_eq!(names, ["drive0", "drive1", "hdb", "cdrom", "hda"]);
    }

    #[test]
    fn what_is_no_path_has_the_name_of_its_driver() {
        let names = [
            ("rbd:p/i:key=k", "rbd://"),
            ("iscsi://u%p@h/t/0", "iscsi://"),
            ("nbd:h:10809", "nbd://"),
            ("https://u:p@h/i?token=t", "https://"),
            ("json:{\"driver\":\"nfs\",,\"path\":\"/k\"}", "nfs://"),
            ("fat:rw:/d", "fat://"),
            ("null-co://", "null-co://"),
            ("/d/rbd:x", "/d/rbd:x"),
        ];
        for (name, shown) in names {
            assert_eq!(files(&format!("q -drive file={name}")), [shown]);
        }
        assert_eq!(files("q -blockdev file,filename=rbd:x"), ["rbd:x"]);
        assert_eq!(
            files("q -blockdev driver=rbd,pool=p,image=i,key-secret=k"),
            ["rbd://"]
        );
        assert_eq!(
            files("q -drive if=ide,media=cdrom -blockdev raw,file=none"),
            [""; 0]
        );
    }

    #[test]
    fn a_node_has_options_of_the_one_it_is_written_in() {
        let inherited = graph("q -drive file=/a,aio=native,cache=none");
        let chain = inherited.chains().next().unwrap();
        assert_eq!(
            (chain.of_file("aio"), chain.switch("cache.direct")),
            (Some("native"), Some(true))
        );
        let named = graph(
            "q -blockdev raw,file=f,cache.direct=on,read-only=on -blockdev file,node-name=f,filename=/a",
        );
        let chain = named.chains().next().unwrap();
        assert_eq!(
            (chain.switch("cache.direct"), chain.is_read_only()),
            (None, true)
        );
        let discards = |line: &str| graph(line).chains().next().unwrap().discards();
        assert!(discards("q -drive file=/a,discard=unmap"));
        assert!(!discards("q -drive file=/a,file.discard=unmap"));
        assert!(!discards(
            "q -drive file=/a,discard=unmap,file.discard=ignore"
        ));
        let part = graph("q -blockdev raw,offset=4096,size=8192,file.driver=file,file.filename=/a");
        assert!(part.chains().next().unwrap().has_offset());
    }

    #[test]
    fn chains_that_do_not_end_have_no_file() {
        let line = "q -blockdev raw,node-name=a,file=b -blockdev raw,node-name=b,file=a -device virtio-blk,drive=a -device virtio-blk,drive=x";
        let graph = graph(line);
        let all: Vec<_> = graph
            .disks()
            .iter()
            .map(|disk| file(graph.of_disk(disk)))
            .collect();
        assert_eq!(all, [None, None]);
        let nested = |nodes: usize| {
            let path = "file.".repeat(nodes - 1);
            let drivers: String = (0..nodes - 1)
                .map(|depth| format!("{}driver=throttle,", "file.".repeat(depth)))
                .collect();
            files(&format!(
                "q -blockdev {drivers}{path}driver=file,{path}filename=/a"
            ))
        };
        assert_eq!(nested(MAX_NODES), ["/a"]);
        assert_eq!(nested(MAX_NODES + 1), [""; 0]);
        assert_eq!(nested(1000), [""; 0]);
    }

    /// Reads all that there is of a graph.
    fn read_all(graph: &BlockGraph) {
        for chain in graph.chains() {
            let names = chain.options().map(|(_, value)| value.to_owned());
            let names: Vec<String> = names.take(4).collect();
            let _ = (chain.format(), chain.discards(), chain.filters().count());
            let _ = (graph.of_file(&names), graph.disk_of_file(&names));
        }
    }

    #[test]
    fn ten_thousand_nodes_are_read_quickly() {
        let begun = Instant::now();
        let mut arguments = vec!["q".to_owned()];
        for number in 0..10_000 {
            let next = (number * 7 + 1) % 10_000;
            arguments.extend([
                "-blockdev".to_owned(),
                format!("driver=raw,node-name=n{number},file=n{next}"),
                "-device".to_owned(),
                format!("virtio-blk-pci,drive=n{number},id=d{number}"),
            ]);
        }
        let wide: String = (0..10_000)
            .map(|n| format!("c{n}.driver=raw,c{n}.node-name=w{n},"))
            .collect();
        arguments.extend(["-blockdev".to_owned(), format!("{wide}driver=quorum")]);
        arguments.extend([
            "-blockdev".to_owned(),
            format!("{}driver=file", "file.".repeat(200_000)),
        ]);
        let deep = format!("{}{}", "{\"file\":".repeat(100_000), "}".repeat(100_000));
        arguments.extend([
            "-blockdev".to_owned(),
            deep.clone(),
            "-drive".to_owned(),
            format!("file=json:{deep}"),
        ]);
        // Each of its fields has a path of 2 MB.
        let fields: Vec<String> = (0..100_000).map(|n| format!("\"{n}\":1")).collect();
        let long = format!("{{\"{}\":{{{}}}}}", "a".repeat(2 << 20), fields.join(","));
        arguments.extend(["-blockdev".to_owned(), long]);
        let graph = BlockGraph::of(&arguments.into_iter().collect());
        assert_eq!(graph.disks().len(), 10_001);
        read_all(&graph);
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{:?}",
            begun.elapsed()
        );
    }

    proptest! {
        #[test]
        fn any_nodes_are_survived(
            all in proptest::collection::vec(
                "(driver=(raw|throttle|qcow2|file)|(file\\.){0,10}(driver|filename|node-name|file)=[a-c]|node-name=[a-c]|file=[a-c]|[a-z.=,{}\":]{0,12})(,(file|backing)=[a-c])?",
                0..12,
            ),
        ) {
            let mut arguments = vec!["q".to_owned()];
            for (option, value) in ["-blockdev", "-drive", "-device", "-object"].iter().cycle().zip(all) {
                arguments.extend([(*option).to_owned(), value]);
            }
            arguments.extend(["-device".to_owned(), "scsi-hd,drive=a".to_owned()]);
            read_all(&BlockGraph::of(&arguments.into_iter().collect()));
        }

        #[test]
        fn any_name_is_read_without_what_is_behind_its_scheme(rest in "[ -~]{0,30}") {
            let graph = BlockGraph::of_name(&format!("rbd:{rest}"));
            let name = file(graph.chains().next());
            prop_assert_eq!(name.as_deref(), Some("rbd://"));
        }
    }
}
