//! The files that machines work on: removed at the end, and swept at the next start after a crash.

use crate::MachineError;
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags, fallocate, flock, statvfs};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const NAME: &str = "scratch";
const LOCK: &str = "lock";
/// The disk for raw reads: larger than a device's own read-ahead would hide, small enough to write each time.
const DISK_MIB: u64 = 256;
/// ext4's own structures, the journal foremost, beside the files.
const FILES_SURPLUS_MIB: u64 = 96;

/// A folder for the time of a run: a disk of written data that natively is a file, a disk with ext4 for the guest's
/// files, and a folder for native ones.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
    direct: bool,
    /// Held as long as the folder is in use.
    _lock: File,
}

impl Scratch {
    /// Makes the folder inside `run`, with room for `files_bytes` of files, on each side.
    ///
    /// # Errors
    /// [`MachineError`] when there is no room, no mkfs.ext4, or the folder cannot be written.
    pub fn create(run: &Path, files_bytes: u64) -> Result<Scratch, MachineError> {
        let folder = run.join(NAME);
        let files_mib = files_bytes.div_ceil(1 << 20);
        check_space(run, DISK_MIB + files_mib * 2 + FILES_SURPLUS_MIB)?;
        let shown = folder.display().to_string();
        let failed = |e: std::io::Error| MachineError::system(format!("creating {shown}"), e);
        fs::create_dir(&folder).map_err(failed)?;
        let lock = File::create(folder.join(LOCK)).map_err(failed)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|e| failed(e.into()))?;
        let mut scratch = Scratch { folder, direct: false, _lock: lock };
        fs::create_dir(scratch.native_files()).map_err(failed)?;
        scratch.write_disk()?;
        scratch.format_files_image(files_mib + files_mib / 10 + FILES_SURPLUS_MIB)?;
        scratch.direct = rustix::fs::open(scratch.disk(), OFlags::RDONLY | OFlags::DIRECT, Mode::empty()).is_ok();
        Ok(scratch)
    }

    /// The folder itself.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file of written data: natively read as it is, in a guest a disk.
    pub fn disk(&self) -> PathBuf {
        self.folder.join("disk.raw")
    }

    /// The disk that holds ext4 for a guest's files.
    pub fn files_image(&self) -> PathBuf {
        self.folder.join("files.raw")
    }

    /// The folder for native files.
    pub fn native_files(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// Whether the file system here lets files be read past the page cache.
    pub fn direct(&self) -> bool {
        self.direct
    }

    fn write_disk(&self) -> Result<(), MachineError> {
        let path = self.disk();
        let failed = |e| MachineError::system(format!("writing {}", path.display()), e);
        let mut file = File::create(&path).map_err(failed)?;
        let mut block = vec![0; 1 << 20];
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..DISK_MIB {
            random.fill(&mut block);
            file.write_all(&block).map_err(failed)?;
        }
        file.sync_all().map_err(failed)
    }

    fn format_files_image(&self, mib: u64) -> Result<(), MachineError> {
        let path = self.files_image();
        let failed = |e| MachineError::system(format!("writing {}", path.display()), e);
        let file = File::create(&path).map_err(failed)?;
        // Blocks are there from the start, so that no round pays for the host's allocation. Not every file system can.
        if fallocate(&file, FallocateFlags::empty(), 0, mib << 20).is_err() {
            file.set_len(mib << 20).map_err(failed)?;
        }
        // Not lazy: the guest's kernel must not go on formatting while it is measured.
        let output = Command::new(mkfs())
            .args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
            .arg(&path)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| MachineError::Mkfs { said: format!("cannot be started ({e})") })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(MachineError::Mkfs { said: format!("failed ({})", said.trim()) });
        }
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// An ordinary user's PATH often lacks the sbin folders.
fn mkfs() -> PathBuf {
    let sbin = ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"].map(PathBuf::from);
    sbin.into_iter().find(|p| p.exists()).unwrap_or_else(|| PathBuf::from("mkfs.ext4"))
}

fn check_space(folder: &Path, needed_mib: u64) -> Result<(), MachineError> {
    let room = statvfs(folder).map_err(|e| MachineError::system(format!("looking at {}", folder.display()), e))?;
    let free_mib = (room.f_bavail * room.f_frsize) >> 20;
    if free_mib < needed_mib {
        return Err(MachineError::NoSpace { folder: folder.to_path_buf(), free_mib, needed_mib });
    }
    Ok(())
}

/// Removes the scratch folders under `runs` that a killed run left behind; those in use are locked and stay.
pub fn sweep(runs: &Path) {
    for run in fs::read_dir(runs).into_iter().flatten().flatten() {
        let folder = run.path().join(NAME);
        let Ok(lock) = File::open(folder.join(LOCK)) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(&folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_uses_is_swept() {
        let runs = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let folder = runs.path().join(name).join(NAME);
            fs::create_dir_all(&folder).unwrap();
            File::create(folder.join(LOCK)).unwrap();
            folder
        };
        let (used, left) = (folder("a"), folder("b"));
        let lock = File::open(used.join(LOCK)).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        sweep(runs.path());
        assert!(used.exists() && !left.exists());
    }

    #[test]
    fn no_room_is_said_with_numbers() {
        let run = tempfile::tempdir().unwrap();
        let error = Scratch::create(run.path(), 1 << 60).unwrap_err();
        assert!(matches!(error, MachineError::NoSpace { .. }), "{error}");
        assert!(fs::read_dir(run.path()).unwrap().next().is_none());
    }
}
