//! The files and disks that machines work on.

mod image;
pub(crate) mod tree;

pub use image::images_mib as disk_images_mib;

use crate::MachineError;
use crate::process::child::Watchdog;
use crate::process::remove::remove;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, statvfs};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use vmtax_model::Tree;

const NAME: &str = "scratch";
/// The disk for raw reads: larger than a device's own read-ahead would hide, small enough to write each time.
const DISK_MIB: u64 = 256;
/// Size of the data on the measured disk, bytes.
pub const DISK_BYTES: u64 = DISK_MIB << 20;
/// A guest's uncompressed kernel and its initramfs.
const BOOT_MIB: u64 = 128;

/// Kind of the measured disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskKind {
    /// Written data, for raw reads.
    Data,
    /// So many MiB of ext4, on which a guest keeps what a command writes; again for each guest.
    Layer {
        /// Size of the disk, MiB.
        mib: u32,
    },
}

/// Disks, files and trees that the machines of a run need room for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// The measured disk.
    pub disk: Option<DiskKind>,
    /// True if a guest boots, from a kernel and an initramfs.
    pub guest: bool,
    /// A disk on which a guest keeps its files.
    pub files: bool,
    /// Bytes of files, on each machine.
    pub files_bytes: u64,
    /// The tree that is shared.
    pub tree: Option<Tree>,
    /// Bytes and files that machines make in a tree of the run's own, one after another.
    pub written: (u64, u64),
    /// MiB of images made from it.
    pub images_mib: u64,
}

impl Needs {
    const fn files_mib(&self) -> u64 {
        self.files_bytes.div_ceil(1 << 20)
    }

    /// The files with ext4's own structures, the journal foremost.
    const fn image_mib(&self) -> u64 {
        let files = self.files_mib();
        files.saturating_add(files / 10).saturating_add(96)
    }

    /// A tree of the run's own.
    fn own_tree(&self) -> Option<&Tree> {
        self.tree.as_ref().filter(|tree| tree.path.is_none())
    }

    /// Returns the bytes and inodes that the run's own tree takes, with the files that are written in it.
    fn tree_room(&self) -> (u64, u64) {
        let (bytes, files) = self.written;
        self.own_tree().map(tree::room).map_or((0, 0), |(b, f)| {
            (b.saturating_add(bytes), f.saturating_add(files))
        })
    }

    fn total_mib(&self) -> u64 {
        let disk = match self.disk {
            None => 0,
            Some(DiskKind::Data) => DISK_MIB,
            // It is sparse, but where the host has no room for it a guest's disk would fail midway.
            Some(DiskKind::Layer { mib }) => u64::from(mib),
        };
        let boot = if self.guest { BOOT_MIB } else { 0 };
        let files = if self.files { self.image_mib() } else { 0 };
        let tree = self.tree_room().0.div_ceil(1 << 20);
        let all = [self.files_mib(), disk, boot, files, tree, self.images_mib];
        all.into_iter().fold(0, u64::saturating_add)
    }
}

/// A folder for the time of a run: a disk of written data that natively is a file, a disk with ext4 for the guest's
/// files, and a folder for native ones.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
    needs: Needs,
    direct: bool,
    /// The folder that is shared.
    tree: Option<PathBuf>,
    /// Removes the folder should this program be killed.
    _watchdog: Watchdog,
}

impl Scratch {
    /// Makes the folder inside `run`, and in it what is needed.
    ///
    /// # Errors
    /// [`MachineError`] when there is no room, no mkfs.ext4 for a guest's files, the folder cannot be written, or a tree
    /// of the user's cannot be read.
    pub fn create(run: &Path, needs: Needs) -> Result<Scratch, MachineError> {
        check_space(run, &needs)?;
        if let Some(path) = needs.tree.as_ref().and_then(|tree| tree.path.as_ref()) {
            tree::check(path)?;
        }
        let folder = run.join(NAME);
        let failed = |e: std::io::Error| {
            MachineError::system(format!("creating {}", run.join(NAME).display()), e)
        };
        let watchdog = Watchdog::start(vec![std::path::absolute(&folder).map_err(failed)?])?;
        // Closed to others: a share's server may let root's guest make files that only root should.
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .map_err(failed)?;
        let mut scratch = Scratch {
            folder,
            needs,
            direct: false,
            tree: None,
            _watchdog: watchdog,
        };
        fs::create_dir(scratch.native_files()).map_err(failed)?;
        if let (Some(disk), Some(DiskKind::Data)) = (scratch.disk(), scratch.needs.disk) {
            write_disk(&disk).map_err(|e| full_or(e, run, &scratch.needs, &disk))?;
        }
        if let Some(image) = scratch.files_image() {
            allocate(&image, scratch.needs.image_mib())
                .map_err(|e| full_or(e, run, &scratch.needs, &image))?;
            format(&image, &[])?;
        }
        scratch.tree = match &scratch.needs.tree {
            None => None,
            Some(Tree {
                path: Some(path), ..
            }) => Some(path.clone()),
            Some(own) => {
                let root = scratch.folder.join("tree");
                tree::make(own, &root).map_err(|e| full_or(e, run, &scratch.needs, &root))?;
                Some(root)
            }
        };
        // A server may stand elsewhere.
        let whole = |tree: PathBuf| std::path::absolute(&tree).unwrap_or(tree);
        scratch.tree = scratch.tree.take().map(whole);
        scratch.direct = reads_directly(&scratch.folder);
        Ok(scratch)
    }

