//! Permission to overwrite a disk, for each workload that writes to one: it is the very disk that was named, and nothing on this host
//! uses it.

use crate::WorkloadError;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use vmtax_model::{Places, WorkloadName};

/// Devices of loop devices, each with the file that it reads.
const BLOCK_DEVICES: &str = "/sys/block";

/// Opens `disk`, the one of `places`, which an option of a workload overwrites. While the file is open nobody else mounts the disk or
/// adds it to another device.
///
/// # Errors
/// [`WorkloadError::NotNamed`] where another disk or none may be overwritten; [`WorkloadError::InUse`] where it is mounted, part of
/// another device, or locked by another program.
pub(crate) fn claim(
    disk: &Path,
    places: &Places,
    workload: WorkloadName,
    option: &str,
) -> Result<File, WorkloadError> {
    let named = places.destroy.as_deref();
    if !named.is_some_and(|named| is_same(named, disk)) {
        return Err(WorkloadError::NotNamed {
            workload,
            option: option.to_owned(),
            disk: disk.to_owned(),
        });
    }
    let in_use = |why: String| WorkloadError::InUse {
        workload,
        option: option.to_owned(),
        disk: disk.to_owned(),
        why,
    };
    let is_device = fs::metadata(disk).is_ok_and(|about| about.file_type().is_block_device());
    let exclusive = if is_device { libc::O_EXCL } else { 0 };
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(exclusive)
        .open(disk)
        .map_err(|error| {
            in_use(match error.raw_os_error() {
                Some(libc::EBUSY) => "which is mounted or part of another device".to_owned(),
                _ => format!("which cannot be opened ({error})"),
            })
        })?;
    if let Some(device) = loop_device_of(disk) {
        return Err(in_use(format!("which is the file of /dev/{device}")));
    }
    match is_locked(&file) {
        Ok(false) => Ok(file),
        Ok(true) => Err(in_use(
            "which another program has locked, as QEMU does".to_owned(),
        )),
        Err(error) => Err(in_use(format!("whose locks cannot be read ({error})"))),
    }
}

/// Returns true if both paths lead to one file, or to one device.
fn is_same(one: &Path, other: &Path) -> bool {
    let (Ok(one), Ok(other)) = (fs::metadata(one), fs::metadata(other)) else {
        return false;
    };
    let are_devices = [&one, &other].map(|about| about.file_type().is_block_device());
    match are_devices {
        [true, true] => one.rdev() == other.rdev(),
        [false, false] => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

/// The loop device that reads a file.
fn loop_device_of(disk: &Path) -> Option<String> {
    let devices = fs::read_dir(BLOCK_DEVICES).ok()?.flatten();
    let reads = |device: &fs::DirEntry| {
        let file = fs::read_to_string(device.path().join("loop/backing_file")).ok();
        file.is_some_and(|file| is_same(Path::new(file.trim_end_matches('\n')), disk))
    };
    let mut found = devices.filter(reads);
    Some(found.next()?.file_name().to_string_lossy().into_owned())
}

/// Returns true if another program has a lock on any part of a file.
fn is_locked(file: &File) -> io::Result<bool> {
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the kernel reads and writes this structure, which lives until the call returns.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn claimed(disk: &Path, named: Option<&Path>) -> Result<File, WorkloadError> {
        let places = Places {
            destroy: named.map(ToOwned::to_owned),
            ..Places::default()
        };
        claim(disk, &places, WorkloadName::Fio, "rw=write")
    }

    fn refusal(disk: &Path, named: Option<&Path>) -> String {
        claimed(disk, named).unwrap_err().to_string()
    }

    #[test]
    fn only_the_disk_that_is_named_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let [disk, other, link] = ["disk", "other", "link"].map(|name| folder.path().join(name));
        fs::write(&disk, "a").unwrap();
        fs::write(&other, "a").unwrap();
        std::os::unix::fs::symlink(&disk, &link).unwrap();
        for named in [None, Some(&*other), Some(Path::new("/nonexistent"))] {
            let why = refusal(&disk, named);
            assert!(
                why.starts_with("fio's rw=write would overwrite /") && why.contains("--destroy /"),
                "{why}"
            );
        }
        assert!(claimed(&disk, Some(&link)).is_ok());
    }

    #[test]
    fn what_is_in_use_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        fs::write(&disk, vec![0; 1 << 20]).unwrap();
        let locked = File::open(&disk).unwrap();
        let mut lock = libc::flock {
            l_type: libc::F_RDLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            // As QEMU locks an image.
            l_start: 100,
            l_len: 1,
            l_pid: 0,
        };
        // SAFETY: as above.
        let done = unsafe { libc::fcntl(locked.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) };
        assert_eq!(done, 0);
        assert!(refusal(&disk, Some(&disk)).contains("locked"));
        drop(locked);
        let output = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(&disk)
            .output();
        let Some(output) = output.ok().filter(|output| output.status.success()) else {
            vmtax_model::testing::skipped("no loop device can be made");
            return;
        };
        let device = String::from_utf8(output.stdout).unwrap();
        let device = Path::new(device.trim());
        let (of_file, first) = (refusal(&disk, Some(&disk)), claimed(device, Some(device)));
        let second = refusal(device, Some(device));
        drop(first.unwrap());
        let _ = Command::new("losetup").arg("--detach").arg(device).status();
        assert!(
            of_file.contains(&format!("the file of {}", device.display())),
            "{of_file}"
        );
        assert!(
            second.contains("mounted or part of another device"),
            "{second}"
        );
    }
}
