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

/// The device that the file at `path` (or the block device there) has its bytes on, and where on it. A device is known
/// when there is exactly one underlying; places are known when the file system tells and nothing in between moves them.
/// Written bytes are flushed first, so that they have a place.
///
/// # Errors
/// When the file cannot be opened.
pub fn host_disk(path: &Path) -> Result<HostDisk, ProbeError> {
    placed(path, true)
}

/// The same of a file that another works with: nothing is flushed, so bytes that have no place yet are in no extent.
///
/// # Errors
/// As [`host_disk`].
pub fn host_disk_in_use(path: &Path) -> Result<HostDisk, ProbeError> {
    placed(path, false)
}

/// The number of the block device at `path`, as the kernel's block events print it; `None` where no block device is there.
pub fn block_device_number(path: &Path) -> Option<u64> {
    let data = fs::metadata(path).ok().filter(|data| data.file_type().is_block_device())?;
    Some(kernel_number(rustix::fs::major(data.rdev()), rustix::fs::minor(data.rdev())))
}

fn placed(path: &Path, flush: bool) -> Result<HostDisk, ProbeError> {
    let mut file = File::open(path).map_err(|e| ProbeError::file("opening", path, e))?;
    let data = file.metadata().map_err(|e| ProbeError::file("reading", path, e))?;
    let (holder, mut extents) = if data.file_type().is_block_device() {
        let length = file.seek(SeekFrom::End(0)).map_err(|e| ProbeError::file("measuring", path, e))?;
        (data.rdev(), vec![Extent { file: 0, device: 0, length }])
    } else {
        (data.dev(), fiemap::extents(&file, data.len(), flush))
    };
    let number = format!("{}:{}", rustix::fs::major(holder), rustix::fs::minor(holder));
    let Some(underlying) = underlying(Path::new("/sys/dev/block"), &number) else { return Ok(HostDisk::default()) };
    match underlying.moved {
        Some(start) => extents.iter_mut().for_each(|extent| extent.device = extent.device.saturating_add(start)),
        None => extents.clear(),
    }
    Ok(HostDisk { device: Some(underlying.device), extents, descriptors: Vec::new() })
}

/// The whole device under another one.
#[derive(Debug, PartialEq, Eq)]
struct UnderlyingDevice {
    device: u64,
    /// By how many bytes places are moved on the way; `None` where it is more than moving.
    moved: Option<u64>,
}

/// Follows partitions to their disk, and devices on top of a single other one to that. Requests are of the lowest.
fn underlying(block: &Path, number: &str) -> Option<UnderlyingDevice> {
    let mut folder: PathBuf = fs::canonicalize(block.join(number)).ok()?;
    let mut moved = Some(0u64);
    for _ in 0..MAX_DEPTH {
        if folder.join("partition").exists() {
            let start: u64 = fs::read_to_string(folder.join("start")).ok()?.trim().parse().ok()?;
            moved = moved.and_then(|moved| moved.checked_add(start.checked_mul(SECTOR)?));
            folder = folder.parent()?.to_path_buf();
        }
        let mut slaves = fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten();
        match (slaves.next(), slaves.next()) {
            (None, _) => {
                let number = fs::read_to_string(folder.join("dev")).ok()?;
                let (major, minor) = number.trim().split_once(':')?;
                let device = kernel_number(major.parse().ok()?, minor.parse().ok()?);
                return Some(UnderlyingDevice { device, moved });
            }
            // The device mapper and the like: which bytes go where is in a table of theirs.
            (Some(slave), None) => {
                moved = None;
                folder = fs::canonicalize(slave.path()).ok()?;
            }
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
        put("devices/vda/dev", "254:0\n");
        put("devices/vda/vda1/dev", "254:1\n");
        put("devices/vda/vda1/partition", "1\n");
        put("devices/vda/vda1/start", "2048\n");
        put("devices/vdb/dev", "254:16\n");
        put("devices/dm-0/dev", "253:0\n");
        put("devices/md0/dev", "9:0\n");
        for folder in ["dm-0/slaves", "md0/slaves", "vda/slaves"] {
            fs::create_dir_all(root.path().join("devices").join(folder)).unwrap();
        }
        fs::create_dir_all(root.path().join("block")).unwrap();
        for (link, to) in [
            ("block/254:0", "../devices/vda"),
            ("block/254:1", "../devices/vda/vda1"),
            ("block/253:0", "../devices/dm-0"),
            ("block/9:0", "../devices/md0"),
            ("devices/dm-0/slaves/vda1", "../../vda/vda1"),
            ("devices/md0/slaves/vda", "../../vda"),
            ("devices/md0/slaves/vdb", "../../vdb"),
        ] {
            symlink(to, root.path().join(link)).unwrap();
        }
        root
    }

    #[test]
    fn devices_are_followed_down() {
        let root = tree();
        let under = |number: &str| underlying(&root.path().join("block"), number);
        let vda = 254 << 20;
        assert_eq!(under("254:0"), Some(UnderlyingDevice { device: vda, moved: Some(0) }));
        assert_eq!(under("254:1"), Some(UnderlyingDevice { device: vda, moved: Some(2048 * 512) }));
        assert_eq!(under("253:0"), Some(UnderlyingDevice { device: vda, moved: None }));
        assert_eq!(under("9:0"), None);
        assert_eq!(under("0:45"), None);
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
        let Some(device) = disk.device else { return skipped("this folder lies on no block device") };
        let sys = format!("/sys/dev/block/{}:{}", device >> 20, device & 0xf_ffff);
        assert!(Path::new(&sys).exists() && !Path::new(&sys).join("partition").exists(), "{sys}");
        if disk.extents.is_empty() {
            return skipped("this file system does not tell where a file lies");
        }
        assert_eq!(disk.extents[0].file, 0);
        let covered: u64 = disk.extents.iter().map(|extent| extent.length).sum();
        assert!((300_000..300_000 + (1 << 20)).contains(&covered), "{disk:?}");
        assert!(disk.extents.windows(2).all(|w| w[0].file + w[0].length <= w[1].file), "{disk:?}");
    }
}
