//! The two readers of a VM's configuration, of libvirt's XML and of the command line that libvirt makes of it, over the pairs
//! that libvirt tests itself with. Not part of the suite: the pairs come with libvirt's source alone.
//!
//! ```sh
//! apt-get source --download-only libvirt && tar -xf libvirt_*.orig.tar.xz
//! VMTAX_LIBVIRT_PAIRS=$PWD/libvirt-*/tests/qemuxmlconfdata cargo test -p vmtax-configuration --test libvirt_pairs by_hand_pairs -- --ignored
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use vmtax_configuration::{Twin, configuration, twin};
use vmtax_model::{ConfiguredDisk, VmConfiguration};

/// Pairs, by a part of their names, that say different things: libvirt starts another VM than the XML describes, or the text has
/// no more of it.
const DIFFERENT: [(&str, &str); 18] = [
    (
        "disk-startuppolicy-optional-drop",
        "a disk is missing, and left out",
    ),
    ("disk-transient", "disks are plugged in after the start"),
    ("qemu-ns", "arguments of the user's own add disks"),
    (
        "blkdeviotune",
        "limits are set by the monitor after the start",
    ),
    (
        "throttlefilter.",
        "limits are set by the monitor after the start",
    ),
    ("cpu-hotplug-startup", "vCPUs are plugged in by the monitor"),
    ("disk-serial", "a disk of a bus that x86 does not have"),
    (
        "name-escape",
        "limits are set by the monitor after the start",
    ),
    ("disk-source-fd", "the file is a descriptor"),
    ("nbdkit", "a process of libvirt's own reads the storage"),
    (
        "disk-network-ssh",
        "a process of libvirt's own reads the storage",
    ),
    (
        "luks-disks-source",
        "what is in the pool is asked of another daemon",
    ),
    (
        "disk-slices",
        "what is in the pool is asked of another daemon",
    ),
    (
        "net-virtio-teaming-network",
        "what the network is is asked of another daemon",
    ),
    ("intel-iommu-eim-autoadd", "features are added"),
    ("hugepages-nvdimm", "the size of the image is asked for"),
    ("numa-unaligned", "sizes of NUMA cells are not rounded"),
    ("net-many-models", "models that QEMU does not have"),
];

/// XML and command line of each pair.
fn pairs(folder: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut all: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .filter_map(|entry| {
            let args = entry.unwrap().path();
            let name = args
                .file_name()?
                .to_str()?
                .strip_suffix(".args")?
                .to_owned();
            let base = name
                .rsplit_once('.')
                .map_or(name.as_str(), |(base, _)| base);
            let xml = [name.as_str(), base].map(|base| folder.join(format!("{base}.xml")));
            let xml = xml.into_iter().rev().find(|xml| xml.is_file())?;
            Some((xml, args))
        })
        .collect();
    all.sort();
    all
}

/// The differences of two readings, a line each.
#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn compare<T: Debug + PartialEq>(&mut self, what: &str, xml: &T, line: &T) {
        if xml != line {
            self.0
                .push(format!("{what}: XML {xml:?}, command line {line:?}"));
        }
    }

    /// Compares what both texts say of the VM.
    fn of_configurations(&mut self, xml: &VmConfiguration, line: &VmConfiguration) {
        // QEMU on macOS has another accelerator, which is named in the command line alone.
        self.compare("KVM", &xml.is_kvm, &line.is_kvm);
        self.compare("vCPUs", &xml.cpus, &line.cpus);
        self.compare("memory", &xml.memory, &line.memory);
        self.compare("sockets", &xml.sockets, &line.sockets);
        self.compare("huge pages", &xml.has_huge_pages, &line.has_huge_pages);
        self.compare("HPET", &xml.hpet, &line.hpet);
        self.compare("tablet", &xml.has_usb_tablet, &line.has_usb_tablet);
        self.compare("9p", &xml.shares_9p, &line.shares_9p);
        if xml.irqchip.is_some() {
            self.compare("IRQ chip", &xml.irqchip, &line.irqchip);
        }
        // An alias in XML is the newest machine type when the VM is defined.
        let family = |vm: &VmConfiguration| {
            let name = vm.machine_type.as_deref().unwrap_or("pc");
            if name.contains("q35") {
                "q35"
            } else {
                name.split('-').next().unwrap_or(name)
            }
            .to_owned()
        };
        self.compare("machine", &family(xml), &family(line));
        for (name, is_on) in xml.enlightenments.iter().filter(|(_, is_on)| **is_on) {
            // Its value is a text.
            if name != "vendor-id" {
                self.compare(name, &Some(is_on), &line.enlightenments.get(name));
            }
        }
        self.of_disks(xml, line);
        let nics = |vm: &VmConfiguration| -> Vec<String> {
            let known = vm.nics.iter().filter(|nic| !nic.model.is_empty());
            known.map(|nic| nic.model.clone()).collect()
        };
        self.compare("network cards", &nics(xml), &nics(line));
    }

    fn of_disks(&mut self, xml: &VmConfiguration, line: &VmConfiguration) {
        // libvirt orders disks by their buses.
        let sorted = |vm: &VmConfiguration| {
            let mut disks: Vec<ConfiguredDisk> = vm.disks.iter().map(alike).collect();
            disks.sort_by_key(|disk| format!("{disk:?}"));
            disks
        };
        let (xml, line) = (sorted(xml), sorted(line));
        self.compare("number of disks", &xml.len(), &line.len());
        for (xml, line) in xml.iter().zip(&line) {
            self.compare("disk", xml, line);
        }
    }

    fn of_twins(&mut self, xml: &Twin, line: &Twin) {
        self.compare("KVM of the test guest", &xml.is_kvm, &line.is_kvm);
        self.compare("its vCPUs", &xml.cpus, &line.cpus);
        self.compare("its memory", &xml.memory_mib, &line.memory_mib);
        if xml.disk.file != line.disk.file {
            // The first disk is another.
            return;
        }
        let set = |twin: &Twin| {
            let mut set = twin.disk.set.clone();
            // QEMU's own default.
            set.entry("aio".to_owned())
                .or_insert_with(|| "threads".to_owned());
            set
        };
        self.compare("its disk", &set(xml), &set(line));
    }
}

