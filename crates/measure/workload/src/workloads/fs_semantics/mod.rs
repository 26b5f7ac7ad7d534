//! `fs-semantics`: what a share preserves of files and how they behave, each found by trying it.
//!
//! The properties that a file *has* (owner, attributes, type, …) are set first and checked afterwards, past this
//! system's caches if `drop` says so, by the same functions that [`check_from_host`] then uses on the host's side of
//! the share. The way in which files *behave* (renamed or unlinked while open, locked, mapped) is tried in one go. The
//! files stay in the share's folder `scratch/vmtax-fs-semantics` for the host to check, until the next trial. With
//! `linger` a process stays too, that holds a lock and an unlinked file.

mod properties;

use crate::descriptor::{Room, Workload, Yield, workload};
use crate::options::{OptionInfo, count};
use crate::share::{DROP, READ_ONLY, SCRATCH, drop_caches, error, is_read_only, own_folder};
use crate::{Clock, WorkloadError};
use properties::{Found, LOCKED, Property, UNLINKED, kept_if, lock};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;
use vmtax_model::{Keeping, Kept, Places, WorkloadName, WorkloadSpec};

const LINGER: OptionInfo = count(
    "linger",
    "0",
    0..=86_400,
    "seconds for which a process keeps a lock and an unlinked file; 0: no process does",
);

workload! {
    FsSemantics: "which POSIX semantics and metadata a share preserves";
    drop: bool = DROP;
    linger: u32 = LINGER;
}

/// `fs-semantics`, after which a process stays for so many seconds that holds a lock and an unlinked file.
pub fn lingering(seconds: u32) -> WorkloadSpec {
    WorkloadSpec::new(WorkloadName::FsSemantics).with(LINGER.name, seconds)
}

/// Returns true if the spec leaves a process behind.
fn lingers(spec: &WorkloadSpec) -> bool {
    spec.options
        .get(LINGER.name)
        .is_some_and(|seconds| seconds != "0")
}

/// The result of one attempt or check; an error of the system is `failed`.
fn kept(what: &str, found: Found, failed: Keeping) -> Kept {
    let (keeping, detail) = found.unwrap_or_else(|e| (failed, e.to_string()));
    Kept {
        what: what.to_owned(),
        keeping,
        detail,
    }
}

impl Workload for FsSemantics {
    fn room(&self, _: u64) -> Room {
        // Its files have a name and little else.
        Room {
            share_bytes: 1 << 20,
            share_files: 100,
            ..Room::default()
        }
    }

    fn run(&self, _: &Clock, places: &Places) -> Result<Yield, WorkloadError> {
        if is_read_only(places) {
            let refused = kept(
                "writing",
                Ok((Keeping::Refused, READ_ONLY.to_owned())),
                Keeping::Refused,
            );
            return Ok(Yield {
                kept: vec![refused],
                ..Yield::default()
            });
        }
        let began = Instant::now();
        let folder = own_folder(WorkloadName::FsSemantics, places)?.keep();
        let set: Vec<io::Result<()>> = properties::ALL.iter().map(|t| (t.set)(&folder)).collect();
        drop_caches(self.drop)?;
        let mut got = Yield::default();
        for (property, set) in properties::ALL.iter().zip(set) {
            let found = set.and_then(|()| (property.check)(&folder));
            got.kept.push(kept(property.what, found, Keeping::Refused));
        }
        for (what, attempt) in properties::BEHAVIOURS {
            got.kept
                .push(kept(what, attempt(&folder), Keeping::Refused));
        }
        if self.linger > 0 {
            properties::leave_process(&folder, self.linger)
                .map_err(|e| error("start a process that holds files of", &folder, e))?;
        }
        got.total_s = began.elapsed().as_secs_f64();
        Ok(got)
    }
}

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
    // An error means that the host does not find it: it is lost, not refused.
    let kept = |what, found| kept(what, found, Keeping::Lost);
    let folder = host_folder
        .join(SCRATCH)
        .join(format!("vmtax-{}", WorkloadName::FsSemantics));
    match guest {
        GuestState::Running => {
            let found = |t: &Property| inside(&folder, "").and_then(|f| (t.check)(&f.path()));
            let seen = properties::ALL.iter().map(|t| kept(t.what, found(t)));
            // Without a process in the guest that holds a lock, there is none to run into.
            seen.chain(lingers.then(|| kept("byte-range locks", locked(&folder))))
                .collect()
        }
        GuestState::Ended if lingers => vec![kept("release of unlinked open files", left(&folder))],
        GuestState::Ended => Vec::new(),
    }
}

/// Something in the tree, found without following a link below it, and not opened yet.
struct Inside(OwnedFd);

impl Inside {
    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

/// Opens a file of the tree. The guest is not trusted: no link is followed out of the tree, and nothing but a regular file is opened.
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
    let opened = rustix::fs::openat2(root, path, flags, Mode::empty(), resolve);
    Ok(Inside(opened?))
}

fn locked(folder: &Path) -> Found {
    let found = inside(folder, LOCKED)?;
    if FileType::from_raw_mode(rustix::fs::fstat(&found.0)?.st_mode) != FileType::RegularFile {
        return kept_if(false, "it is not a regular file");
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
        let (name, kib) = (entry.file_name(), entry.metadata()?.len() >> 10);
        names.push(format!("{} ({kib} KiB)", name.to_string_lossy()));
    }
    if names.is_empty() {
        kept_if(true, "nothing is left of it")
    } else {
        kept_if(false, names.join(", "))
    }
}
