//! The measured disk and the measured network card as the guest has them.

use crate::host_disk;
use crate::{ProbeError, entries, read_text};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use vmtax_model::{GuestDisk, GuestNic, ObservedDisk, ObservedGuest};

/// The disk `path` (`/dev/vda`): its number, and the interrupts of its request queues.
///
/// # Errors
/// When it is no block device, or another driver than virtio-blk's has it.
pub fn guest_disk(path: &Path) -> Result<GuestDisk, ProbeError> {
    let data = fs::metadata(path).map_err(|e| ProbeError::file("reading", path, e))?;
    let not = |why: &str| ProbeError::NotVirtio {
        disk: path.into(),
        why: why.into(),
    };
    if !data.file_type().is_block_device() {
        return Err(not("it is not a block device"));
    }
    let number = host_disk::number(data.rdev());
    // /sys/dev/block/254:0/device is the virtio device, `virtio1`, and its driver says of which kind it is.
    let device = host_disk::folder(number).join("device");
    match real_name(&device.join("driver")).as_deref() {
        Some("virtio_blk") => {}
        Some(other) => return Err(not(&format!("its driver is {other}"))),
        None => {
            return Err(not(
                "it has no driver: it is a partition or a stacked device",
            ));
        }
    }
    let name = real_name(&device).ok_or_else(|| not("it is not a virtio device"))?;
    let interrupts = fs::read_to_string("/proc/interrupts").unwrap_or_default();
    Ok(GuestDisk {
        device: number,
        interrupts: of_device(&interrupts, &name, "req"),
    })
}

/// All disks of this guest on virtio-blk and virtio-scsi, by name.
pub fn guest_disks() -> Vec<ObservedDisk> {
    let mut disks = disks_in(
        Path::new("/sys/block"),
        &fs::read_to_string("/proc/interrupts").unwrap_or_default(),
    );
    disks.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
    disks.truncate(ObservedGuest::MAX_DISKS);
    disks
}

fn disks_in(block: &Path, interrupts: &str) -> Vec<ObservedDisk> {
    entries(block)
        .filter_map(|entry| observed_disk(&entry.path(), interrupts))
        .collect()
}

/// The disk in this folder of /sys/block; `None` for one of another driver.
fn observed_disk(folder: &Path, interrupts: &str) -> Option<ObservedDisk> {
    let text = |path: &Path| read_text(path).unwrap_or_default();
    let file_name = |path: &Path| path.file_name()?.to_str().map(str::to_owned);
    // Of a SCSI disk `virtio2/host0/target0:0:0/0:0:0:0`, of which the first is the device that has the queues.
    let disk = fs::canonicalize(folder.join("device")).ok()?;
    let queues = |device: &Path| match real_name(&device.join("driver"))?.as_str() {
        "virtio_blk" => Some("req"),
        "virtio_scsi" => Some("request"),
        _ => None,
    };
    let (device, queues) = disk
        .ancestors()
        .take(4)
        .find_map(|device| Some((device, queues(device)?)))?;
    let on_pci = device
        .parent()
        .filter(|parent| parent.join("resource").exists());
    Some(ObservedDisk {
        name: file_name(folder)?,
        serial: text(&folder.join("serial")),
        address: on_pci.and_then(file_name).unwrap_or_default(),
        regions: on_pci.map_or_else(Vec::new, |pci| regions(&text(&pci.join("resource")))),
        disk: GuestDisk {
            device: host_disk::number_in(folder)?,
            interrupts: of_device(interrupts, &file_name(device)?, queues),
        },
    })
}

/// The name of what a path leads to in the end.
fn real_name(path: &Path) -> Option<String> {
    Some(
        fs::canonicalize(path)
            .ok()?
            .file_name()?
            .to_str()?
            .to_owned(),
    )
}

/// First address and length of each region of a PCI device: lines of first, last, flags.
fn regions(resource: &str) -> Vec<(u64, u64)> {
    let number = |word: Option<&str>| u64::from_str_radix(word?.trim_start_matches("0x"), 16).ok();
    let region = |line: &str| {
        let mut words = line.split(' ');
        let (first, last) = (number(words.next())?, number(words.next())?);
        (last > first).then(|| (first, (last - first).saturating_add(1)))
    };
    resource.lines().filter_map(region).collect()
}

