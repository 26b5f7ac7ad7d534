//! Brings files that are closed to a user within that user's reach, in a mount namespace of this process's own: an empty
//! folder covers the closed one above them, and holds nothing else.

use crate::MachineError;
use crate::sandbox::mounts::{self, unshare};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::umask;
use rustix::thread::UnshareFlags;
use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

const READ: u32 = 4;
const WRITE: u32 = 2;
/// To pass a folder, or to execute a file.
const EXECUTE: u32 = 1;

/// Who is to reach the files.
pub(crate) struct Reach<'a> {
    /// The number of the user, and of the user's group.
    pub user: u32,
    /// Supplementary groups of the user.
    pub groups: &'a [u32],
}

/// File or directory to be mounted at a path.
enum Content {
    /// A file or folder that the user may use, only not reach.
    Mounted(OwnedFd),
    /// A copy in place of a file that the user may not use.
    Copied(File),
    /// The user's own in place of the character device of this number.
    Device(u64),
}

impl Reach<'_> {
    /// Brings these files and folders within reach; those that are not there stay so. Files that the user may reach, but not
    /// read, become copies, and devices the user's own.
    ///
    /// # Errors
    /// [`MachineError::System`] where the kernel allows no mounts.
    pub fn bring(&self, paths: &[PathBuf]) -> Result<(), MachineError> {
        let failed = |e| {
            let what = "mounting QEMU's files for its user (run as an ordinary user, or where root may mount)";
            MachineError::system(what, e)
        };
        let mut closed = BTreeSet::new();
        for path in paths {
            let Ok(target) = fs::canonicalize(path) else {
                continue;
            };
            let named = std::path::absolute(path).map_err(failed)?;
            for path in [named, target] {
                if let Some(part) = self.first_closed(&path).map_err(failed)? {
                    closed.insert((path, part));
                }
            }
        }
        if closed.is_empty() {
            return Ok(());
        }
        unshare(UnshareFlags::NEWNS).map_err(|e| failed(e.into()))?;
        mounts::keep_private()?;
        let mask = umask(Mode::WGRP | Mode::WOTH);
        let done = self.put(closed);
        umask(mask);
        done.map_err(failed)
    }

    /// The folder two above a file, as `PREFIX` of `PREFIX/bin/qemu`, or what of the path below is not itself closed.
    pub fn installation(&self, file: &Path) -> io::Result<PathBuf> {
        let file = fs::canonicalize(file)?;
        let open = |part: &&Path| part.metadata().is_ok_and(|about| self.may(&about, EXECUTE));
        Ok(file
            .ancestors()
            .take(3)
            .take_while(open)
            .last()
            .unwrap_or(&file)
            .to_path_buf())
    }

    /// Mounts the content of each path over the outermost part of it that is closed.
    fn put(&self, closed: BTreeSet<(PathBuf, PathBuf)>) -> io::Result<()> {
        let here = std::env::current_dir()?;
        let taken: io::Result<Vec<_>> = closed
            .into_iter()
            .map(|(path, part)| Ok((path.metadata()?, self.take(&path)?, path, part)))
            .collect();
        let mut covered = BTreeSet::new();
        for (about, content, path, part) in taken? {
            if part != path {
                if !covered.contains(&part) {
                    let flags = MountFlags::NOSUID | MountFlags::NODEV;
                    mount("tmpfs", &part, "tmpfs", flags, Some(c"mode=0755"))?;
                    covered.insert(part);
                }
                mount_point(&path, about.is_dir())?;
            }
            let tree = match content {
                Content::Mounted(tree) => tree,
                Content::Copied(from) => aside(&path, || copy(from, &path))?,
                Content::Device(number) => aside(&path, || self.make_device(number, &path))?,
            };
            mounts::attach(&tree, &path)?;
        }
        // It is still that below a cover.
        if covered.iter().any(|cover| here.starts_with(cover)) {
            fs::create_dir_all(&here)?;
            std::env::set_current_dir(&here)?;
        }
        Ok(())
    }

    /// The outermost part of a path that the user may not use.
    fn first_closed(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        let mut parts: Vec<&Path> = path.ancestors().collect();
        parts.reverse();
        for part in parts {
            let about = part.metadata()?;
            let needed = if part == path {
                needed(&about)
            } else {
                EXECUTE
            };
            if !self.may(&about, needed) {
                return Ok(Some(part.to_path_buf()));
            }
        }
        Ok(None)
    }

    /// Returns true if the user has these permissions by the file's mode.
    fn may(&self, about: &Metadata, needed: u32) -> bool {
        let is_of_group = about.gid() == self.user || self.groups.contains(&about.gid());
        let shift = if about.uid() == self.user {
            6
        } else if is_of_group {
            3
        } else {
            0
        };
        (about.mode() >> shift) & needed == needed
    }

    /// Opens the content that is to be mounted at a path, before anything covers it.
    fn take(&self, path: &Path) -> io::Result<Content> {
        let about = path.metadata()?;
        Ok(if about.is_dir() || self.may(&about, needed(&about)) {
            Content::Mounted(mounts::clone_tree(path)?)
        } else if about.file_type().is_char_device() {
            Content::Device(about.rdev())
        } else {
            Content::Copied(File::open(path)?)
        })
    }

    /// Makes a character device of the user's.
    fn make_device(&self, number: u64, path: &Path) -> io::Result<()> {
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, path, FileType::CharacterDevice, mode, number)?;
        chown(path, Some(self.user), Some(self.user))
    }
}

/// Makes a copy that everybody can read and execute.
fn copy(mut from: File, path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o555);
    io::copy(&mut from, &mut options.open(path)?).map(drop)
}

/// Makes a file at `path` in a folder that is mounted over that of the path for the moment; gives it as a mount.
fn aside(path: &Path, make: impl FnOnce() -> io::Result<()>) -> io::Result<OwnedFd> {
    let folder = path.parent().unwrap_or(path);
    mount(
        "tmpfs",
        folder,
        "tmpfs",
        MountFlags::NOSUID,
        Some(c"mode=0755"),
    )?;
    make()?;
    let tree = mounts::clone_tree(path)?;
    unmount(folder, UnmountFlags::DETACH)?;
    Ok(tree)
}

/// Returns the permissions that a user needs to use a file.
fn needed(about: &Metadata) -> u32 {
    let is_program = about.mode() & 0o100 != 0;
    match about.file_type() {
        kind if kind.is_char_device() => READ | WRITE,
        kind if kind.is_dir() || is_program => READ | EXECUTE,
        _ => READ,
    }
}

/// Makes something that can be mounted on. Nothing that stands there is changed: it may be mounted already.
fn mount_point(path: &Path, is_folder: bool) -> io::Result<()> {
    if is_folder {
        return fs::create_dir_all(path);
    }
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}
