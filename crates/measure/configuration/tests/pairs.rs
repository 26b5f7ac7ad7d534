//! The two readers of a VM's configuration, of a manager's own text and of the command line that the manager makes of it, over the
//! pairs that libvirt and Proxmox test themselves with. Not part of the suite: the pairs come with their sources alone.
//!
//! ```sh
//! apt-get source --download-only libvirt && tar -xf libvirt_*.orig.tar.xz
//! VMTAX_LIBVIRT_PAIRS=$PWD/libvirt-*/tests/qemuxmlconfdata cargo test -p vmtax-configuration --test pairs by_hand_pairs_of_libvirt -- --ignored
//! git clone https://git.proxmox.com/git/qemu-server.git
//! VMTAX_PROXMOX_PAIRS=$PWD/qemu-server/src/test/cfg2cmd cargo test -p vmtax-configuration --test pairs by_hand_pairs_of_proxmox -- --ignored
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
const DIFFERENT_IN_LIBVIRT: [(&str, &str); 18] = [
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

/// Pairs, by a part of their names, that say different things.
const DIFFERENT_IN_PROXMOX: [(&str, &str); 5] = [
    (
        "arm-host",
        "the host is of ARM, which the configuration does not say",
    ),
    (
        "template",
        "Proxmox runs a template for backups alone, by TCG and without its cards",
    ),
    ("custom-cpu-model", "the model is in another file"),
    (
        "cputype-icelake-client-deprecation",
        "a model that QEMU has no more is replaced",
    ),
    (
        "simple-btrfs",
        "the storage decides how its images are cached",
    ),
];

/// A manager's text and the command line that it makes of it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    text: PathBuf,
    command: PathBuf,
}

/// XML and command line of each pair of libvirt.
fn pairs_of_libvirt(folder: &Path) -> Vec<Pair> {
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
            Some(Pair {
                text: xml,
                command: args,
            })
        })
        .collect();
    all.sort();
    all
}

/// Configuration and command line of each pair of Proxmox.
fn pairs_of_proxmox(folder: &Path) -> Vec<Pair> {
    let folders = [folder.join("aarch64"), folder.to_owned()];
    let entries = folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten();
    let mut all: Vec<_> = entries
        .filter_map(|entry| {
            let text = entry.unwrap().path();
            let name = text.file_name()?.to_str()?;
            let command = text.with_file_name(format!("{name}.cmd"));
            (name.ends_with(".conf") && command.is_file()).then_some(Pair { text, command })
        })
        .collect();
    all.sort();
    all
}

