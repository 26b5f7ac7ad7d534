//! The readers of a Proxmox configuration and of the command line that Proxmox makes of it, over the pairs that Proxmox tests
//! itself with. Not part of the suite: the pairs come with Proxmox's source alone.
//!
//! ```sh
//! git clone https://git.proxmox.com/git/qemu-server.git
//! VMTAX_PROXMOX_PAIRS=$PWD/qemu-server/src/test/cfg2cmd cargo test -p vmtax-configuration --test proxmox_pairs by_hand_pairs -- --ignored
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use vmtax_configuration::configuration;
use vmtax_model::VmConfiguration;

/// Pairs, by a part of their names, that say different things.
const DIFFERENT: [(&str, &str); 5] = [
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

/// The differences of two readings, a line each.
#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn compare<T: Debug + PartialEq>(&mut self, what: &str, file: &T, line: &T) {
        if file != line {
            let text = format!("{what}: configuration {file:?}, command line {line:?}");
            self.0.push(text);
        }
    }

    fn of_configurations(&mut self, file: &VmConfiguration, line: &VmConfiguration) {
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
        self.of_disks(file, line);
        let nics = |vm: &VmConfiguration| -> Vec<String> {
            let text = vm
                .nics
                .iter()
                .map(|nic| format!("{} {} {:?}", nic.model, nic.backend, nic.has_vhost));
            text.collect()
        };
        self.compare("network cards", &nics(file), &nics(line));
    }

    fn of_disks(&mut self, file: &VmConfiguration, line: &VmConfiguration) {
        let disks = |vm: &VmConfiguration| {
            let mut all = vm.disks.clone();
            all.sort_by(|one, other| one.name.cmp(&other.name));
            all
        };
        let (file, line) = (disks(file), disks(line));
        let names = |disks: &[vmtax_model::ConfiguredDisk]| -> Vec<String> {
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
            let limits = |disk: &vmtax_model::ConfiguredDisk| -> Vec<String> {
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

fn compared(file: &Path, command: &Path) -> (Differences, &'static str) {
    let mut all = Differences::default();
    let read = |path: &Path| configuration(&fs::read_to_string(path).unwrap());
    let kind = match (read(file), read(command)) {
        (Ok(Some(file)), Ok(Some(line))) => {
            all.of_configurations(&file, &line);
            "read"
        }
        (Err(file), Err(line)) => {
            let is_named = |why: String| why.contains("the VM is of");
            all.compare(
                "refusal",
                &is_named(file.to_string()),
                &is_named(line.to_string()),
            );
            "refused"
        }
        (Ok(None), _) => "no configuration",
        (file, line) => {
            all.0
                .push(format!("configuration {file:?}, command line {line:?}"));
            "refused by one"
        }
    };
    (all, kind)
}

#[test]
#[ignore = "needs the source of Proxmox's qemu-server"]
fn by_hand_pairs_of_proxmox_are_read_alike() {
    let folder = std::env::var_os("VMTAX_PROXMOX_PAIRS");
    let folder = PathBuf::from(folder.expect("VMTAX_PROXMOX_PAIRS names the folder of the pairs"));
    let (mut counts, mut wrong) = (std::collections::BTreeMap::new(), Vec::new());
    let folders = [folder.join("aarch64"), folder];
    let entries = folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let command = file.with_file_name(format!("{name}.cmd"));
        if !name.ends_with(".conf") || !command.is_file() {
            continue;
        }
        let (all, kind) = compared(&file, &command);
        *counts.entry(kind).or_insert(0) += 1;
        let known = DIFFERENT.iter().find(|(part, _)| name.contains(part));
        match known.filter(|_| !all.0.is_empty()) {
            Some((_, why)) => *counts.entry(why).or_insert(0) += 1,
            None => wrong.extend(all.0.into_iter().map(|line| format!("{name}: {line}"))),
        }
        if kind == "no configuration" {
            println!("{name}: no configuration");
        }
    }
    println!("{counts:#?}");
    assert!(counts["read"] > 70, "{counts:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
