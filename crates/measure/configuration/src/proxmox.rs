//! The configuration in a VM's file of Proxmox, as `qm config` prints it. Format: its manual page qm.conf(5).

use super::command_line::debugging;
use super::{ConfigurationError, card_model, is_windows_name};
use vmtax_model::{ConfiguredDisk, ConfiguredNic, Manager, VmConfiguration};
use vmtax_vmm::qemu::arguments::{Arguments, Properties, is_on};

/// Keys of disks, without their numbers.
const DISKS: [(&str, &str); 4] = [
    ("virtio", "virtio-blk"),
    ("scsi", "virtio-scsi"),
    ("sata", "sata"),
    ("ide", "ide"),
];
/// Keys of which every VM's file has some, beside those of its devices.
const USUAL: [&str; 15] = [
    "agent", "bios", "boot", "bootdisk", "cores", "machine", "memory", "numa", "ostype", "scsihw",
    "smbios1", "sockets", "vga", "vmgenid", "vcpus",
];
/// Further keys, without their numbers.
const OTHERS: [&str; 58] = [
    "acpi",
    "affinity",
    "allow-ksm",
    "amd-sev",
    "arch",
    "args",
    "audio",
    "autostart",
    "balloon",
    "cdrom",
    "cicustom",
    "cipassword",
    "citype",
    "ciupgrade",
    "ciuser",
    "cpu",
    "cpulimit",
    "cpuunits",
    "description",
    "digest",
    "freeze",
    "hookscript",
    "hotplug",
    "hugepages",
    "intel-tdx",
    "ipconfig",
    "ivshmem",
    "keephugepages",
    "keyboard",
    "kvm",
    "localtime",
    "lock",
    "meta",
    "migrate_downtime",
    "migrate_speed",
    "name",
    "nameserver",
    "onboot",
    "parallel",
    "protection",
    "reboot",
    "rng",
    "searchdomain",
    "serial",
    "shares",
    "spice_enhancements",
    "sshkeys",
    "startdate",
    "startup",
    "tablet",
    "tags",
    "tdf",
    "template",
    "tpmstate",
    "unused",
    "usb",
    "virtiofs",
    "watchdog",
];
/// Keys of devices, without their numbers.
const DEVICES: [&str; 7] = ["virtio", "scsi", "sata", "ide", "net", "efidisk", "hostpci"];
/// Models of a network card: the key has the MAC address.
const CARDS: [&str; 14] = [
    "virtio",
    "e1000",
    "e1000-82540em",
    "e1000-82544gc",
    "e1000-82545em",
    "e1000e",
    "rtl8139",
    "vmxnet3",
    "ne2k_isa",
    "ne2k_pci",
    "pcnet",
    "i82551",
    "i82557b",
    "i82559er",
];

/// The lines `KEY: VALUE` of the VM itself: its snapshots come behind it.
fn entries(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = text.lines().take_while(|line| !line.starts_with('['));
    lines
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(": "))
        .map(|(key, value)| (key.trim(), value.trim()))
}

/// The kind of a device, of whose key `scsi0` the number is the rest; `None` for another key.
fn device(key: &str) -> Option<&str> {
    let kind = key.trim_end_matches(|c: char| c.is_ascii_digit());
    (kind.len() < key.len() && DEVICES.contains(&kind)).then_some(kind)
}

/// Returns true for a text with at least two of the keys that each VM has, or with one and none but a VM's.
pub(super) fn is_config(text: &str) -> bool {
    let is_usual = |key: &str| USUAL.contains(&key) || device(key).is_some();
    let is_known = |key: &str| {
        let kind = key.trim_end_matches(|c: char| c.is_ascii_digit());
        is_usual(key) || OTHERS.contains(&kind)
    };
    match entries(text).filter(|(key, _)| is_usual(key)).count() {
        0 => false,
        1 => {
            let mut lines = text.lines().take_while(|line| !line.starts_with('['));
            let is_entry = |line: &str| line.split_once(": ").is_some_and(|(key, _)| is_known(key));
            lines.all(|line| line.starts_with('#') || line.trim().is_empty() || is_entry(line))
        }
        _ => true,
    }
}

/// The value of a key.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    entries(text)
        .find(|(name, _)| *name == key)
        .map(|(_, value)| value)
}