/// The differences of two readings, a line each.
#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn compare<T: Debug + PartialEq>(&mut self, what: &str, text: &T, line: &T) {
        if text != line {
            self.0
                .push(format!("{what}: text {text:?}, command line {line:?}"));
        }
    }

    /// Compares what libvirt's XML and command line say of the VM.
    fn of_libvirt(&mut self, xml: &VmConfiguration, line: &VmConfiguration) {
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
        self.of_libvirts_disks(xml, line);
        let nics = |vm: &VmConfiguration| -> Vec<String> {
            let known = vm.nics.iter().filter(|nic| !nic.model.is_empty());
            known.map(|nic| nic.model.clone()).collect()
        };
        self.compare("network cards", &nics(xml), &nics(line));
    }

    fn of_libvirts_disks(&mut self, xml: &VmConfiguration, line: &VmConfiguration) {
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

    /// Compares what Proxmox's configuration and command line say of the VM.
    fn of_proxmox(&mut self, file: &VmConfiguration, line: &VmConfiguration) {
        self.compare("KVM", &file.is_kvm, &line.is_kvm);
        self.compare("vCPUs", &file.cpus, &line.cpus);
        self.compare("sockets", &file.sockets, &line.sockets);
        self.compare("memory", &file.memory, &line.memory);
        self.compare("huge pages", &file.has_huge_pages, &line.has_huge_pages);
        self.compare("CPU", &file.cpu_model, &line.cpu_model);
        self.compare("tablet", &file.has_usb_tablet, &line.has_usb_tablet);
        self.compare("wrappers", &file.wrappers, &line.wrappers);
        self.compare("Windows", &file.windows.is_some(), &line.windows.is_some());
        // Of Linux guests the version of QEMU decides, which the configuration does not name.
        if file.hpet.is_some() {
            self.compare("HPET", &file.hpet, &line.hpet);
        }
        for (name, is_on) in &file.cpu_features {
            self.compare(name, &Some(is_on), &line.cpu_features.get(name));
        }
        let enlightenments = |vm: &VmConfiguration| -> Vec<String> {
            let all = vm.enlightenments.iter();
            // It says what a host of Intel's nests.
            let all = all
                .filter(|(name, is_on)| **is_on && !matches!(name.as_str(), "evmcs" | "vendor-id"));
            all.map(|(name, _)| name.clone()).collect()
        };
        self.compare(
            "enlightenments",
            &enlightenments(file),
            &enlightenments(line),
        );
        // Proxmox pins the version of a Windows guest's machine when it is made.
        let machine = |vm: &VmConfiguration| {
            let name = vm.machine_type.clone().unwrap_or_default();
            if name.contains("q35") { "q35" } else { "pc" }
        };
        self.compare("machine", &machine(file), &machine(line));
        self.of_disks_of_proxmox(file, line);
        let nics = |vm: &VmConfiguration| -> Vec<String> {
            let text = vm
                .nics
                .iter()
                .map(|nic| format!("{} {} {:?}", nic.model, nic.backend, nic.has_vhost));
            text.collect()
        };
        self.compare("network cards", &nics(file), &nics(line));
    }

    fn of_disks_of_proxmox(&mut self, file: &VmConfiguration, line: &VmConfiguration) {
        let disks = |vm: &VmConfiguration| {
            let mut all = vm.disks.clone();
            all.sort_by(|one, other| one.name.cmp(&other.name));
            all
        };
        let (file, line) = (disks(file), disks(line));
        let names = |disks: &[ConfiguredDisk]| -> Vec<String> {
            disks.iter().map(|disk| disk.name.clone()).collect()
        };
        self.compare("disks", &names(&file), &names(&line));
        for (file, line) in file.iter().zip(&line) {
            let name = &file.name;
            self.compare(name, &file.bus, &line.bus);
            self.compare(name, &file.cache, &line.cache);
            self.compare(name, &file.has_iothread, &line.has_iothread);
            self.compare(name, &file.is_copied_on_read, &line.is_copied_on_read);
            // What the configuration leaves to the storage, and what storage by a network has not.
            if file.aio.is_some() && line.network_storage.is_none() {
                self.compare(name, &file.aio, &line.aio);
            }
            if file.format.is_some() {
                self.compare(name, &file.format, &line.format);
            }
            let limits = |disk: &ConfiguredDisk| -> Vec<String> {
                disk.limits
                    .keys()
                    .filter(|key| *key != "group")
                    .cloned()
                    .collect()
            };
            self.compare(name, &limits(file), &limits(line));
        }
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

/// Compares a manager's text and its command line.
type Compare = fn(&mut Differences, &VmConfiguration, &VmConfiguration);

/// Compares a pair; the lines about it, and whether it was read.
fn compared(pair: &Pair, compare: Compare) -> (Differences, &'static str) {
    let mut all = Differences::default();
    let read = |path: &Path| configuration(&fs::read_to_string(path).unwrap());
    let kind = match (read(&pair.text), read(&pair.command)) {
        (Ok(Some(text)), Ok(Some(line))) => {
            compare(&mut all, &text, &line);
            "read"
        }
        // Programs have names of families.
        (Err(text), Err(line)) => {
            let is_named = |why: String| why.contains("the VM's architecture is");
            all.compare(
                "refusal",
                &is_named(text.to_string()),
                &is_named(line.to_string()),
            );
            "refused"
        }
        (Ok(None), _) => "no configuration",
        (text, line) => {
            all.0.push(format!("text {text:?}, command line {line:?}"));
            "refused by one"
        }
    };
    (all, kind)
}

/// Compares the test guests that both texts give.
fn compare_twins(pair: &Pair, all: &mut Differences) {
    let [of_xml, of_line] =
        [&pair.text, &pair.command].map(|path| twin(path.to_str().unwrap(), None));
    match (of_xml, of_line) {
        (Ok(xml), Ok(line)) => all.of_twins(&xml, &line),
        (Err(_), Err(_)) => {}
        (xml, line) => all.0.push(format!(
            "test guest: XML {:?}, command line {:?}",
            xml.err().map(|why| why.to_string()),
            line.err().map(|why| why.to_string())
        )),
    }
}

/// Compares all pairs, and returns their number by kind; the test fails by a difference that is not known.
fn judge(
    pairs: &[Pair],
    different: &[(&'static str, &'static str)],
    compared: impl Fn(&Pair) -> (Differences, &'static str),
) -> BTreeMap<&'static str, usize> {
    let (mut counts, mut wrong) = (BTreeMap::new(), Vec::new());
    for pair in pairs {
        let name = pair.command.file_name().unwrap().to_string_lossy();
        let (all, kind) = compared(pair);
        *counts.entry(kind).or_default() += 1;
        let known = different.iter().find(|(part, _)| name.contains(part));
        match known.filter(|_| !all.0.is_empty()) {
            Some((_, why)) => *counts.entry(why).or_default() += 1,
            None => wrong.extend(all.0.into_iter().map(|line| format!("{name}: {line}"))),
        }
    }
    println!("{counts:#?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    counts
}

/// The folder that a variable names.
fn folder(variable: &str) -> PathBuf {
    let folder = std::env::var_os(variable);
    PathBuf::from(folder.unwrap_or_else(|| panic!("{variable} names the folder of the pairs")))
}

#[test]
#[ignore = "needs the source of libvirt"]
fn by_hand_pairs_of_libvirt_are_read_alike() {
    let pairs = pairs_of_libvirt(&folder("VMTAX_LIBVIRT_PAIRS"));
    let counts = judge(&pairs, &DIFFERENT_IN_LIBVIRT, |pair| {
        let (mut all, kind) = compared(pair, Differences::of_libvirt);
        compare_twins(pair, &mut all);
        (all, kind)
    });
    // libvirt 9.0 has 687, in the folder qemuxml2argvdata; 11.3 has 831.
    assert!(counts["read"] > 600, "{counts:?}");
    assert!(!counts.contains_key("no configuration"), "{counts:?}");
}

#[test]
#[ignore = "needs the source of Proxmox's qemu-server"]
fn by_hand_pairs_of_proxmox_are_read_alike() {
    let pairs = pairs_of_proxmox(&folder("VMTAX_PROXMOX_PAIRS"));
    let counts = judge(&pairs, &DIFFERENT_IN_PROXMOX, |pair| {
        compared(pair, Differences::of_proxmox)
    });
    assert!(counts["read"] > 70, "{counts:?}");
}
