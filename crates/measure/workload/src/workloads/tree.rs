//! `tree`: copies a tree out of the share, cold and warm, walks it as `git status` does, and reads it mapped.
//!
//! A pass of the copy reads each folder, stats each name, and copies each file below 1 MiB when it is met: open, fstat,
//! read, write, close. The larger files follow, by 1 MiB. The rates are of the small part (folders and stats included)
//! and of the large part. The bytes go into one file of the guest's own, over and over, so that what the copy is written
//! to weighs the same for any tree. *Cold* is the first pass, after the caches were emptied if `drop` says so; *warm* the
//! second. The walk stats each name by its path from the root in order, then reads each folder, as git with an index
//! does. For the mapped pass, over larger files where there are any, the caches are emptied again.

use crate::buffer::Buffer;
use crate::descriptor::{Workload, Yield, workload};
use crate::share::{DROP, drop_caches, error, root};
use crate::{Clock, WorkloadError};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::ptr;
use vmtax_model::{Latency, Metric, Places, Unsupported, WorkloadName};

workload! {
    Tree: "copying, walking and mmapping a directory tree on a share";
    drop: bool = DROP;
}

const MEBIBYTE: f64 = (1 << 20) as f64;
/// So much is read mapped: 4096 pages tell their time, and an uncached 9p gives 10 MiB/s under TCG.
const MAPPED: u64 = 16 << 20;

impl Workload for Tree {
    fn run(&self, clock: &Clock, places: &Places) -> Result<Yield, WorkloadError> {
        let root = root(WorkloadName::Tree, places)?;
        let temporary = std::env::temp_dir();
        let target = places.files.as_deref().unwrap_or(&temporary);
        let mut got = Yield::default();
        drop_caches(self.drop)?;
        let began = clock.start();
        let (cold, tree) = Pass::copy(root, target, clock)?;
        let metrics = [Metric::TreeSmallCold, Metric::TreeLargeCold];
        report(&mut got, cold, "cold", metrics);
        let (warm, again) = Pass::copy(root, target, clock)?;
        if tree != again {
            return Err(changed(root));
        }
        let metrics = [Metric::TreeSmallWarm, Metric::TreeLargeWarm];
        report(&mut got, warm, "warm", metrics);
        walk(root, &tree, clock, &mut got)?;
        drop_caches(self.drop)?;
        map(root, &tree, clock, &mut got)?;
        got.total_s = clock.ns(began, clock.stop()) as f64 / 1e9;
        Ok(got)
    }
}

fn report(got: &mut Yield, pass: Pass, name: &str, [small, large]: [Metric; 2]) {
    if pass.small.files > 0 {
        got.measure(small, pass.small.files as f64 / seconds(pass.small.ns));
    }
    if pass.large.bytes > 0 {
        let mebibytes = pass.large.bytes as f64 / MEBIBYTE;
        got.measure(large, mebibytes / seconds(pass.large.ns));
    }
    operations(got, pass.latencies, name);
}

/// Reports the calls that were made, each kind with the name of the part behind it.
fn operations(got: &mut Yield, latencies: Latencies, part: &str) {
    let named = latencies.named().into_iter();
    for (kind, latency) in named.filter(|(_, latency)| latency.count() > 0) {
        got.operation(&format!("{kind}-{part}"), latency);
    }
}

fn seconds(ns: u64) -> f64 {
    ns.max(1) as f64 / 1e9
}

/// Every name by its path from the root, in order, as git checks what its index lists; then every folder, as it looks
/// for what is new.
fn walk(
    root: &Path,
    tree: &TreeFiles,
    clock: &Clock,
    got: &mut Yield,
) -> Result<(), WorkloadError> {
    let mut latencies = Latencies::default();
    let began = clock.start();
    for (path, _) in &tree.files {
        clock
            .time(&mut latencies.lstat, || rustix::fs::lstat(path))
            .map_err(|e| error("stat", path, e))?;
    }
    for folder in &tree.folders {
        entries(folder, clock, &mut latencies, |_| ())?;
    }
    let ns = clock.ns(began, clock.stop());
    if tree.files.is_empty() {
        let why = "has no file: give a tree with files, or check that the share is mounted";
        return Err(WorkloadError::unreadable(root, why));
    }
    got.measure(Metric::TreeWalk, tree.files.len() as f64 / seconds(ns));
    operations(got, latencies, "walk");
    Ok(())
}

fn map(root: &Path, tree: &TreeFiles, clock: &Clock, got: &mut Yield) -> Result<(), WorkloadError> {
    let (mut pages, mut bytes) = (Latency::new(), 0);
    let has_large = tree.files.iter().any(|(_, length)| *length >= LARGE);
    let began = clock.start();
    // Of a small file the figure would be that of opening it.
    let files = tree.files.iter();
    for (path, length) in files.filter(|(_, length)| *length >= LARGE || !has_large) {
        let part = (*length).min(MAPPED - bytes);
        match read_mapped(path, *length, part, clock, &mut pages) {
            Ok(true) => bytes += part,
            Ok(false) => return Err(changed(root)),
            // Some ways to share cannot map: that is for the figures to say, and the rest goes on.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENODEV | libc::EINVAL)) => {
                got.unsupported.push(Unsupported {
                    metric: Metric::TreeMmap,
                    reason: format!("mmap: {e}"),
                });
                return Ok(());
            }
            Err(e) => return Err(error("map", path, e)),
        }
        if bytes == MAPPED {
            break;
        }
    }
    let ns = clock.ns(began, clock.stop());
    if bytes > 0 {
        got.measure(Metric::TreeMmap, bytes as f64 / MEBIBYTE / seconds(ns));
        got.operation("page-mmap", pages);
    }
    Ok(())
}

