//! The host's check of what a trial of `fs-semantics` left. The guest is not trusted: no link is followed out of the tree, and
//! nothing but a regular file is opened.

use super::behaviour::lock;
use super::linger::{LOCKED, UNLINKED};
use super::properties::{Found, kept_if};
use super::{lingers, properties};
use crate::share::SCRATCH;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use vmtax_model::{Keeping, Kept, WorkloadName, WorkloadSpec};

/// Of what is left behind, so many names are reported.
const NAMES: usize = 5;

/// State of the guest that made the trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestState {
    /// The guest is running.
    Running,
    /// It ended, in whichever way.
    Ended,
}

/// Returns what the host finds that a trial of `workload` left in the shared tree `host_folder`. While the guest runs:
/// whether the files' properties have reached the host as they were set, and whether the lock of a process that
/// lingers keeps the host out. When the guest has ended: the files that this process left behind. Empty for workloads
/// other than `fs-semantics`. Nothing is written.
pub fn check_from_host(
    workload: &WorkloadSpec,
    host_folder: &Path,
    guest: GuestState,
) -> Vec<Kept> {
    if workload.name != WorkloadName::FsSemantics {
        return Vec::new();
    }
    let lingers = lingers(workload);
    let folder = host_folder
        .join(SCRATCH)
        .join(format!("vmtax-{}", WorkloadName::FsSemantics));
    match guest {
        GuestState::Running => {
            let seen = properties::ALL.iter().map(|t| {
                kept(
                    t.what,
                    inside(&folder, "").and_then(|f| (t.check)(&f.path())),
                )
            });
            // Without a process in the guest that holds a lock, there is none to run into.
            seen.chain(lingers.then(|| kept("byte-range locks", locked(&folder))))
                .collect()
        }
        GuestState::Ended if lingers => vec![kept("release of unlinked open files", left(&folder))],
        GuestState::Ended => Vec::new(),
    }
}

/// Result of one check; an error means that the host does not find it: it is lost, not refused.
fn kept(what: &str, found: Found) -> Kept {
    let (keeping, detail) = found.unwrap_or_else(|e| (Keeping::Lost, e.to_string()));
    Kept {
        what: what.to_owned(),
        keeping,
        detail,
    }
}

/// Something in the tree, found without following a link below it, and not opened yet.
struct Inside(OwnedFd);

impl Inside {
    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

fn inside(folder: &Path, name: &str) -> io::Result<Inside> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    // The way to the run's own tree is the host's; below it, from `scratch` on, anything may be the guest's making.
    let below = folder
        .ancestors()
        .nth(2)
        .and_then(|root| folder.strip_prefix(root).ok().map(|below| (root, below)));
    let (root, below) = below.ok_or(io::ErrorKind::InvalidInput)?;
    let root = rustix::fs::openat(CWD, root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let path = if name.is_empty() {
        below.to_owned()
    } else {
        below.join(name)
    };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    Ok(Inside(rustix::fs::openat2(
        root,
        path,
        flags,
        Mode::empty(),
        resolve,
    )?))
}

fn locked(folder: &Path) -> Found {
    let found = inside(folder, LOCKED)?;
    if FileType::from_raw_mode(rustix::fs::fstat(&found.0)?.st_mode) != FileType::RegularFile {
        return kept_if(false, "it is no regular file");
    }
    let file = File::options()
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(found.path())?;
    match lock(&file) {
        Ok(()) => kept_if(false, "the guest's lock does not keep the host out"),
        Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {
            kept_if(true, "the guest's lock keeps the host out")
        }
        Err(e) => Err(e),
    }
}

fn left(folder: &Path) -> Found {
    let mut names = Vec::new();
    for entry in fs::read_dir(inside(folder, UNLINKED)?.path())?.take(NAMES) {
        let entry = entry?;
        names.push(format!(
            "{} ({} KiB)",
            entry.file_name().to_string_lossy(),
            entry.metadata()?.len() >> 10
        ));
    }
    if names.is_empty() {
        kept_if(true, "nothing is left of it")
    } else {
        kept_if(false, names.join(", "))
    }
}
