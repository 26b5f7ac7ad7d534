//! Changed settings of a disk in the XML of its domain, the rest of which stays as it is, letter by letter.

use super::choose;
use super::domain::disks;
use super::domain_xml::{Disk, ScsiControllers, child, domain, limit_of, parse, text_of};
use roxmltree::Node;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use vmtax_model::{Libvirt, Setting, SettingPart};

/// A changed domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DomainEdit {
    /// The whole domain: `virsh define` takes it.
    pub xml: String,
    /// Changes to the domain, as `diff -u` prints them.
    pub diff: String,
    /// Settings that the XML of a disk cannot have.
    pub left_out: Vec<String>,
}

/// A domain with these settings of its disk changed; `None` where it is no domain with that disk.
pub fn edit_domain(
    xml: &str,
    disk: &str,
    changed: &BTreeMap<String, String>,
) -> Option<DomainEdit> {
    let document = parse(xml).ok()?;
    let domain = domain(&document).ok()?;
    let devices = child(domain, "devices")?;
    let (all, _) = disks(devices);
    let disk = choose(&all, Some(disk), Disk::name).ok()?;
    let is_scsi = disk.bus() == "scsi" && changed.get("bus").is_none_or(|bus| bus == "virtio-scsi");
    let place = Place {
        domain,
        devices,
        disk,
        is_scsi,
        controller: ScsiControllers::of(devices)
            .virtio_of_disk(disk)
            .filter(|_| is_scsi),
    };
    let mut edits = Edits {
        xml,
        all: Vec::new(),
    };
    let mut attributes = edits.settings(&place, changed);
    if disk.bus() == "scsi" && !is_scsi {
        add_attributes_of_controller(disk, devices, &mut attributes.of_disk);
    }
    if let Some(limits) = child(disk.0, "iotune") {
        edits.limits(limits, changed);
    }
    if disk.0.children().any(|node| node.is_element()) {
        edits.driver(disk.0, " name='qemu' type='raw'", &attributes.of_disk);
    }
    if let Some(controller) = place.controller {
        edits.driver(controller, "", &attributes.of_controller);
    }
    let xml_after = edits.apply()?;
    // What cannot be read again is no help to anybody.
    parse(&xml_after).ok()?;
    Some(DomainEdit {
        diff: unified_diff(xml, &xml_after),
        xml: xml_after,
        left_out: attributes.left_out,
    })
}

/// The disk that is changed, with what belongs to it.
struct Place<'a> {
    domain: Node<'a, 'a>,
    devices: Node<'a, 'a>,
    disk: &'a Disk<'a>,
    /// True if it is behind a controller of SCSI, and stays there.
    is_scsi: bool,
    /// That controller, where it is of virtio.
    controller: Option<Node<'a, 'a>>,
}

