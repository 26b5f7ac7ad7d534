//! Code common to the workloads on a tree that is shared between host and guest; natively they run on the folder
//! itself.
//!
//! Files that are there are only read. A workload makes its own in the tree's folder `scratch`.

use crate::WorkloadError;
use crate::descriptor::Yield;
use crate::options::{OptionInfo, switch};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vmtax_model::{Places, Unsupported, WorkloadName};

/// The tree's one folder that is written to.
pub(crate) const SCRATCH: &str = "scratch";
pub(crate) const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

pub(crate) const DROP: OptionInfo = switch(
    "drop",
    "off",
    "drop this system's page, dentry and inode caches before each cold measurement; needs root",
);

/// A file takes whole pages, and its name part of one: what they take of a tree's room, bytes.
pub(crate) const PAGE_BYTES: u64 = 4096;
pub(crate) const NAME_BYTES: u64 = 64;

/// Where the shared tree is.
pub(crate) fn root(workload: WorkloadName, places: &Places) -> Result<&Path, WorkloadError> {
    let missing = WorkloadError::no_place(workload, "a shared tree", "--share DIR");
    let path = places.share.as_deref().ok_or(missing)?;
    // A share that was not mounted must not pass for an empty one.
    std::fs::read_dir(path)
        .map(|_| path)
        .map_err(|e| error("read the directory", path, e))
}

pub(crate) const READ_ONLY: &str = "the share is read-only";

pub(crate) fn is_read_only(places: &Places) -> bool {
    let share = places.share.as_deref();
    let at = share.and_then(|share| rustix::fs::statvfs(share).ok());
    at.is_some_and(|at| at.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

/// Returns the result of a workload that writes, on a read-only share: each metric is unsupported, none failed.
pub(crate) fn read_only(workload: WorkloadName) -> Yield {
    let why = |metric| Unsupported {
        metric,
        reason: READ_ONLY.to_owned(),
    };
    let unsupported = workload.metrics().map(why).collect();
    Yield {
        unsupported,
        ..Yield::default()
    }
}

/// A folder of this workload's own in the share: what a killed trial left there is removed. The folder goes when
/// dropped.
pub(crate) fn own_folder(workload: WorkloadName, places: &Places) -> Result<Folder, WorkloadError> {
    let folder = named_folder(workload, places)?;
    folder.clear().map_err(|e| error("remove", &folder.0, e))?;
    make(folder)
}

/// Returns this workload's own folder in the share, with the files that an earlier trial kept in it.
pub(crate) fn kept_folder(
    workload: WorkloadName,
    places: &Places,
) -> Result<Folder, WorkloadError> {
    let folder = named_folder(workload, places)?;
    if folder.0.is_dir() {
        Ok(folder)
    } else {
        make(folder)
    }
}

fn make(folder: Folder) -> Result<Folder, WorkloadError> {
    std::fs::create_dir(&folder.0).map_err(|e| error("create the directory", &folder.0, e))?;
    Ok(folder)
}

fn named_folder(workload: WorkloadName, places: &Places) -> Result<Folder, WorkloadError> {
    let scratch = root(workload, places)?.join(SCRATCH);
    if !scratch.is_dir() {
        let source = io::Error::from_raw_os_error(libc::ENOENT);
        let fix = "this workload writes only in this directory: create it in the shared tree";
        return Err(WorkloadError::File {
            action: "write in",
            path: scratch,
            source,
            fix,
        });
    }
    Ok(Folder(scratch.join(format!("vmtax-{workload}"))))
}

pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// The folder stays.
    pub(crate) fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.0)
    }

    fn clear(&self) -> io::Result<()> {
        // A removed file that is still open may stay for a moment under another name (NFS, FUSE).
        for _ in 0..20 {
            match std::fs::remove_dir_all(&self.0) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(e) if e.raw_os_error() == Some(libc::ENOTEMPTY) => {
                    std::thread::sleep(Duration::from_millis(50))
                }
                done => return done,
            }
        }
        std::fs::remove_dir_all(&self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            // What will not go is the next trial's to report.
            let _ = self.clear();
        }
    }
}

/// The error of a call on a file of the share.
pub(crate) fn error(
    action: &'static str,
    path: impl AsRef<Path>,
    source: impl Into<io::Error>,
) -> WorkloadError {
    let source = source.into();
    let fix = match source.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => {
            "free space on the tree's filesystem, or use smaller sizes"
        }
        Some(libc::EMFILE | libc::ENFILE) => {
            "raise `ulimit -n` and fs.file-max, or use fewer files"
        }
        Some(libc::EROFS) => "share the tree read-write, or leave this workload out",
        Some(libc::EACCES | libc::EPERM) => {
            "run as a user with this permission, or give another tree"
        }
        Some(libc::ENOENT | libc::ENOTDIR) => {
            "check that the tree exists and that nobody changes it"
        }
        Some(libc::EIO | libc::ETIMEDOUT | libc::ENOTCONN | libc::ESTALE) => {
            "check whether the share's server still runs"
        }
        _ => "give another tree, or use another share method",
    };
    WorkloadError::File {
        action,
        path: path.as_ref().to_owned(),
        source,
        fix,
    }
}

/// Empties this system's caches of files and names, where that is wanted.
pub(crate) fn drop_caches(wanted: bool) -> Result<(), WorkloadError> {
    if !wanted {
        return Ok(());
    }
    rustix::fs::sync();
    std::fs::write(DROP_CACHES, "3").map_err(|source| WorkloadError::File {
        action: "drop the caches through",
        path: DROP_CACHES.into(),
        source,
        fix: "run as root, or give drop=off",
    })
}