    /// The folder itself.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file behind the measured disk, where one is needed. Written data is natively read as it is.
    pub fn disk(&self) -> Option<PathBuf> {
        self.needs.disk.map(|_| self.folder.join("disk.raw"))
    }

    /// Returns true if the measured disk is discarded with its guest.
    pub(crate) fn is_thrown_away(&self) -> bool {
        matches!(self.needs.disk, Some(DiskKind::Layer { .. }))
    }

    /// The disk that holds ext4 for a guest's files, where one is needed.
    pub fn files_image(&self) -> Option<PathBuf> {
        self.needs.files.then(|| self.folder.join("files.raw"))
    }

    /// The tree that is shared, where there is one.
    pub fn tree(&self) -> Option<&Path> {
        self.tree.as_deref()
    }

    /// Returns the shared tree where it is the user's, and only to be read.
    pub fn users_tree(&self) -> Option<&Path> {
        self.needs
            .tree
            .as_ref()
            .and_then(|tree| tree.path.as_deref())
    }

    /// Takes what a machine left out of the tree, if the tree is this run's own, and off the disk that is thrown away.
    ///
    /// # Errors
    /// [`MachineError::NotCleared`] where the kernel refuses that; when the disk cannot be made.
    pub fn clear(&self) -> Result<(), MachineError> {
        if let (Some(disk), Some(DiskKind::Layer { mib })) = (self.disk(), self.needs.disk) {
            // It has its length, and takes what is written to it.
            let made = File::create(&disk).and_then(|file| file.set_len(u64::from(mib) << 20));
            made.map_err(|e| MachineError::system(format!("making {}", disk.display()), e))?;
            // No blocks are reserved for root.
            format(&disk, &["-m", "0"])?;
        }
        match &self.tree {
            Some(root) if self.needs.own_tree().is_some() => tree::clear(root, &self.folder),
            _ => Ok(()),
        }
    }

    /// The folder for native files.
    pub fn native_files(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// Returns true if the file system here lets files be read past the page cache.
    pub fn direct(&self) -> bool {
        self.direct
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = remove(&self.folder);
    }
}

fn write_disk(path: &Path) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    let mut block = vec![0; 1 << 20];
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..DISK_MIB {
        random.fill(&mut block);
        file.write_all(&block)?;
    }
    file.sync_all()
}

/// Blocks are there from the start, so that no round pays for the host's allocation. Not every file system can.
fn allocate(path: &Path, mib: u64) -> std::io::Result<()> {
    let file = File::create(path)?;
    match fallocate(&file, FallocateFlags::empty(), 0, mib << 20) {
        Err(Errno::OPNOTSUPP) => file.set_len(mib << 20),
        other => other.map_err(Into::into),
    }
}

/// Not lazily: the guest's kernel must not go on formatting while it is measured.
fn format(image: &Path, options: &[&str]) -> Result<(), MachineError> {
    let output = Command::new(mkfs())
        .args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
        .args(options)
        .arg(image)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| MachineError::Mkfs {
            said: format!("cannot be started ({e})"),
        })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(MachineError::Mkfs {
            said: format!("failed ({})", said.trim()),
        });
    }
    Ok(())
}

/// An ordinary user's PATH often lacks the sbin folders.
fn mkfs() -> PathBuf {
    let sbin = ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"].map(PathBuf::from);
    sbin.into_iter()
        .find(|p| p.exists())
        .unwrap_or_else(|| PathBuf::from("mkfs.ext4"))
}

