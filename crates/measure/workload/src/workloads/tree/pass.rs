//! One pass of the copy, each call timed by its kind.

use crate::buffer::Buffer;
use crate::share::error;
use crate::{Clock, WorkloadError};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use vmtax_model::{Latency, WorkloadName};

/// Files from here on are large: they are read by this much.
pub(super) const LARGE: u64 = 1 << 20;
/// Of what is copied, the file of the guest's own holds so much.
const ROOM: u64 = 16 << 20;
/// As glibc's readdir asks.
const ENTRIES: usize = 32 << 10;
const READ_ONLY: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW);

/// The kinds of calls. Files are read until all their bytes are there, not until a read gives none, as `cp` does that
/// knows the size.
#[derive(Default)]
pub(super) struct Latencies {
    pub readdir: Latency,
    pub lstat: Latency,
    pub open: Latency,
    pub fstat: Latency,
    pub read: Latency,
    pub read_large: Latency,
    pub close: Latency,
    pub write: Latency,
}

impl Latencies {
    /// Each with its name.
    pub fn named(self) -> [(&'static str, Latency); 8] {
        [
            ("readdir", self.readdir),
            ("lstat", self.lstat),
            ("open", self.open),
            ("fstat", self.fstat),
            ("read", self.read),
            ("read-large", self.read_large),
            ("close", self.close),
            ("write", self.write),
        ]
    }
}

/// Files and bytes that were copied, and the time for it, in ns.
#[derive(Default)]
pub(super) struct Part {
    pub files: u64,
    pub bytes: u64,
    pub ns: u64,
}

/// Contents of the tree: files with their lengths, and folders, by path, both in order.
#[derive(Default, PartialEq, Eq)]
pub(super) struct TreeFiles {
    pub files: Vec<(PathBuf, u64)>,
    pub folders: Vec<PathBuf>,
}

/// A pass over the tree.
pub(super) struct Pass {
    pub small: Part,
    pub large: Part,
    pub latencies: Latencies,
}

/// Gives each name of a folder but `.` and `..`; gives the folder, open.
pub(super) fn entries(
    folder: &Path,
    clock: &Clock,
    latencies: &mut Latencies,
    mut each: impl FnMut(&CStr),
) -> Result<OwnedFd, WorkloadError> {
    let flags = READ_ONLY | OFlags::DIRECTORY;
    let opened = clock.time(&mut latencies.open, || {
        rustix::fs::open(folder, flags, Mode::empty())
    });
    let fd = opened.map_err(|e| error("open", folder, e))?;
    let mut room = vec![MaybeUninit::uninit(); ENTRIES];
    let mut entries = RawDir::new(fd.as_fd(), &mut room);
    loop {
        // Only a call that goes to the kernel is one.
        let asks = entries.is_buffer_empty();
        let began = clock.start();
        let next = entries.next();
        if asks {
            latencies.readdir.record(clock.ns(began, clock.stop()));
        }
        match next {
            None => break,
            Some(Err(e)) => return Err(error("read the folder", folder, e)),
            Some(Ok(entry)) if [c".", c".."].contains(&entry.file_name()) => {}
            Some(Ok(entry)) => each(entry.file_name()),
        }
    }
    Ok(fd)
}

struct Copier<'a> {
    clock: &'a Clock,
    latencies: Latencies,
    target: Target,
    buffer: Buffer,
}

