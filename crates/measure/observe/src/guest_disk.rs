//! The measured disk as the guest has it.

use crate::ProbeError;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use vmtax_model::GuestDisk;

/// The disk `path` (`/dev/vda`): its number, and the interrupts of its request queues.
///
/// # Errors
/// When it is no block device, or another driver than virtio-blk's has it.
pub fn guest_disk(path: &Path) -> Result<GuestDisk, ProbeError> {
    let data = fs::metadata(path).map_err(|e| ProbeError::file("reading", path, e))?;
    let not = |why: &str| ProbeError::NotVirtio { disk: path.into(), why: why.into() };
    if !data.file_type().is_block_device() {
        return Err(not("it is not a block device"));
    }
    let (major, minor) = (rustix::fs::major(data.rdev()), rustix::fs::minor(data.rdev()));
    // /sys/dev/block/254:0/device is the virtio device, `virtio1`, and its driver says of which kind it is.
    let device = Path::new("/sys/dev/block").join(format!("{major}:{minor}")).join("device");
    let link = |path: &Path| {
        let target = fs::canonicalize(path).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    };
    match link(&device.join("driver")).as_deref() {
        Some("virtio_blk") => {}
        Some(other) => return Err(not(&format!("its driver is {other}"))),
        None => return Err(not("it has no driver: it is a partition or a stacked device")),
    }
    let name = link(&device).ok_or_else(|| not("it is not a virtio device"))?;
    let interrupts = fs::read_to_string("/proc/interrupts").unwrap_or_default();
    Ok(GuestDisk { device: kernel_number(major, minor), interrupts: of_device(&interrupts, &name) })
}

/// A device's number as the kernel itself writes it, also in events.
pub(crate) fn kernel_number(major: u32, minor: u32) -> u64 {
    u64::from(major) << 20 | u64::from(minor)
}

/// The interrupts of a virtio device's request queues: `virtio1-req.0` where each queue has its own, else the shared
/// line, on which the device stands as `virtio1`, perhaps among others.
fn of_device(interrupts: &str, device: &str) -> Vec<u32> {
    let with = |wanted: &dyn Fn(&str) -> bool| -> Vec<u32> {
        let lines = interrupts.lines().filter(|line| line.split([' ', ',', '\t']).any(wanted));
        lines.filter_map(|line| line.split_once(':')?.0.trim().parse().ok()).collect()
    };
    let queue = format!("{device}-req");
    // With one vector for all queues the kernel names it after them together.
    let together = format!("{device}-virtqueues");
    let own = with(&|word| word.strip_prefix(&queue).is_some_and(|rest| rest.starts_with('.')) || word == together);
    if own.is_empty() { with(&|word| word == device) } else { own }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A guest of 6.1 with two disks.
    const OWN: &str = "           CPU0       CPU1
  0:         36          0   IO-APIC   2-edge      timer
 24:          0          0   PCI-MSI 32768-edge      virtio0-config
 27:       5123          7   PCI-MSI 49152-edge      virtio1-config
 28:       5123          7   PCI-MSI 49153-edge      virtio1-req.0
 29:          1          7   PCI-MSI 49154-edge      virtio1-req.1
 30:         16          0   PCI-MSI 65536-edge      virtio11-config
 31:       1600          0   PCI-MSI 65537-edge      virtio11-req.0
LOC:      12345      12345   Local timer interrupts
";

    #[test]
    fn queues_have_interrupts_of_their_own_or_share_the_line() {
        assert_eq!(of_device(OWN, "virtio1"), [28, 29]);
        assert_eq!(of_device(OWN, "virtio11"), [31]);
        assert_eq!(of_device(OWN, "virtio2"), [] as [u32; 0]);
        let shared = " 10:    100   IO-APIC  10-fasteoi   uhci_hcd:usb1, virtio1,virtio3\n 11:  7  IO-APIC  11-fasteoi   virtio2\n";
        assert_eq!(of_device(shared, "virtio1"), [10]);
        assert_eq!(of_device(shared, "virtio3"), [10]);
        assert_eq!(of_device(shared, "virtio2"), [11]);
        let one = " 27:  5  PCI-MSI 49152-edge  virtio1-config\n 28:  5  PCI-MSI 49153-edge  virtio1-virtqueues\n";
        assert_eq!(of_device(one, "virtio1"), [28]);
    }

    #[test]
    fn what_is_no_virtio_disk_is_refused() {
        let error = guest_disk(Path::new("/dev/null")).unwrap_err();
        assert!(matches!(&error, ProbeError::NotVirtio { .. }) && error.to_string().contains("/dev/null"), "{error}");
        assert!(matches!(guest_disk(Path::new("/nonexistent")), Err(ProbeError::System { .. })));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "[ 0-9a-zA-Z:.,\\-\n]{0,200}") {
            let _ = of_device(&text, "virtio1");
        }
    }
}