/// The interrupts of a virtio device's queues of this name: `virtio1-req.0` where each queue has its own (`virtio1-request` each on
/// virtio-scsi), else the shared line, on which the device stands as `virtio1`, perhaps among others.
fn of_device(interrupts: &str, device: &str, queues: &str) -> Vec<u32> {
    let interrupts_with = |wanted: &dyn Fn(&str) -> bool| -> Vec<u32> {
        let lines = interrupts
            .lines()
            .filter(|line| line.split([' ', ',', '\t']).any(wanted));
        lines
            .filter_map(|line| line.split_once(':')?.0.trim().parse().ok())
            .collect()
    };
    let queue = format!("{device}-{queues}");
    // With one vector for all queues the kernel names it after them together.
    let together = format!("{device}-virtqueues");
    let own = interrupts_with(&|word| {
        word.strip_prefix(&queue)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            || word == together
    });
    if own.is_empty() {
        interrupts_with(&|word| word == device)
    } else {
        own
    }
}

/// The network card with this MAC address: the interrupts of its receive queues.
///
/// # Errors
/// When there is none, or another driver than virtio-net's has it.
pub fn guest_nic(mac: &str) -> Result<GuestNic, ProbeError> {
    nic_in(
        Path::new("/sys/class/net"),
        mac,
        &fs::read_to_string("/proc/interrupts").unwrap_or_default(),
    )
}