fn check_space(folder: &Path, needs: &Needs) -> Result<(), MachineError> {
    let room = statvfs(folder).map_err(|e| {
        MachineError::system(
            format!("checking the free space of {}", folder.display()),
            e,
        )
    })?;
    let free_mib = room.f_bavail.saturating_mul(room.f_frsize) >> 20;
    if free_mib < needs.total_mib() {
        return Err(MachineError::NoSpace {
            folder: folder.to_path_buf(),
            free_mib,
            needed_mib: needs.total_mib(),
        });
    }
    let needed = needs.tree_room().1;
    // A file system without a fixed number of them says 0 of 0.
    if room.f_files > 0 && room.f_favail < needed {
        return Err(MachineError::NoInodes {
            folder: folder.to_path_buf(),
            free: room.f_favail,
            needed,
        });
    }
    Ok(())
}

/// The error of a failed write: no space left, since other programs may have used it after the check, or another reason.
fn full_or(error: std::io::Error, run: &Path, needs: &Needs, path: &Path) -> MachineError {
    if error.kind() == std::io::ErrorKind::StorageFull {
        MachineError::NoSpace {
            folder: run.to_path_buf(),
            free_mib: 0,
            needed_mib: needs.total_mib(),
        }
    } else {
        MachineError::system(format!("writing {}", path.display()), error)
    }
}

/// Returns true if files of a directory can be read past the page cache (`O_DIRECT`).
fn reads_directly(folder: &Path) -> bool {
    let file = folder.join("direct");
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&file, flags, Mode::RUSR | Mode::WUSR).is_ok();
    // It is made also where that is refused.
    let _ = fs::remove_file(file);
    opened
}

/// Removes the scratch folder that a killed process left in a recording.
pub fn remove_scratch(recording: BorrowedFd<'_>) {
    // By the descriptor: the recording's name may stand for another folder by now.
    let _ = remove(&PathBuf::from(format!(
        "/proc/self/fd/{}/{NAME}",
        recording.as_raw_fd()
    )));
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;

    #[test]
    fn scratch_is_removed_where_the_descriptor_is_and_links_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (recording, victim) = (place.path().join("recording"), place.path().join("victim"));
        for folder in [recording.join(NAME), victim.join(NAME)] {
            fs::create_dir_all(folder.join("files")).unwrap();
        }
        let opened = File::open(&recording).unwrap();
        // Another folder takes the recording's place.
        fs::rename(&recording, place.path().join("renamed")).unwrap();
        std::os::unix::fs::symlink(&victim, &recording).unwrap();
        remove_scratch(opened.as_fd());
        assert!(
            victim.join(NAME).join("files").exists()
                && !place.path().join("renamed").join(NAME).exists()
        );
        // As a link it goes, and what it leads to stays.
        std::os::unix::fs::symlink(victim.join(NAME), place.path().join("renamed").join(NAME))
            .unwrap();
        remove_scratch(opened.as_fd());
        assert!(
            victim.join(NAME).join("files").exists()
                && !place.path().join("renamed").join(NAME).exists()
        );
    }

    #[test]
    fn no_room_is_said_with_numbers() {
        let run = tempfile::tempdir().unwrap();
        let needs = Needs {
            disk: Some(DiskKind::Data),
            guest: true,
            files: true,
            files_bytes: 1 << 60,
            tree: None,
            written: (0, 0),
            images_mib: 0,
        };
        let error = Scratch::create(run.path(), needs).unwrap_err();
        assert!(matches!(error, MachineError::NoSpace { .. }), "{error}");
        let tree = Some(Tree {
            files: 1,
            bytes: 1,
            path: None,
        });
        let needs = Needs {
            disk: None,
            guest: false,
            files: false,
            files_bytes: 0,
            tree,
            written: (1 << 60, 0),
            images_mib: 0,
        };
        let error = Scratch::create(run.path(), needs.clone())
            .unwrap_err()
            .to_string();
        assert!(error.contains("bonnie.size"), "{error}");
        let error = check_space(
            run.path(),
            &Needs {
                written: (0, 1 << 60),
                ..needs
            },
        );
        // A file system without a fixed number of inodes has room for any.
        let fixed = statvfs(run.path()).unwrap().f_files > 0;
        assert_eq!(
            error.is_err_and(|e| e.to_string().contains("open-fids.count")),
            fixed
        );
        assert!(fs::read_dir(run.path()).unwrap().next().is_none());
    }
}
