//! The measured disk as the host has it: a file on a file system on a device.

use crate::ProbeError;
use crate::fiemap;
use crate::guest_disk::kernel_number;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use vmtax_model::{Extent, HostDisk};

/// Block devices stacked deeper than this are not followed.
const MAX_DEPTH: usize = 8;
/// Units of /sys/dev/block/*/start.
const SECTOR: u64 = 512;

/// The device that the file at `path` (or the block device there) has its bytes on, and where on it, which the file system tells.
/// Written bytes are flushed first, so that they have a place.
///
/// # Errors
/// When the file cannot be opened.
pub fn host_disk(path: &Path) -> Result<HostDisk, ProbeError> {
    placed(path, true)
}

/// Returns the host's disk of a file that another process uses, as [`host_disk`] does, but flushes nothing: bytes that
/// have no place yet are in no extent.
///
/// # Errors
/// As [`host_disk`].
pub fn host_disk_in_use(path: &Path) -> Result<HostDisk, ProbeError> {
    placed(path, false)
}

/// The number of the block device at `path`, as the kernel's block events print it; `None` where no block device is there.
pub fn block_device_number(path: &Path) -> Option<u64> {
    let data = fs::metadata(path)
        .ok()
        .filter(|data| data.file_type().is_block_device())?;
    Some(number(data.rdev()))
}

/// The number of the whole device that the file at `path`, or the block device there, has its bytes on in the end: beneath partitions,
/// logical volumes and the like. `None` where there are several, or none.
pub fn lowest_device(path: &Path) -> Option<u64> {
    let data = fs::metadata(path).ok()?;
    lowest(&folder(number(if data.file_type().is_block_device() {
        data.rdev()
    } else {
        data.dev()
    })))
}

fn placed(path: &Path, flush: bool) -> Result<HostDisk, ProbeError> {
    let mut file = File::open(path).map_err(|e| ProbeError::file("opening", path, e))?;
    let data = file
        .metadata()
        .map_err(|e| ProbeError::file("reading", path, e))?;
    let (holder, mut extents) = if data.file_type().is_block_device() {
        let length = file
            .seek(SeekFrom::End(0))
            .map_err(|e| ProbeError::file("measuring", path, e))?;
        (
            data.rdev(),
            vec![Extent {
                file: 0,
                device: 0,
                length,
            }],
        )
    } else {
        (data.dev(), fiemap::extents(&file, data.len(), flush))
    };
    let whole = whole_device(&folder(number(holder))).filter(|whole| !whole.has_paths());
    let Some(WholeDevice {
        number,
        start,
        is_bio_based,
        ..
    }) = whole
    else {
        return Ok(HostDisk::default());
    };
    extents
        .iter_mut()
        .for_each(|extent| extent.device = extent.device.saturating_add(start));
    Ok(HostDisk {
        device: Some(number),
        is_bio_based,
        extents,
        descriptors: Vec::new(),
    })
}

/// Returns a device's number as the kernel's block events print it, by that of `stat`.
fn number(device: u64) -> u64 {
    kernel_number(rustix::fs::major(device), rustix::fs::minor(device))
}

/// Returns the folder in /sys of the device with this number.
pub(crate) fn folder(number: u64) -> PathBuf {
    format!("/sys/dev/block/{}:{}", number >> 20, number & 0xf_ffff).into()
}

/// A block device that is no partition.
#[derive(Debug, PartialEq, Eq)]
struct WholeDevice {
    /// The number as the kernel's block events print it.
    number: u64,
    /// Begin of the partition that was asked about, in bytes.
    start: u64,
    is_bio_based: bool,
    /// The folder in /sys.
    folder: PathBuf,
}

impl WholeDevice {
    /// Tells whether it is an NVMe disk of several paths: each of its bios becomes one of a path, and ends as that.
    fn has_paths(&self) -> bool {
        self.is_bio_based
            && self
                .folder
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"nvme"))
    }
}

/// Returns the disk of a partition, or the device itself. Devices on top of others, as logical volumes, are not followed down: their
/// requests are the VM's, and where those of the lower one lie is in a table.
fn whole_device(folder: &Path) -> Option<WholeDevice> {
    let mut folder = fs::canonicalize(folder).ok()?;
    let mut start = 0;
    if folder.join("partition").exists() {
        start = fs::read_to_string(folder.join("start"))
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()?
            .checked_mul(SECTOR)?;
        folder = folder.parent()?.to_path_buf();
    }
    let number = fs::read_to_string(folder.join("dev")).ok()?;
    let (major, minor) = number.trim().split_once(':')?;
    let number = kernel_number(major.parse().ok()?, minor.parse().ok()?);
    Some(WholeDevice {
        number,
        start,
        is_bio_based: is_bio_based(&folder),
        folder,
    })
}