/// Files from here on are large: they are read by this much.
const LARGE: u64 = 1 << 20;
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
struct Latencies {
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
struct Part {
    pub files: u64,
    pub bytes: u64,
    pub ns: u64,
}

/// Contents of the tree: files with their lengths, and folders, by path, both in order.
#[derive(Default, PartialEq, Eq)]
struct TreeFiles {
    pub files: Vec<(PathBuf, u64)>,
    pub folders: Vec<PathBuf>,
}

/// A pass over the tree.
struct Pass {
    pub small: Part,
    pub large: Part,
    pub latencies: Latencies,
}

/// Gives each name of a folder but `.` and `..`; gives the folder, open.
fn entries(
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
            Some(Err(e)) => return Err(error("read the directory", folder, e)),
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
    small: Part,
    tree: TreeFiles,
    /// Folders that are not read yet.
    waiting: Vec<PathBuf>,
    /// Larger files, which follow when all small ones are copied, with their lengths.
    postponed: Vec<(PathBuf, u64)>,
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
            small: Part::default(),
            tree: TreeFiles::default(),
            waiting: vec![root.to_owned()],
            postponed: Vec::new(),
        };
        let began = clock.start();
        while let Some(folder) = copier.waiting.pop() {
            copier.folder(folder)?;
        }
        copier.small.ns = clock.ns(began, clock.stop());
        let (mut large, began) = (Part::default(), clock.start());
        let mut postponed = std::mem::take(&mut copier.postponed);
        postponed.sort();
        for (path, length) in &postponed {
            large.bytes += copier.file(rustix::fs::CWD, path, path, *length)?;
            large.files += 1;
        }
        large.ns = clock.ns(began, clock.stop());
        let mut tree = copier.tree;
        tree.files.append(&mut postponed);
        tree.files.sort();
        tree.folders.sort();
        let pass = Pass {
            small: copier.small,
            large,
            latencies: copier.latencies,
        };
        Ok((pass, tree))
    }
}

impl Copier<'_> {
    /// Copies the small files of a folder.
    fn folder(&mut self, folder: PathBuf) -> Result<(), WorkloadError> {
        let clock = self.clock;
        let mut names = Vec::new();
        let fd = entries(&folder, clock, &mut self.latencies, |name| {
            names.push(name.to_owned())
        })?;
        for name in names {
            let path = folder.join(OsStr::from_bytes(name.to_bytes()));
            let stat = clock
                .time(&mut self.latencies.lstat, || {
                    rustix::fs::statat(&fd, &*name, AtFlags::SYMLINK_NOFOLLOW)
                })
                .map_err(|e| error("stat", &path, e))?;
            let length = u64::try_from(stat.st_size).unwrap_or(0);
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => self.waiting.push(path),
                FileType::RegularFile if length < LARGE => {
                    self.small.bytes += self.file(&fd, &name, &path, length)?;
                    self.small.files += 1;
                    self.tree.files.push((path, length));
                }
                FileType::RegularFile => self.postponed.push((path, length)),
                // Reading a pipe might never end; a link's or a device's bytes are not the tree's.
                _ => {}
            }
        }
        self.tree.folders.push(folder);
        Ok(())
    }

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

fn changed(path: &Path) -> WorkloadError {
    let why = "changed while it was read: check that nobody writes to the tree and that its server loses no data";
    WorkloadError::unreadable(path, why)
}

const PAGE: usize = 4096;
/// So much is mapped at a time: a file of any length fits.
const WINDOW: u64 = 256 << 20;

/// Touches each page of the first `part` bytes of a file of `length`. `false` when the file has another length by now.
///
/// # Errors
/// The system's, from opening or mapping.
fn read_mapped(
    path: &Path,
    length: u64,
    part: u64,
    clock: &Clock,
    pages: &mut Latency,
) -> io::Result<bool> {
    let file = File::open(path)?;
    // A page beyond a file's end cannot be read: touching it would end this process.
    if file.metadata()?.len() != length {
        return Ok(false);
    }
    let mut position = 0;
    while position < part {
        let bytes = WINDOW.min(part - position) as usize;
        let window = Window::map(&file, position, bytes)?;
        for offset in (0..bytes).step_by(PAGE) {
            clock.time(pages, || window.touch(offset));
        }
        position += bytes as u64;
    }
    Ok(true)
}

/// A read-only private mapping, gone when dropped.
struct Window {
    start: *const u8,
    bytes: usize,
}

impl Window {
    fn map(file: &File, position: u64, bytes: usize) -> io::Result<Window> {
        let position = libc::off_t::try_from(position)
            .map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        // SAFETY: a new mapping where the kernel likes takes nothing from anyone.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                position,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Window {
            start: start.cast(),
            bytes,
        })
    }

    #[inline(always)]
    fn touch(&self, offset: usize) {
        debug_assert!(offset < self.bytes);
        // SAFETY: inside the mapping, whose file had these bytes when it was mapped.
        unsafe { self.start.add(offset).read_volatile() };
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of which no reference is left.
        unsafe { libc::munmap(self.start.cast_mut().cast(), self.bytes) };
    }
}