fn nic_in(class: &Path, mac: &str, interrupts: &str) -> Result<GuestNic, ProbeError> {
    let not = |why: &str| ProbeError::NoNic {
        mac: mac.to_owned(),
        why: why.to_owned(),
    };
    let has_mac = |entry: &fs::DirEntry| {
        fs::read_to_string(entry.path().join("address"))
            .is_ok_and(|address| address.trim_end() == mac)
    };
    let cards = fs::read_dir(class).map_err(|e| ProbeError::file("reading", class, e))?;
    let card = cards
        .flatten()
        .find(has_mac)
        .ok_or_else(|| not("the guest has no network card with this address"))?;
    let device = card.path().join("device");
    let driver = real_name(&device.join("driver")).ok_or_else(|| not("it has no driver"))?;
    if driver != "virtio_net" {
        return Err(not(&format!("its driver is {driver}, not virtio_net")));
    }
    let virtio = real_name(&device).ok_or_else(|| not("it is not a virtio device"))?;
    let name = card.file_name().to_string_lossy().into_owned();
    Ok(GuestNic {
        name,
        interrupts: of_device(interrupts, &virtio, "input"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    /// A guest of 6.1 with two disks, and a controller of virtio-scsi with two queues.
    const OWN: &str = "           CPU0       CPU1
  0:         36          0   IO-APIC   2-edge      timer
 24:          0          0   PCI-MSI 32768-edge      virtio0-config
 27:       5123          7   PCI-MSI 49152-edge      virtio1-config
 28:       5123          7   PCI-MSI 49153-edge      virtio1-req.0
 29:          1          7   PCI-MSI 49154-edge      virtio1-req.1
 30:         16          0   PCI-MSI 65536-edge      virtio11-config
 31:       1600          0   PCI-MSI 65537-edge      virtio11-req.0
 32:          3          0   PCI-MSI 81920-edge      virtio2-event
 33:        900          0   PCI-MSI 81921-edge      virtio2-request
 34:          0        700   PCI-MSI 81922-edge      virtio2-request
LOC:      12345      12345   Local timer interrupts
";

    #[test]
    fn queues_have_interrupts_of_their_own_or_share_the_line() {
        assert_eq!(of_device(OWN, "virtio1", "req"), [28, 29]);
        assert_eq!(of_device(OWN, "virtio11", "req"), [31]);
        assert_eq!(of_device(OWN, "virtio2", "req"), [] as [u32; 0]);
        let shared = " 10:    100   IO-APIC  10-fasteoi   uhci_hcd:usb1, virtio1,virtio3\n 11:  7  IO-APIC  11-fasteoi   virtio2\n";
        assert_eq!(of_device(shared, "virtio1", "req"), [10]);
        assert_eq!(of_device(shared, "virtio3", "req"), [10]);
        assert_eq!(of_device(shared, "virtio2", "req"), [11]);
        let one = " 27:  5  PCI-MSI 49152-edge  virtio1-config\n 28:  5  PCI-MSI 49153-edge  virtio1-virtqueues\n";
        assert_eq!(of_device(one, "virtio1", "req"), [28]);
    }

    #[test]
    fn what_is_no_virtio_disk_is_refused() {
        let error = guest_disk(Path::new("/dev/null")).unwrap_err();
        assert!(
            matches!(&error, ProbeError::NotVirtio { .. })
                && error.to_string().contains("/dev/null"),
            "{error}"
        );
        assert!(matches!(
            guest_disk(Path::new("/nonexistent")),
            Err(ProbeError::System { .. })
        ));
    }

    #[test]
    fn disks_of_virtio_are_listed_with_their_pci_device() {
        let root = tempfile::tempdir().unwrap();
        let pci = root.path().join("devices/pci0000:00/0000:00:04.0");
        let put = |path: &Path, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(
            &pci.join("resource"),
            "0x000000000000c000 0x000000000000c07f 0x0000000000040101\n0x0000000000000000 0x0000000000000000 0x0\n0x00000000febd1000 0x00000000febd1fff 0x40200\n",
        );
        put(&pci.join("virtio1/block/vda/dev"), "254:16\n");
        put(&pci.join("virtio1/block/vda/serial"), "web01-root\n");
        put(&root.path().join("drivers/virtio_blk/bind"), "");
        put(&root.path().join("devices/sdb/dev"), "8:16\n");
        let other = root.path().join("devices/pci0000:00/0000:00:05.0");
        let lun = other.join("virtio2/host0/target0:0:0/0:0:0:0");
        put(
            &other.join("resource"),
            "0x00000000febd2000 0x00000000febd2fff 0x40200\n",
        );
        put(&lun.join("block/sda/dev"), "8:0\n");
        put(&root.path().join("drivers/virtio_scsi/bind"), "");
        put(&root.path().join("drivers/sd/bind"), "");
        fs::create_dir_all(root.path().join("block")).unwrap();
        let link = |from: PathBuf, to: PathBuf| std::os::unix::fs::symlink(from, to).unwrap();
        link(
            root.path().join("drivers/virtio_blk"),
            pci.join("virtio1/driver"),
        );
        link(pci.join("virtio1"), pci.join("virtio1/block/vda/device"));
        link(pci.join("virtio1/block/vda"), root.path().join("block/vda"));
        link(
            root.path().join("devices/sdb"),
            root.path().join("block/sdb"),
        );
        link(root.path().join("drivers/sd"), lun.join("driver"));
        link(
            root.path().join("drivers/virtio_scsi"),
            other.join("virtio2/driver"),
        );
        link(lun.clone(), lun.join("block/sda/device"));
        link(lun.join("block/sda"), root.path().join("block/sda"));
        let disk = ObservedDisk {
            name: "vda".to_owned(),
            serial: "web01-root".to_owned(),
            address: "0000:00:04.0".to_owned(),
            regions: vec![(0xc000, 0x80), (0xfebd_1000, 0x1000)],
            disk: GuestDisk {
                device: 254 << 20 | 16,
                interrupts: vec![28, 29],
            },
        };
        let scsi = ObservedDisk {
            name: "sda".to_owned(),
            serial: String::new(),
            address: "0000:00:05.0".to_owned(),
            regions: vec![(0xfebd_2000, 0x1000)],
            disk: GuestDisk {
                device: 8 << 20,
                interrupts: vec![33, 34],
            },
        };
        let mut found = disks_in(&root.path().join("block"), OWN);
        found.sort_by(|a, b| b.name.cmp(&a.name));
        assert_eq!(found, [disk, scsi]);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "[ 0-9a-zA-Z:.,\\-\n]{0,200}") {
            let _ = of_device(&text, "virtio1", "req");
            let _ = regions(&text);
        }
    }

    #[test]
    fn a_card_is_found_by_its_address_with_the_interrupts_of_its_receive_queues() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let (class, devices, drivers) = (
            root.path().join("class"),
            root.path().join("dev"),
            root.path().join("drv"),
        );
        for (card, virtio, driver, mac) in [
            ("eth0", "virtio3", "virtio_net", "aa"),
            ("eth1", "pci7", "e1000", "bb"),
        ] {
            put(class.join(card).join("address"), &format!("{mac}\n"));
            fs::create_dir_all(devices.join(virtio)).unwrap();
            fs::create_dir_all(drivers.join(driver)).unwrap();
            symlink(devices.join(virtio), class.join(card).join("device")).unwrap();
            symlink(drivers.join(driver), devices.join(virtio).join("driver")).unwrap();
        }
        let interrupts = " 30:  9  PCI-MSI 1-edge  virtio3-config\n 31:  9  PCI-MSI 2-edge  virtio3-input.0\n \
                          32:  9  PCI-MSI 3-edge  virtio3-output.0\n";
        let nic = nic_in(&class, "aa", interrupts).unwrap();
        assert_eq!(
            nic,
            GuestNic {
                name: "eth0".to_owned(),
                interrupts: vec![31]
            }
        );
        let refused = |mac| nic_in(&class, mac, interrupts).unwrap_err().to_string();
        assert!(
            refused("bb").contains("its driver is e1000"),
            "{}",
            refused("bb")
        );
        assert!(
            refused("cc").contains("has no network card"),
            "{}",
            refused("cc")
        );
    }
}