/// Tells whether the device with this folder, a disk or a partition, takes bios and no requests: since Linux 5.0 every other one has
/// hardware queues.
pub(crate) fn is_bio_based(folder: &Path) -> bool {
    let disk = if folder.join("partition").exists() {
        folder.parent().unwrap_or(folder)
    } else {
        folder
    };
    !disk.join("mq").exists()
}

/// Returns the device beneath a partition or a device on top of others, as far as there is one alone.
fn lowest(folder: &Path) -> Option<u64> {
    let mut device = whole_device(folder)?;
    for _ in 0..MAX_DEPTH {
        let mut slaves = fs::read_dir(device.folder.join("slaves"))
            .into_iter()
            .flatten()
            .flatten();
        match (slaves.next(), slaves.next()) {
            (None, _) => return Some(device.number),
            (Some(slave), None) => device = whole_device(&slave.path())?,
            (Some(_), Some(_)) => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use vmtax_model::testing::{put, skipped};

    /// A tree like /sys: a disk with a partition, a volume on that, a mirror of two disks.
    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| put(root.path(), file, text).unwrap();
        put("vda/dev", "254:0\n");
        put("vda/mq/0/nr_tags", "256\n");
        put("vda/vda1/dev", "254:1\n");
        put("vda/vda1/partition", "1\n");
        put("vda/vda1/start", "2048\n");
        put("vdb/dev", "254:16\n");
        put("dm-0/dev", "253:0\n");
        put("md0/dev", "9:0\n");
        put("nvme0n1/dev", "259:0\n");
        put("nvme1n1/dev", "259:1\n");
        put("nvme1n1/mq/0/nr_tags", "256\n");
        for (upper, lower) in [("dm-0", "vda/vda1"), ("md0", "vda"), ("md0", "vdb")] {
            let slaves = root.path().join(upper).join("slaves");
            fs::create_dir_all(&slaves).unwrap();
            symlink(
                root.path().join(lower),
                slaves.join(lower.rsplit('/').next().unwrap()),
            )
            .unwrap();
        }
        root
    }

    #[test]
    fn a_partition_is_a_place_on_its_disk_and_a_volume_a_device_of_bios() {
        let root = tree();
        let device_facts = |name: &str| {
            let device = whole_device(&root.path().join(name))?;
            Some((device.number >> 20, device.start, device.is_bio_based))
        };
        assert_eq!(device_facts("vda"), Some((254, 0, false)));
        assert_eq!(device_facts("vda/vda1"), Some((254, 2048 * 512, false)));
        assert_eq!(device_facts("dm-0"), Some((253, 0, true)));
        assert_eq!(device_facts("none"), None);
        let has_paths = |name: &str| whole_device(&root.path().join(name)).unwrap().has_paths();
        assert_eq!(
            [
                has_paths("dm-0"),
                has_paths("nvme0n1"),
                has_paths("nvme1n1")
            ],
            [false, true, false]
        );
    }

    #[test]
    fn a_volume_lies_on_a_disk_and_a_mirror_on_none_alone() {
        let root = tree();
        let lowest_device = |name: &str| lowest(&root.path().join(name));
        let vda = Some(254 << 20);
        assert_eq!(
            [
                lowest_device("vda"),
                lowest_device("vda/vda1"),
                lowest_device("dm-0"),
                lowest_device("md0")
            ],
            [vda, vda, vda, None]
        );
    }

    #[test]
    fn a_file_in_memory_has_no_device() {
        let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        assert_eq!(host_disk(file.path()).unwrap(), HostDisk::default());
        assert!(host_disk(Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn a_file_on_disk_has_places_for_all_its_bytes() {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        fs::write(file.path(), vec![7; 300_000]).unwrap();
        let disk = host_disk(file.path()).unwrap();
        let Some(device) = disk.device else {
            return skipped("this folder lies on no block device");
        };
        let sys = format!("/sys/dev/block/{}:{}", device >> 20, device & 0xf_ffff);
        assert!(
            Path::new(&sys).exists() && !Path::new(&sys).join("partition").exists(),
            "{sys}"
        );
        if disk.extents.is_empty() {
            return skipped("this file system does not tell where a file lies");
        }
        assert_eq!(disk.extents[0].file, 0);
        let covered: u64 = disk.extents.iter().map(|extent| extent.length).sum();
        assert!(
            (300_000..300_000 + (1 << 20)).contains(&covered),
            "{disk:?}"
        );
        assert!(
            disk.extents
                .windows(2)
                .all(|w| w[0].file + w[0].length <= w[1].file),
            "{disk:?}"
        );
    }
}