/// # Errors
/// [`ConfigurationError::Architecture`] of a VM that is not of x86.
pub(super) fn read(text: &str) -> Result<VmConfiguration, ConfigurationError> {
    if let Some(arch) = value(text, "arch").filter(|arch| *arch != "x86_64") {
        return Err(ConfigurationError::Architecture(arch.to_owned()));
    }
    let get = |key: &str| value(text, key);
    let number = |key: &str, default: u32| {
        get(key)
            .and_then(|value| value.parse().ok())
            .unwrap_or(default)
    };
    let name = get("name").unwrap_or("without a name");
    let sockets = number("sockets", 1);
    let cores = number("cores", 1).saturating_mul(sockets);
    let memory = Properties::parse(get("memory").unwrap_or("512"));
    let memory = memory
        .first("current")
        .and_then(|mib| mib.parse::<u64>().ok());
    let ostype = get("ostype").unwrap_or("other");
    let is_windows = ostype.starts_with('w');
    let machine = Properties::parse(get("machine").unwrap_or_default());
    let machine = machine.first("type").filter(|name| !name.is_empty());
    let mut found = VmConfiguration {
        source: format!("Proxmox VM {name}"),
        manager: Some(Manager::Proxmox),
        is_kvm: Some(get("kvm") != Some("0")),
        machine_type: Some(machine.unwrap_or("pc").to_owned()),
        windows: match () {
            () if is_windows => Some(format!("its ostype is {ostype}")),
            () if is_windows_name(name) => {
                Some(format!("its name is {name}, though its ostype is {ostype}"))
            }
            () => None,
        },
        cpus: number("vcpus", cores).max(1),
        sockets: Some(sockets),
        memory: memory.unwrap_or(512).saturating_mul(1 << 20),
        has_huge_pages: get("hugepages").is_some(),
        has_usb_tablet: has_tablet(get("tablet"), get("vga")),
        cpu_limit: get("cpulimit")
            .and_then(|limit| limit.parse::<f64>().ok())
            .filter(|limit| *limit > 0.0)
            .map(|limit| (limit * 1000.0) as u64),
        wrappers: get("affinity")
            .map(|_| "taskset".to_owned())
            .into_iter()
            .collect(),
        ..VmConfiguration::default()
    };
    read_windows(ostype, get("bios") == Some("ovmf"), &mut found);
    read_cpu(get("cpu").unwrap_or_default(), &mut found);
    found.debugging = get("args").map_or(Vec::new(), debugging_by);
    read_devices(text, &mut found);
    Ok(found)
}

/// Reads what Proxmox decides by the version of Windows: enlightenments, and that there is no HPET.
fn read_windows(ostype: &str, is_uefi: bool, found: &mut VmConfiguration) {
    let version = match ostype {
        "wvista" | "w2k8" => 6,
        "win7" => 7,
        "win8" => 8,
        "win10" => 10,
        "win11" => 11,
        // Older ones know none.
        _ => return,
    };
    found.hpet = Some(false);
    if found.is_kvm != Some(true) || is_uefi && version < 8 {
        return;
    }
    let of_all = ["spinlocks", "vapic", "time", "reset", "vpindex", "runtime"];
    let of_later = ["relaxed", "synic", "stimer", "ipi"];
    let of_later = of_later.iter().filter(|_| version >= 7);
    for name in of_all.iter().chain(of_later) {
        found.enlightenments.insert((*name).to_owned(), true);
    }
}

/// Proxmox has a tablet where it is not told, but beside a serial console or SPICE.
fn has_tablet(given: Option<&str>, vga: Option<&str>) -> bool {
    let is_without = |vga: &str| vga.starts_with("serial") || vga.starts_with("qxl");
    given.map_or_else(|| !vga.is_some_and(is_without), |given| given != "0")
}

/// Options of QEMU's that make it log or count each of the guest's instructions.
fn debugging_by(arguments: &str) -> Vec<String> {
    // The program comes first.
    let words = std::iter::once("kvm").chain(arguments.split_whitespace());
    debugging(&Arguments::from_iter(words.map(str::to_owned)))
}

