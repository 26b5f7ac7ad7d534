//! The measured disk as the host has it: a file on a file system on a device. Where a file's bytes lie on it the file system tells
//! (`FS_IOC_FIEMAP`).

use crate::{ProbeError, entries, read_number, read_text};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::fd::AsRawFd;
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

/// The number of the whole device that the file at `path`, or the block device there, has its bytes on in the end: beneath
/// partitions, logical volumes and the like. `None` where there are several, or none.
pub fn lowest_device(path: &Path) -> Option<u64> {
    let data = fs::metadata(path).ok()?;
    let is_device = data.file_type().is_block_device();
    let holder = if is_device { data.rdev() } else { data.dev() };
    lowest(&folder(number(holder)))
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
        (data.dev(), file_extents(&file, data.len(), flush))
    };
    let whole = whole_device(&folder(number(holder))).filter(|whole| !whole.has_paths());
    let Some(whole) = whole else {
        return Ok(HostDisk::default());
    };
    for extent in &mut extents {
        extent.device = extent.device.saturating_add(whole.start);
    }
    Ok(HostDisk {
        device: Some(whole.number),
        is_bio_based: whole.is_bio_based,
        extents,
        descriptors: Vec::new(),
    })
}

/// Returns a device's number as the kernel itself writes it, also in events, by that of `stat`.
pub(crate) fn number(device: u64) -> u64 {
    kernel_number(rustix::fs::major(device), rustix::fs::minor(device))
}

fn kernel_number(major: u32, minor: u32) -> u64 {
    u64::from(major) << 20 | u64::from(minor)
}

/// Returns the number of the device with this folder in /sys.
pub(crate) fn number_in(folder: &Path) -> Option<u64> {
    let number = read_text(folder.join("dev"))?;
    let (major, minor) = number.split_once(':')?;
    Some(kernel_number(major.parse().ok()?, minor.parse().ok()?))
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

/// Returns the disk of a partition, or the device itself. Devices on top of others, as logical volumes, are not followed
/// down: their requests are the VM's, and where those of the lower one lie is in a table.
fn whole_device(folder: &Path) -> Option<WholeDevice> {
    let mut folder = fs::canonicalize(folder).ok()?;
    let mut start = 0;
    if folder.join("partition").exists() {
        start = read_number::<u64>(folder.join("start"))?.checked_mul(SECTOR)?;
        folder = folder.parent()?.to_path_buf();
    }
    Some(WholeDevice {
        number: number_in(&folder)?,
        start,
        is_bio_based: is_bio_based(&folder),
        folder,
    })
}

/// Tells whether the device with this folder, a disk or a partition, takes bios and no requests: since Linux 5.0 every
/// other one has hardware queues.
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
        let mut slaves = entries(device.folder.join("slaves"));
        match (slaves.next(), slaves.next()) {
            (None, _) => return Some(device.number),
            (Some(slave), None) => device = whole_device(&slave.path())?,
            (Some(_), Some(_)) => return None,
        }
    }
    None
}

/// `_IOWR('f', 11, struct fiemap)`, linux/fs.h.
const FS_IOC_FIEMAP: libc::Ioctl = 0xc020_660b;
/// Flag to flush the file first, `FIEMAP_FLAG_SYNC`.
const SYNC: u32 = 1;
/// The file's last extent.
const LAST: u32 = 0x1;
/// Unknown, not yet placed, encoded, encrypted, not on block bounds, inside metadata: no place of raw bytes.
const ELSEWHERE: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200;
/// Extents a call.
const BATCH: usize = 256;
/// More extents than this are not collected.
const MAX_EXTENTS: usize = 1 << 20;

/// `struct fiemap` with room behind it.
#[repr(C)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Raw; BATCH],
}

/// One extent, `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Raw {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// The extents of the first `length` bytes, in order. `flush`: written bytes get their place first, and there are none when the
/// file system does not tell of all of them; else those without a place are left out.
fn file_extents(file: &File, length: u64, flush: bool) -> Vec<Extent> {
    try_extents(file, length, flush).unwrap_or_default()
}

fn try_extents(file: &File, length: u64, flush: bool) -> Option<Vec<Extent>> {
    let (mut found, mut start) = (Vec::new(), 0);
    while start < length {
        let request = request(file, start, length - start, flush)?;
        let mapped = request.extents.get(..request.mapped as usize)?;
        if found.len() > MAX_EXTENTS {
            return None;
        }
        let Some(last) = mapped.last() else { break };
        for raw in mapped {
            if raw.flags & ELSEWHERE == 0 {
                found.push(Extent {
                    file: raw.logical,
                    device: raw.physical,
                    length: raw.length,
                });
            } else if flush {
                return None;
            }
        }
        if last.flags & LAST != 0 {
            break;
        }
        start = last
            .logical
            .checked_add(last.length)
            .filter(|next| *next > start)?;
    }
    Some(found)
}

/// Asks the file system for the extents of `length` bytes from `start` on, as many as there is room for.
fn request(file: &File, start: u64, length: u64, flush: bool) -> Option<Box<Request>> {
    let mut request = Box::new(Request {
        start,
        length,
        flags: if flush { SYNC } else { 0 },
        mapped: 0,
        count: BATCH as u32,
        reserved: 0,
        extents: [Raw::default(); BATCH],
    });
    // SAFETY: the request is laid out as the kernel's `struct fiemap`, says truly how many extents there is room for
    // behind it, and lives for the whole call; the descriptor is an open file's.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut *request) };
    (result == 0).then_some(request)
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