/// Attributes of `<driver>` with their values, and the settings that have none.
#[derive(Default)]
struct Attributes {
    of_disk: Vec<(&'static str, String)>,
    of_controller: Vec<(&'static str, String)>,
    left_out: Vec<String>,
}

/// Adds what the controller of a disk had that becomes one of virtio-blk: with it the disk was measured, too.
fn add_attributes_of_controller(
    disk: &Disk<'_>,
    devices: Node<'_, '_>,
    attributes: &mut Vec<(&'static str, String)>,
) {
    let controller = ScsiControllers::of(devices).virtio_of_disk(disk);
    let driver = controller.and_then(|controller| child(controller, "driver"));
    for setting in Setting::all() {
        let Libvirt::DriverOrController(name) = setting.libvirt else {
            continue;
        };
        let value = driver.and_then(|driver| driver.attribute(name));
        if attributes.iter().all(|(known, _)| *known != name) {
            attributes.extend(value.map(|value| (name, value.to_owned())));
        }
    }
}

/// Parts of a text and what stands in their place.
struct Edits<'a> {
    xml: &'a str,
    all: Vec<(Range<usize>, String)>,
}

impl Edits<'_> {
    fn insert(&mut self, at: usize, text: String) {
        self.all.push((at..at, text));
    }

    /// Changes what is no attribute of a `<driver>`; gives the attributes that are to be.
    fn settings(&mut self, place: &Place<'_>, changed: &BTreeMap<String, String>) -> Attributes {
        let mut all = Attributes::default();
        let is_scsi = place.is_scsi;
        for (key, value) in changed {
            let setting = Setting::of(key);
            let form = setting.libvirt(value);
            let is_of_controller = is_scsi && matches!(form, Libvirt::DriverOrController(_));
            // libvirt has no attribute for them at a controller.
            let is_elsewhere =
                is_scsi && !is_of_controller && matches!(setting.part, SettingPart::Device(_));
            let name = form
                .driver_attribute()
                .filter(|_| setting.part != SettingPart::Iothread);
            match key.as_str() {
                _ if is_of_controller && place.controller.is_none() => {
                    all.left_out.push(format!("{key}={value}"));
                }
                "iothread" if value == "on" => {
                    let attributes = if is_scsi {
                        &mut all.of_controller
                    } else {
                        &mut all.of_disk
                    };
                    attributes.push(("iothread", self.iothread(place.domain)));
                }
                "bus" if value == "virtio-blk" => self.bus(place.disk, place.devices),
                _ if form == Libvirt::MetadataCache => self.metadata_cache(place.disk, value),
                _ if setting.part == SettingPart::Throttle && value == "0" => {}
                _ => match name {
                    Some(name) if is_of_controller => {
                        all.of_controller.push((name, value.clone()));
                    }
                    Some(name) if !is_elsewhere => all.of_disk.push((name, value.clone())),
                    _ => all.left_out.push(format!("{key}={value}")),
                },
            }
        }
        all
    }

    /// Removes an element with the blanks before it.
    fn remove(&mut self, node: Node<'_, '_>) {
        let Range { start, end } = node.range();
        let blanks = self.indent(node).len();
        self.all.push((start - blanks..end, String::new()));
    }

    /// Removes the limits that are 0 now, each with its burst; the element where none is left.
    fn limits(&mut self, limits: Node<'_, '_>, changed: &BTreeMap<String, String>) {
        let rate = |limit: &Node<'_, '_>| {
            let name = limit_of(limit.tag_name().name())?;
            let rate = name.trim_end_matches("-length").trim_end_matches("-max");
            (rate != "iops-size").then(|| format!("throttling.{rate}"))
        };
        let is_removed = |limit: &Node<'_, '_>| {
            let value = rate(limit).and_then(|rate| changed.get(&rate));
            value.is_some_and(|value| value == "0")
        };
        let (removed, kept): (Vec<_>, Vec<_>) = limits
            .children()
            .filter(|limit| rate(limit).is_some())
            .partition(is_removed);
        if kept.is_empty() && !removed.is_empty() {
            self.remove(limits);
        } else {
            removed.into_iter().for_each(|limit| self.remove(limit));
        }
    }

    /// One more iothread of the domain: its number.
    fn iothread(&mut self, domain: Node<'_, '_>) -> String {
        let named = child(domain, "iothreadids");
        let ids = named
            .iter()
            .flat_map(Node::children)
            .filter_map(|one| one.attribute("id")?.parse::<u32>().ok());
        let ids: Vec<u32> = ids.collect();
        let threads = child(domain, "iothreads");
        let count = threads
            .and_then(|threads| text_of(threads).parse::<u32>().ok())
            .unwrap_or(0);
        let count = count.max(u32::try_from(ids.len()).unwrap_or(u32::MAX));
        // libvirt numbers those without an ID from 1 on, so none of them is above their count.
        let number = ids
            .iter()
            .copied()
            .max()
            .unwrap_or(0)
            .max(count)
            .saturating_add(1);
        let text = format!("<iothreads>{}</iothreads>", count.saturating_add(1));
        match threads {
            Some(threads) => self.all.push((threads.range(), text)),
            None => {
                let is_element = |node: &Node<'_, '_>| node.is_element();
                let after = child(domain, "vcpu").or_else(|| domain.children().find(is_element));
                if let Some(after) = after {
                    let indent = self.indent(after);
                    self.insert(after.range().end, format!("{indent}{text}"));
                }
            }
        }
        if let Some(last) = named.and_then(|named| named.children().rfind(Node::is_element)) {
            let indent = self.indent(last);
            self.insert(
                last.range().end,
                format!("{indent}<iothread id='{number}'/>"),
            );
        }
        number.to_string()
    }

    /// The disk becomes one of virtio-blk.
    fn bus(&mut self, disk: &Disk<'_>, devices: Node<'_, '_>) {
        let Some(target) = child(disk.0, "target") else {
            return;
        };
        // Also those of CD-ROM drives and of disks that are not tuned.
        let targets = devices
            .children()
            .filter_map(|node| child(node, "target")?.attribute("dev"));
        let taken: BTreeSet<&str> = targets.collect();
        let free = ('a'..='z')
            .map(|letter| format!("vd{letter}"))
            .find(|name| !taken.contains(name.as_str()));
        self.attribute(target, "dev", &free.unwrap_or_else(|| "vda".to_owned()));
        self.attribute(target, "bus", "virtio");
        // Of its former bus.
        child(disk.0, "address")
            .into_iter()
            .for_each(|address| self.remove(address));
    }

    /// The bytes of a qcow2 image's metadata cache.
    fn metadata_cache(&mut self, disk: &Disk<'_>, bytes: &str) {
        let text = format!(
            "<metadata_cache><max_size unit='bytes'>{}</max_size></metadata_cache>",
            escaped(bytes)
        );
        let Some(driver) = disk.driver() else { return };
        let own = child(driver, "metadata_cache");
        if let Some(value) = own
            .and_then(|own| child(own, "max_size"))
            .and_then(|size| size.first_child())
        {
            self.all.push((value.range(), escaped(bytes)));
        } else if let Some(own) = own {
            self.all.push((own.range(), text));
        } else {
            self.append(driver, &text);
        }
    }

    /// Sets attributes of the `<driver>` of a disk or controller, which is added with `begin` where there is none.
    fn driver(&mut self, owner: Node<'_, '_>, begin: &str, attributes: &[(&str, String)]) {
        if attributes.is_empty() {
            return;
        }
        if let Some(driver) = child(owner, "driver") {
            for (name, value) in attributes {
                self.attribute(driver, name, value);
            }
            return;
        }
        let all: String = attributes
            .iter()
            .map(|(name, value)| format!(" {name}='{}'", escaped(value)))
            .collect();
        let text = format!("<driver{begin}{all}/>");
        match owner.children().find(Node::is_element) {
            Some(first) => {
                let indent = self.indent(first);
                self.insert(first.range().start, format!("{text}{indent}"));
            }
            None => self.append(owner, &text),
        }
    }

    /// Adds an element at the end of another.
    fn append(&mut self, owner: Node<'_, '_>, text: &str) {
        let end = owner.range().end;
        let tag = format!("</{}>", owner.tag_name().name());
        if self.xml[owner.range()].ends_with("/>") {
            self.all.push((end - 2..end, format!(">{text}{tag}")));
        } else {
            self.insert(end - tag.len(), text.to_owned());
        }
    }

    /// Sets an attribute of an element.
    fn attribute(&mut self, node: Node<'_, '_>, name: &str, value: &str) {
        match node.attribute_node(name) {
            Some(own) => self.all.push((own.range_value(), escaped(value))),
            None => {
                let at = node.range().start + 1 + node.tag_name().name().len();
                self.insert(at, format!(" {name}='{}'", escaped(value)));
            }
        }
    }

    /// The line break and blanks before an element.
    fn indent(&self, node: Node<'_, '_>) -> String {
        let before = &self.xml[..node.range().start];
        before[before.trim_end_matches([' ', '\t', '\n', '\r']).len()..].to_owned()
    }

    /// The text with all of them; `None` where they overlap.
    fn apply(mut self) -> Option<String> {
        self.all.sort_by_key(|(range, _)| (range.start, range.end));
        let (mut text, mut at) = (String::new(), 0);
        for (range, replaced) in &self.all {
            text += self.xml.get(at..range.start)?;
            text += replaced;
            at = range.end;
        }
        Some(text + self.xml.get(at..)?)
    }
}

/// A value between single or double quotes.
fn escaped(value: &str) -> String {
    [
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ("'", "&apos;"),
        ("\"", "&quot;"),
    ]
    .iter()
    .fold(value.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Lines around a change in a diff.
const CONTEXT: usize = 3;
/// Longer texts are shown as replaced as a whole.
const MAX_LINES: usize = 2000;

/// Returns the output of `diff -u`, in one hunk; empty where nothing differs.
pub(super) fn unified_diff(before: &str, after: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let is_same = |(a, b): &(&&str, &&str)| a == b;
    let head = a.iter().zip(&b).take_while(is_same).count();
    let (rest_a, rest_b) = (a[head..].iter().rev(), b[head..].iter().rev());
    let tail = rest_a.zip(rest_b).take_while(is_same).count();
    let (middle_a, middle_b) = (&a[head..a.len() - tail], &b[head..b.len() - tail]);
    if middle_a.is_empty() && middle_b.is_empty() {
        return String::new();
    }
    let (first, last) = (head.min(CONTEXT), tail.min(CONTEXT));
    let unchanged =
        |lines: &[&str]| -> Vec<String> { lines.iter().map(|line| format!(" {line}")).collect() };
    let mut lines = unchanged(&a[head - first..head]);
    lines.extend(changes(middle_a, middle_b));
    lines.extend(unchanged(&a[a.len() - tail..][..last]));
    let begin = head - first + 1;
    let (before, after) = (first + middle_a.len() + last, first + middle_b.len() + last);
    let head =
        format!("--- domain.xml\n+++ domain.xml\n@@ -{begin},{before} +{begin},{after} @@\n");
    head + &lines.join("\n") + "\n"
}

/// The lines of both, those in common once.
fn changes(a: &[&str], b: &[&str]) -> Vec<String> {
    let removed = |line: &&str| format!("-{line}");
    let added = |line: &&str| format!("+{line}");
    if a.len() > MAX_LINES || b.len() > MAX_LINES {
        return a.iter().map(removed).chain(b.iter().map(added)).collect();
    }
    // The longest common subsequence of the rest, from each pair of lines on.
    let mut length = vec![vec![0_u16; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            length[i][j] = if a[i] == b[j] {
                length[i + 1][j + 1] + 1
            } else {
                length[i + 1][j].max(length[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            lines.push(format!(" {}", a[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == b.len() || (i < a.len() && length[i + 1][j] >= length[i][j + 1]) {
            lines.push(removed(&a[i]));
            i += 1;
        } else {
            lines.push(added(&b[j]));
            j += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use roxmltree::Document;

    fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    const DOMAIN: &str = "<domain type='kvm'>
  <!-- kept -->
  <vcpu>2</vcpu>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' cache=\"writethrough\"/>
      <source file='/a'/>
      <target dev='sda' bus='sata'/>
      <iotune>
        <total_iops_sec>500</total_iops_sec>
      </iotune>
      <address type='drive' controller='0'/>
    </disk>
    <disk><source file='/b'/><target dev='vda' bus='virtio'/></disk>
  </devices>
</domain>
";

    #[test]
    fn the_disk_changes_and_nothing_else() {
        let changed = settings(&[
            ("bus", "virtio-blk"),
            ("cache", "none"),
            ("cache-size", "2097152"),
            ("format", "raw"),
            ("iothread", "on"),
            ("throttling.iops-total", "0"),
        ]);
        let edit = edit_domain(DOMAIN, "sda", &changed).unwrap();
        let disk = "    <disk type='file' device='disk'>
      <driver iothread='1' name='qemu' type='qcow2' cache=\"none\"><metadata_cache><max_size unit='bytes'>2097152</max_size></metadata_cache></driver>
      <source file='/a'/>
      <target dev='vdb' bus='virtio'/>
    </disk>
";
        assert!(edit.xml.contains(disk), "{}", edit.xml);
        assert!(
            edit.xml
                .contains("<vcpu>2</vcpu>\n  <iothreads>1</iothreads>\n")
                && edit.xml.contains("<!-- kept -->")
        );
        assert_eq!(edit.left_out, ["format=raw"]);
        assert!(
            edit.diff.contains("+  <iothreads>1</iothreads>\n")
                && edit.diff.contains("-      <iotune>\n"),
            "{}",
            edit.diff
        );
        let other = edit_domain(DOMAIN, "vda", &settings(&[("aio", "native")])).unwrap();
        assert!(
            other
                .xml
                .contains("<disk><driver name='qemu' type='raw' io='native'/><source file='/b'/>"),
            "{}",
            other.xml
        );
        assert_eq!(
            (
                edit_domain(DOMAIN, "vdz", &changed),
                edit_domain("x", "vda", &changed)
            ),
            (None, None)
        );
        let none = edit_domain(DOMAIN, "vda", &settings(&[])).unwrap();
        assert_eq!((none.xml.as_str(), none.diff.as_str()), (DOMAIN, ""));
    }

    #[test]
    fn a_limit_is_removed_with_its_burst_and_others_stay() {
        let limits = "<total_iops_sec>50</total_iops_sec><total_iops_sec_max>80</total_iops_sec_max><write_bytes_sec>9</write_bytes_sec>";
        let begin = DOMAIN.find("<iotune>").unwrap() + "<iotune>".len();
        let end = DOMAIN.find("</iotune>").unwrap();
        let text = format!("{}{limits}{}", &DOMAIN[..begin], &DOMAIN[end..]);
        let edit = edit_domain(&text, "sda", &settings(&[("throttling.iops-total", "0")])).unwrap();
        assert!(
            edit.xml
                .contains("<iotune><write_bytes_sec>9</write_bytes_sec></iotune>"),
            "{}",
            edit.xml
        );
        let both = settings(&[
            ("throttling.iops-total", "0"),
            ("throttling.bps-write", "0"),
        ]);
        assert!(
            !edit_domain(&text, "sda", &both)
                .unwrap()
                .xml
                .contains("iotune")
        );
    }

    #[test]
    fn iothreads_are_counted_on() {
        let text = DOMAIN.replace("<vcpu>2</vcpu>", "<vcpu>2</vcpu><iothreads>2</iothreads>");
        let edit = edit_domain(&text, "vda", &settings(&[("iothread", "on")])).unwrap();
        assert!(
            edit.xml.contains("<iothreads>3</iothreads>") && edit.xml.contains("iothread='3'"),
            "{}",
            edit.xml
        );
        let ids =
            "<iothreads>3</iothreads>\n  <iothreadids>\n    <iothread id='7'/>\n  </iothreadids>";
        let text = DOMAIN.replace("<vcpu>2</vcpu>", &format!("<vcpu>2</vcpu>\n  {ids}"));
        let edit = edit_domain(&text, "vda", &settings(&[("iothread", "on")])).unwrap();
        let ids = "<iothreads>4</iothreads>\n  <iothreadids>\n    <iothread id='7'/>\n    <iothread id='8'/>\n  </iothreadids>";
        assert!(
            edit.xml.contains(ids) && edit.xml.contains("iothread='8'"),
            "{}",
            edit.xml
        );
    }

    #[test]
    fn a_scsi_disk_has_virtios_settings_at_its_controller() {
        let controller = "<controller type='scsi' index='0' model='virtio-scsi'>\n      <address/>\n    </controller>\n    <disk type";
        let text = DOMAIN
            .replace("bus='sata'", "bus='scsi'")
            .replacen("<disk type", controller, 1);
        let changed = [
            ("aio", "native"),
            ("event_idx", "off"),
            ("iothread", "on"),
            ("num-queues", "2"),
        ];
        let edit = edit_domain(&text, "sda", &settings(&changed)).unwrap();
        let driver = "<driver iothread='1' queues='2'/>\n      <address/>";
        let of_disk = "<driver io='native' name='qemu' type='qcow2'";
        assert!(
            edit.xml.contains(driver) && edit.xml.contains(of_disk),
            "{}",
            edit.xml
        );
        assert_eq!(edit.left_out, ["event_idx=off"]);
        let empty = text.replace(">\n      <address/>\n    </controller>", "/>");
        let edit = edit_domain(&empty, "sda", &settings(&changed)).unwrap();
        assert!(
            edit.xml
                .contains("model='virtio-scsi'><driver iothread='1' queues='2'/></controller>"),
            "{}",
            edit.xml
        );
        let without = DOMAIN.replace("bus='sata'", "bus='scsi'");
        let edit = edit_domain(&without, "sda", &settings(&changed)).unwrap();
        assert_eq!(
            edit.left_out,
            ["event_idx=off", "iothread=on", "num-queues=2"]
        );
        assert!(!edit.xml.contains("<iothreads>"), "{}", edit.xml);
        // libvirt refuses a <driver> of virtio's settings at another controller.
        for model in [" model='lsilogic'", " model='auto'", ""] {
            let other = text.replace(" model='virtio-scsi'", model);
            let edit = edit_domain(&other, "sda", &settings(&changed)).unwrap();
            assert_eq!(
                edit.left_out,
                ["event_idx=off", "iothread=on", "num-queues=2"],
                "{model}"
            );
            assert_eq!(
                edit.xml,
                other.replace("<driver name", "<driver io='native' name"),
                "{model}"
            );
        }
        // What becomes a virtio-blk disk has them itself.
        let both = edit_domain(
            &text,
            "sda",
            &settings(&[("bus", "virtio-blk"), ("iothread", "on")]),
        )
        .unwrap();
        assert!(
            both.xml.contains("<driver iothread='1' name='qemu'"),
            "{}",
            both.xml
        );
    }

    #[test]
    fn a_new_target_is_none_of_another_device() {
        let cdrom = "<disk type='file' device='cdrom'><target dev='vdb' bus='virtio'/><readonly/></disk>\n  </devices>";
        let text = DOMAIN.replace("  </devices>", cdrom);
        let edit = edit_domain(&text, "sda", &settings(&[("bus", "virtio-blk")])).unwrap();
        assert!(
            edit.xml.contains("<target dev='vdc' bus='virtio'/>"),
            "{}",
            edit.xml
        );
    }

    #[test]
    fn a_scsi_disk_of_virtio_blk_has_what_its_controller_had() {
        let controller = "<controller type='scsi' model='virtio-scsi'><driver iothread='1' queues='7'/></controller>";
        let scsi = DOMAIN.replace("bus='sata'", "bus='scsi'");
        let scsi = scsi.replace("  </devices>", &format!("{controller}\n  </devices>"));
        let edit = edit_domain(
            &scsi,
            "sda",
            &settings(&[("bus", "virtio-blk"), ("num-queues", "2")]),
        )
        .unwrap();
        assert!(edit.xml.contains(controller), "{}", edit.xml);
        let driver = edit
            .xml
            .lines()
            .find(|line| line.contains("<driver") && line.contains("qcow2"))
            .unwrap();
        assert!(
            driver.contains("iothread='1'")
                && driver.contains("queues='2'")
                && !driver.contains("'7'"),
            "{driver}"
        );
    }

    proptest! {
        #[test]
        fn any_value_leaves_xml(value in ".{0,20}", key in "(cache|cache-size|num-queues|bus)") {
            // No XML has a control character.
            let edit = edit_domain(DOMAIN, "sda", &settings(&[(&key, &value)]));
            prop_assert!(edit.map_or(value.contains(|c: char| c != ' ' && !c.is_alphanumeric()), |edit| Document::parse(&edit.xml).is_ok()));
        }
    }

    proptest! {
        #[test]
        fn a_diff_makes_one_text_of_the_other(a in "([ab]\n){0,12}", b in "([ab]\n){0,12}") {
            let diff = unified_diff(&a, &b);
            let begin = diff.split("@@ -").nth(1).map_or(0, |rest| rest.split(',').next().unwrap().parse::<usize>().unwrap() - 1);
            let mut made: Vec<&str> = a.lines().take(begin).collect();
            let mut passed = begin;
            for line in diff.lines().skip(3) {
                if let Some(added) = line.strip_prefix('+') {
                    made.push(added);
                } else {
                    let old = a.lines().nth(passed).unwrap();
                    prop_assert_eq!(&line[1..], old);
                    passed += 1;
                    if line.starts_with(' ') {
                        made.push(old);
                    }
                }
            }
            made.extend(a.lines().skip(passed));
            prop_assert_eq!(made, b.lines().collect::<Vec<_>>());
        }
    }
}