/// A disk as both texts can say it: without its name, controllers by QEMU's names, groups by libvirt's.
fn alike(disk: &ConfiguredDisk) -> ConfiguredDisk {
    const CONTROLLERS: [(&str, &str); 6] = [
        ("lsilogic", "lsi"),
        ("lsisas1068", "mptsas1068"),
        ("lsisas1078", "megasas"),
        ("vmpvscsi", "pvscsi"),
        ("ibmvscsi", "spapr-vscsi"),
        ("dc390", "dc-390"),
    ];
    let bus = CONTROLLERS.iter().find(|(xml, _)| *xml == disk.bus);
    let limits = disk.limits.iter();
    ConfiguredDisk {
        name: String::new(),
        bus: bus.map_or(disk.bus.as_str(), |(_, line)| line).to_owned(),
        limits: limits
            .map(|(key, value)| {
                (
                    key.clone(),
                    value.trim_start_matches("throttle-").to_owned(),
                )
            })
            .collect(),
        ..disk.clone()
    }
}

/// Compares a pair; the lines about it, and whether it was read.
fn compared(xml: &Path, args: &Path) -> (Differences, &'static str) {
    let mut all = Differences::default();
    let read = |path: &Path| configuration(&fs::read_to_string(path).unwrap());
    let kind = match (read(xml), read(args)) {
        (Ok(Some(xml)), Ok(Some(line))) => {
            all.of_configurations(&xml, &line);
            "read"
        }
        // Programs have names of families.
        (Err(xml), Err(line)) => {
            let [xml, line] = [xml.to_string(), line.to_string()];
            all.compare(
                "refusal",
                &xml.contains("the VM is of"),
                &line.contains("the VM is of"),
            );
            "refused"
        }
        (xml, line) => {
            all.0.push(format!("XML {xml:?}, command line {line:?}"));
            "refused by one"
        }
    };
    let [of_xml, of_line] = [xml, args].map(|path| twin(path.to_str().unwrap(), None));
    match (of_xml, of_line) {
        (Ok(xml), Ok(line)) => all.of_twins(&xml, &line),
        (Err(_), Err(_)) => {}
        (xml, line) => all.0.push(format!(
            "test guest: XML {:?}, command line {:?}",
            xml.err().map(|why| why.to_string()),
            line.err().map(|why| why.to_string())
        )),
    }
    (all, kind)
}

#[test]
#[ignore = "needs the source of libvirt"]
fn by_hand_pairs_of_libvirt_are_read_alike() {
    let folder = std::env::var_os("VMTAX_LIBVIRT_PAIRS");
    let folder = PathBuf::from(folder.expect("VMTAX_LIBVIRT_PAIRS names the folder of the pairs"));
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (xml, args) in pairs(&folder) {
        let name = args.file_name().unwrap().to_string_lossy().into_owned();
        let (all, kind) = compared(&xml, &args);
        *counts.entry(kind).or_default() += 1;
        let known = DIFFERENT.iter().find(|(part, _)| name.contains(part));
        if let Some((_, why)) = known.filter(|_| !all.0.is_empty()) {
            *counts.entry(why).or_default() += 1;
        } else {
            wrong.extend(all.0.into_iter().map(|line| format!("{name}: {line}")));
        }
    }
    println!("{counts:#?}");
    assert!(counts["read"] > 800, "{counts:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
