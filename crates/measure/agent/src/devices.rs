//! Devices: waited for, since they appear a moment after their drivers, and found.

use crate::error::AgentError;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vmtax_wire::{BLOCK_QUEUE_PARAMETER, DISK_PARAMETER, DISK_SERIAL};

const APPEAR_TIMEOUT: Duration = Duration::from_secs(5);

/// A SATA, IDE or SCSI disk is probed in the background, and on a busy host an answer may be late: libata asks again after 5, 10 and
/// 30 s (`ata_eh_identify_timeouts` in the kernel's drivers/ata/libata-eh.c).
const PROBE_TIMEOUT: Duration = Duration::from_secs(50);

/// What `find` finds, as soon as it finds it; `None` after some seconds.
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

/// Sets the attributes of its request queue that the kernel command line has.
pub(crate) fn set_block_queue(disk: &Path) -> Result<(), AgentError> {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let queue = Path::new("/sys/block").join(disk.file_name().unwrap_or_default()).join("queue");
    set_attributes(&queue, &line)
}

fn set_attributes(queue: &Path, line: &str) -> Result<(), AgentError> {
    let attributes =
        line.split_whitespace().filter_map(|word| word.strip_prefix(BLOCK_QUEUE_PARAMETER)?.split_once('='));
    for (name, value) in attributes {
        let file = queue.join(name);
        fs::write(&file, value)
            .map_err(|e| AgentError::system(format!("writing {value} to {} of the guest", file.display()), e))?;
    }
    Ok(())
}

/// The block device whose serial number is `serial`.
pub(crate) fn disk_with_serial(serial: &str) -> Option<PathBuf> {
    let has_serial = |disk: &fs::DirEntry| {
        let number = |name| fs::read(disk.path().join(name)).ok();
        SERIALS.iter().filter_map(number).any(|bytes| is_serial(&bytes, serial))
    };
    let mut disks = fs::read_dir("/sys/block").ok()?.flatten();
    let node = disks.find(has_serial).map(|disk| Path::new("/dev").join(disk.file_name()));
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
    fn attributes_of_the_request_queue_are_set_and_one_that_is_not_there_is_an_error() {
        let queue = tempfile::tempdir().unwrap();
        fs::write(queue.path().join("scheduler"), "[mq-deadline] none").unwrap();
        set_attributes(queue.path(), "quiet vmtax.disk vmtax.block-queue.scheduler=none panic=-1\n").unwrap();
        assert_eq!(fs::read_to_string(queue.path().join("scheduler")).unwrap(), "none");
        let error = set_attributes(&queue.path().join("x"), "vmtax.block-queue.nr_requests=4").unwrap_err().to_string();
        assert!(error.contains("writing 4 to ") && error.contains("nr_requests of the guest"), "{error}");
    }

    #[test]
    fn a_serial_number_stands_alone_or_behind_a_header() {
        assert!(is_serial(b"vmtax-disk\n", "vmtax-disk") && is_serial(b"\0\x80\0\x14  vmtax-disk", "vmtax-disk"));
        assert!(!is_serial(b"vmtax", "vmtax-disk") && !is_serial(b"", "vmtax-disk"));
    }
}