impl Pass {
    /// Copies every regular file below `root`; follows no link.
    pub fn copy(
        root: &Path,
        target: &Path,
        clock: &Clock,
    ) -> Result<(Pass, TreeFiles), WorkloadError> {
        let buffer = Buffer::new(LARGE, WorkloadName::Tree, "tree")?;
        let mut copier = Copier {
            clock,
            latencies: Latencies::default(),
            target: Target::new(target)?,
            buffer,
        };
        let (mut small, mut large, mut tree) =
            (Part::default(), Part::default(), TreeFiles::default());
        let (mut waiting, mut postponed) = (vec![root.to_owned()], Vec::new());
        let began = clock.start();
        while let Some(folder) = waiting.pop() {
            let mut names = Vec::new();
            let fd = entries(&folder, clock, &mut copier.latencies, |name| {
                names.push(name.to_owned())
            })?;
            for name in names {
                let path = folder.join(OsStr::from_bytes(name.to_bytes()));
                let stat = clock
                    .time(&mut copier.latencies.lstat, || {
                        rustix::fs::statat(&fd, &*name, AtFlags::SYMLINK_NOFOLLOW)
                    })
                    .map_err(|e| error("stat", &path, e))?;
                let length = u64::try_from(stat.st_size).unwrap_or(0);
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::Directory => waiting.push(path),
                    FileType::RegularFile if length < LARGE => {
                        small.bytes += copier.file(&fd, &name, &path, length)?;
                        small.files += 1;
                        tree.files.push((path, length));
                    }
                    FileType::RegularFile => postponed.push((path, length)),
                    // Reading a pipe might never end; a link's or a device's bytes are not the tree's.
                    _ => {}
                }
            }
            tree.folders.push(folder);
        }
        small.ns = clock.ns(began, clock.stop());
        let began = clock.start();
        postponed.sort();
        for (path, length) in &postponed {
            large.bytes += copier.file(rustix::fs::CWD, path, path, *length)?;
            large.files += 1;
        }
        large.ns = clock.ns(began, clock.stop());
        tree.files.append(&mut postponed);
        tree.files.sort();
        tree.folders.sort();
        Ok((
            Pass {
                small,
                large,
                latencies: copier.latencies,
            },
            tree,
        ))
    }
}

impl Copier<'_> {
    /// Copies one file whose length a stat gave. Gives the bytes.
    fn file(
        &mut self,
        folder: impl AsFd,
        name: impl rustix::path::Arg,
        path: &Path,
        length: u64,
    ) -> Result<u64, WorkloadError> {
        let (clock, latencies) = (self.clock, &mut self.latencies);
        let opened = clock.time(&mut latencies.open, || {
            rustix::fs::openat(folder, name, READ_ONLY, Mode::empty())
        });
        let fd = opened.map_err(|e| error("open", path, e))?;
        let stat = clock.time(&mut latencies.fstat, || rustix::fs::fstat(&fd));
        if stat.map_err(|e| error("stat", path, e))?.st_size as u64 != length {
            return Err(changed(path));
        }
        let mut copied = 0;
        while copied < length {
            let room = &mut self.buffer.bytes()[..LARGE.min(length - copied) as usize];
            let of = if length < LARGE {
                &mut latencies.read
            } else {
                &mut latencies.read_large
            };
            let n = clock
                .time(of, || rustix::io::read(&fd, &mut *room))
                .map_err(|e| error("read", path, e))?;
            if n == 0 {
                return Err(changed(path));
            }
            clock.time(&mut latencies.write, || {
                self.target.write(&room[..n], copied)
            })?;
            copied += n as u64;
        }
        clock.time(&mut latencies.close, || drop(fd));
        Ok(copied)
    }
}

/// The file of the guest's own that is written over and over; removed when dropped.
struct Target {
    file: File,
    path: PathBuf,
}

impl Target {
    fn new(folder: &Path) -> Result<Target, WorkloadError> {
        let path = folder.join(format!("vmtax-tree-{}", std::process::id()));
        let file = File::create(&path).map_err(|e| error("make", &path, e))?;
        Ok(Target { file, path })
    }

    fn write(&self, bytes: &[u8], position: u64) -> Result<(), WorkloadError> {
        self.file
            .write_all_at(bytes, position % ROOM)
            .map_err(|e| error("write", &self.path, e))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

pub(super) fn changed(path: &Path) -> WorkloadError {
    let why = "was changed while it was read: see that nobody writes to the tree, or that its server does not lose data";
    WorkloadError::Unreadable {
        path: path.to_owned(),
        why: why.to_owned(),
    }
}
