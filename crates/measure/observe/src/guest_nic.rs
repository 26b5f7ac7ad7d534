//! The measured network card as the guest has it.

use crate::ProbeError;
use crate::guest_disk::of_device;
use std::fs;
use std::path::Path;
use vmtax_model::GuestNic;

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
    let file_name = |path: &Path| {
        fs::canonicalize(path)
            .ok()?
            .file_name()?
            .to_str()
            .map(str::to_owned)
    };
    let device = card.path().join("device");
    let driver = file_name(&device.join("driver")).ok_or_else(|| not("it has no driver"))?;
    if driver != "virtio_net" {
        return Err(not(&format!("its driver is {driver}, not virtio_net")));
    }
    let virtio = file_name(&device).ok_or_else(|| not("it is not a virtio device"))?;
    let name = card.file_name().to_string_lossy().into_owned();
    Ok(GuestNic {
        name,
        interrupts: of_device(interrupts, &virtio, "input"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

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