/// Reads the CPU's model and flags.
fn read_cpu(text: &str, found: &mut VmConfiguration) {
    let cpu = Properties::parse(text);
    // Proxmox's own default.
    let model = cpu.first("cputype").filter(|name| !name.is_empty());
    found.cpu_model = Some(model.unwrap_or("kvm64").to_owned());
    if cpu.get("hidden").and_then(is_on) == Some(true) || cpu.get("hidden") == Some("1") {
        found.cpu_features.insert("kvm".to_owned(), false);
    }
    for flag in cpu.get("flags").unwrap_or_default().split(';') {
        if let Some((sign @ ("+" | "-"), name)) = flag.split_at_checked(1) {
            let (switches, name) = match name.strip_prefix("hv-") {
                Some(name) => (&mut found.enlightenments, name),
                None => (&mut found.cpu_features, name),
            };
            switches.insert(name.to_owned(), sign == "+");
        }
    }
}

/// Reads disks and network cards, whose keys have numbers.
fn read_devices(text: &str, found: &mut VmConfiguration) {
    let controller = value(text, "scsihw").unwrap_or("lsi");
    let is_q35 = found
        .machine_type
        .as_deref()
        .is_some_and(|name| name.contains("q35"));
    for (key, value) in entries(text) {
        let Some(kind) = device(key) else {
            continue;
        };
        if let Some((_, bus)) = DISKS.iter().find(|(known, _)| *known == kind) {
            // The controller of q35 for IDE disks is AHCI.
            let bus = if is_q35 && *bus == "ide" { "sata" } else { bus };
            found.disks.extend(disk(key, bus, value, controller));
        } else if kind == "net" {
            found.nics.push(nic(key, value));
        }
    }
}

/// A disk; `None` for a CD-ROM and for Proxmox's own of cloud-init.
fn disk(key: &str, bus: &str, value: &str, controller: &str) -> Option<ConfiguredDisk> {
    let disk = Properties::parse(value);
    let volume = disk.first("file")?;
    if disk.get("media") == Some("cdrom") || volume == "none" || volume.contains("cloudinit") {
        return None;
    }
    let is_scsi = bus == "virtio-scsi";
    let given = disk.get("format").map(str::to_owned);
    let by_name = volume.rsplit_once('.').map(|(_, end)| end.to_owned());
    let limits = disk.all().filter_map(|(key, value)| limit(key, value));
    Some(ConfiguredDisk {
        name: key.to_owned(),
        bus: if is_scsi && !controller.starts_with("virtio-scsi") {
            controller
        } else {
            bus
        }
        .to_owned(),
        network_storage: None,
        format: given.or(by_name.filter(|end| ["raw", "qcow2", "vmdk"].contains(&end.as_str()))),
        cache: disk.get("cache").unwrap_or("none").to_owned(),
        aio: disk.get("aio").map(str::to_owned),
        // Proxmox gives each disk a controller of its own only there.
        has_iothread: disk.get("iothread") == Some("1")
            && (!is_scsi || controller == "virtio-scsi-single"),
        limits: limits.collect(),
        is_copied_on_read: false,
    })
}

/// A limit by QEMU's name: `mbps_rd_max` is `bps-read-max`, in MiB; `None` for any other property.
fn limit(key: &str, value: &str) -> Option<(String, String)> {
    let (unit, rest) = match (key.strip_prefix("iops"), key.strip_prefix("mbps")) {
        (Some(rest), _) => ("iops", rest),
        (None, Some(rest)) => ("bps", rest),
        // Only lengths of bursts have this name.
        (None, None) => (
            "bps",
            key.strip_prefix("bps")
                .filter(|_| key.ends_with("_length"))?,
        ),
    };
    let kinds = [("_rd", "read"), ("_wr", "write"), ("", "total")];
    let mut kinds = kinds.into_iter();
    let (kind, end) = kinds.find_map(|(sign, kind)| Some((kind, rest.strip_prefix(sign)?)))?;
    let (end, is_length) = match end {
        "" => ("", false),
        "_max" => ("-max", false),
        "_max_length" => ("-max-length", true),
        _ => return None,
    };
    let value = match unit {
        "bps" if !is_length => format!("{value} MiB"),
        _ => value.to_owned(),
    };
    Some((format!("{unit}-{kind}{end}"), value))
}

