//! Devices: waited for, since they appear a moment after their drivers, and found.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vmtax_wire::{DISK_PARAMETER, DISK_SERIAL};

const APPEAR_TIMEOUT: Duration = Duration::from_secs(5);

/// A SATA, IDE or SCSI disk is probed in the background, and on a busy host an answer may be late: libata asks again after 5, 10 and
/// 30 s (`ata_eh_identify_timeouts` in the kernel's drivers/ata/libata-eh.c).
const PROBE_TIMEOUT: Duration = Duration::from_secs(50);

/// Returns the result of `find` as soon as it is not `None`; `None` after 5 s (`APPEAR_TIMEOUT`).
pub(crate) fn wait_for<T>(find: impl Fn() -> Option<T>) -> Option<T> {
    wait_up_to(APPEAR_TIMEOUT, find)
}

fn wait_up_to<T>(timeout: Duration, find: impl Fn() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + timeout;
    loop {
        let found = find();
        if found.is_some() || Instant::now() > deadline {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Where a disk has its serial number: virtio-blk, NVMe, and SCSI with SATA, in a page with a header of 4 bytes.
const SERIALS: [&str; 3] = ["serial", "device/serial", "device/vpd_pg80"];

/// The measured disk; waited for where the controller says that it appears later.
pub(crate) fn measured_disk() -> Option<PathBuf> {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    match line.split_whitespace().any(|word| word == DISK_PARAMETER) {
        true => wait_up_to(PROBE_TIMEOUT, || disk_with_serial(DISK_SERIAL)),
        false => disk_with_serial(DISK_SERIAL),
    }
}

/// The block device whose serial number is `serial`.
pub(crate) fn disk_with_serial(serial: &str) -> Option<PathBuf> {
    let has_serial = |disk: &fs::DirEntry| {
        let number = |name| fs::read(disk.path().join(name)).ok();
        SERIALS
            .iter()
            .filter_map(number)
            .any(|bytes| is_serial(&bytes, serial))
    };
    let mut disks = fs::read_dir("/sys/block").ok()?.flatten();
    let node = disks
        .find(has_serial)
        .map(|disk| Path::new("/dev").join(disk.file_name()));
    // It is made a moment after the device.
    node.filter(|node| node.exists())
}

fn is_serial(bytes: &[u8], serial: &str) -> bool {
    let is = |text: &[u8]| text.trim_ascii() == serial.as_bytes();
    is(bytes) || bytes.get(4..).is_some_and(is)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_number_stands_alone_or_behind_a_header() {
        assert!(
            is_serial(b"vmtax-disk\n", "vmtax-disk")
                && is_serial(b"\0\x80\0\x14  vmtax-disk", "vmtax-disk")
        );
        assert!(!is_serial(b"vmtax", "vmtax-disk") && !is_serial(b"", "vmtax-disk"));
    }
}