fn nic(key: &str, value: &str) -> ConfiguredNic {
    let nic = Properties::parse(value);
    let by_address = nic
        .all()
        .find(|(key, _)| CARDS.contains(key))
        .map(|(key, _)| key);
    let model = by_address.or(nic.first("model")).unwrap_or_default();
    ConfiguredNic {
        name: key.to_owned(),
        model: card_model(model).unwrap_or_else(|| model.to_owned()),
        backend: if nic.get("bridge").is_some() {
            "tap"
        } else {
            "user"
        }
        .to_owned(),
        // Proxmox starts taps of virtio's cards with vhost-net.
        has_vhost: nic.get("bridge").map(|_| model == "virtio"),
        limit: nic.get("rate").map(|rate| format!("{rate} MB/s")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_proxmox_is_read() {
        let text = "# a note\nname: win-srv\ncores: 4\nsockets: 2\nmemory: 8192\nostype: win11\ncpu: x86-64-v2-AES,flags=+aes;-pcid\n\
                    scsi0: local-lvm:vm-1-disk-0,cache=writethrough,iops_rd=300,mbps=20,iothread=1,size=32G\nide2: none,media=cdrom\n\
                    net0: e1000=BC:24:11:00:00:01,bridge=vmbr0,rate=10\ncpulimit: 1.5\nargs: -icount 1\n[snap]\nscsi9: a:b";
        assert!(is_config(text));
        assert!(is_config(
            "# a note\nmachine: q35,viommu=intel\ncpu: host\n"
        ));
        for other in [
            "name: a\ntags: b",
            "machine: q35\nimage: b",
            "machine: q35\nversion 2",
        ] {
            assert!(!is_config(other), "{other}");
        }
        let found = read(text).unwrap();
        assert_eq!(
            (found.cpus, found.memory, found.cpu_limit),
            (8, 8 << 30, Some(1500))
        );
        assert_eq!(found.cpu_model.as_deref(), Some("x86-64-v2-AES"));
        assert!(found.enlightenments["ipi"] && found.has_usb_tablet && !found.cpu_features["pcid"]);
        let disk = &found.disks[0];
        assert_eq!(
            (found.disks.len(), disk.bus.as_str(), disk.cache.as_str()),
            (1, "lsi", "writethrough")
        );
        let limits: Vec<_> = disk
            .limits
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        assert_eq!(
            (limits, disk.has_iothread),
            (
                vec!["bps-total=20 MiB".to_owned(), "iops-read=300".to_owned()],
                false
            )
        );
        let nic = &found.nics[0];
        assert_eq!(
            (
                nic.model.as_str(),
                nic.backend.as_str(),
                nic.limit.as_deref()
            ),
            ("e1000", "tap", Some("10 MB/s"))
        );
        assert_eq!(found.debugging, ["-icount"]);
        assert!(!is_config("key: value\ncores: 2"));
        let cloud = read("cores: 1\nmemory: 512\nvga: serial0").unwrap();
        assert!(!cloud.has_usb_tablet);
    }

    #[test]
    fn what_proxmox_decides_itself_is_read() {
        let text = "machine: type=q35,viommu=virtio\nide0: local:1/a.raw,mbps_rd_max=9,iops_max=7,iops_max_length=2,bps_wr_max_length=3\n\
                    ostype: w2k\naffinity: 0-3\nnet0: e1000=BC:24:11:00:00:01,bridge=vmbr0\ncpu: host,flags=-hv-tlbflush;+aes";
        assert!(is_config(text) && is_config("scsi0: a:b,size=1G\nscsi1: a:c"));
        let found = read(text).unwrap();
        assert_eq!(
            (found.machine_type.as_deref(), found.wrappers.len()),
            (Some("q35"), 1)
        );
        let disk = &found.disks[0];
        assert_eq!((disk.bus.as_str(), disk.limits.len()), ("sata", 4));
        let value = |key: &str| disk.limits[key].as_str();
        assert_eq!(
            (value("bps-read-max"), value("iops-total-max")),
            ("9 MiB", "7")
        );
        assert_eq!(
            (
                value("iops-total-max-length"),
                value("bps-write-max-length")
            ),
            ("2", "3")
        );
        assert_eq!(found.nics[0].has_vhost, Some(false));
        assert_eq!(
            (found.hpet, found.enlightenments.len()),
            (None, 1),
            "Windows 2000 knows none"
        );
        let vista = read("ostype: wvista\nbios: ovmf\nkvm: 1").unwrap();
        assert_eq!(vista.cpu_model.as_deref(), Some("kvm64"));
        assert!(vista.hpet == Some(false) && vista.enlightenments.is_empty());
        let arm = read("arch: aarch64\nmemory: 512").unwrap_err().to_string();
        assert!(arm.starts_with("the VM's architecture is aarch64"), "{arm}");
    }
}
