//! `disk`: block requests to a block device or a written file, around every cache of the kernel.
//!
//! As it is without options: reads from start to end and again, one block at a time. Reference: fio with
//! `ioengine=psync direct=1 rw=read bs=4k iodepth=1`; with a `depth` above 1, `ioengine=io_uring`; with `mode=random`,
//! `norandommap=1`. A latency here is what fio calls clat. The figures are the median and 99th percentile of the
//! latency and the requests per second, reads or writes.

use crate::buffer::Buffer;
use crate::descriptor::{Workload, Yield, options_of, workload};
use crate::options::{
    self, Options, Word, alias, alias_of, count, must_end, nanoseconds, one_of, seconds, size,
};
use crate::overwrite::claim;
use crate::recorder::Recorder;
use crate::{Clock, WorkloadError};
use fastrand::Rng;
use io_uring::{IoUring, opcode, types};
use std::fs::{File, FileType, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use vmtax_model::{Latency, Metric, Places, Series, TrialResult, WorkloadName, WorkloadSpec};

workload! {
    Disk: "block I/O to a separate disk, like fio; rw=read by default",
        quick [("time", "1")], default [("time", "2")], full [("time", "10")];
    block_size: u64 = size(WorkloadSpec::BLOCK_SIZE, "4K", 512..=SMALLEST, 512, "bytes of a request")
        .aliases(&[alias("bs")]);
    mode: Word = one_of(
        "mode", "seq", &["seq", "random"],
        "seq: block after block; random: any block, each time the same sequence",
    ).aliases(&[alias_of("rw", &[("read", "seq"), ("write", "seq"), ("randread", "random"), ("randwrite", "random")])]);
    operation: Word =
        one_of("operation", "read", &["read", "write"], "read, or write, which overwrites the disk").aliases(&[
            alias_of("rw", &[("read", "read"), ("write", "write"), ("randread", "read"), ("randwrite", "write")]),
        ]);
    depth: u32 = count("depth", "1", 1..=32, "requests under way at a time; above 1 through io_uring")
        .aliases(&[alias("iodepth")]);
    time: f64 = seconds(
        options::TIME, "10", 0.0..=86_400.0, "seconds after which no new request starts; 0: no limit",
    ).aliases(&[alias("runtime")]);
    count: u64 = COUNT;
}

/// Less than this and a disk's own cache would hold all of it.
const SMALLEST: u64 = 1 << 20;

const COUNT: options::OptionInfo = count(
    "count",
    "0",
    0..=u64::MAX,
    "requests after which none starts; 0: no limit",
);

/// Requests that `disk` makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockWork {
    /// Bytes of a request.
    pub block: u64,
    /// Any block, rather than one after the other.
    pub random: bool,
    /// Writes, rather than reads.
    pub write: bool,
    /// Requests under way at a time.
    pub depth: u32,
    /// Nanoseconds after which none starts; 0: no limit.
    pub time_ns: u64,
    /// Requests after which none starts; 0: no limit.
    pub count: u64,
}

impl BlockWork {
    /// The operation's name, for people and in results.
    pub fn operation(&self) -> &'static str {
        if self.write { "write" } else { "read" }
    }

    /// Returns true if another request starts, after `made` requests and `ns` nanoseconds.
    #[inline(always)]
    fn goes_on(&self, made: u64, ns: u64) -> bool {
        (self.time_ns == 0 || ns < self.time_ns) && (self.count == 0 || made < self.count)
    }

    fn buffer(&self) -> Result<Buffer, WorkloadError> {
        Buffer::new(self.block, WorkloadName::Disk, WorkloadSpec::BLOCK_SIZE)
    }

    /// Makes the requests. `note` is told of each when it is done: the stamps of its begin and its end, and where.
    /// Gives the stamps of the first's begin and the last's end.
    fn run(
        &self,
        places: &Places,
        clock: &Clock,
        note: impl FnMut(u64, u64, u64),
    ) -> Result<(u64, u64), WorkloadError> {
        let (what, option) = ("a block device or a written file", "--disk FILE");
        let missing = WorkloadError::no_place(WorkloadName::Disk, what, option);
        let path = places.disk.as_deref().ok_or(missing)?;
        let disk = OpenDisk::open(path, places, self)?;
        if self.depth == 1 {
            run_one_by_one(self, &disk, clock, note)
        } else {
            run_in_ring(self, &disk, clock, note)
        }
    }

    fn figures(&self, latency: Latency, total_ns: u64) -> Yield {
        let mut got = Yield::of_ns(total_ns);
        got.measure(Metric::DiskMedian, latency.quantile(0.5) as f64);
        got.measure(Metric::DiskTail, latency.quantile(0.99) as f64);
        got.measure(Metric::DiskRate, latency.count() as f64 / got.total_s);
        got.operation(self.operation(), latency);
        got
    }
}

/// Returns the work that a spec of `disk` asks for, for callers that do it by other means.
///
/// # Errors
/// As [`crate::check`], and [`WorkloadError::NotBlocks`] for other workloads.
pub fn block_work(spec: &WorkloadSpec) -> Result<BlockWork, WorkloadError> {
    Ok(asked(spec)?.work())
}

fn asked(spec: &WorkloadSpec) -> Result<Disk, WorkloadError> {
    match spec.name {
        WorkloadName::Disk => options_of(spec, Disk::OPTIONS),
        other => Err(WorkloadError::NotBlocks(other)),
    }
}

/// `disk` that ends after `count` requests, however long they take.
pub fn requests(count: u64) -> WorkloadSpec {
    WorkloadSpec::new(WorkloadName::Disk)
        .with(COUNT.name, count)
        .with(options::TIME, 0)
}

impl Disk {
    fn work(&self) -> BlockWork {
        BlockWork {
            block: self.block_size,
            random: self.mode == "random",
            write: self.operation == "write",
            depth: self.depth,
            time_ns: nanoseconds(self.time),
            count: self.count,
        }
    }
}

impl Workload for Disk {
    fn reconcile(&mut self) -> Result<(), WorkloadError> {
        must_end(WorkloadName::Disk, self.time, COUNT.name, self.count)
    }

    fn run(&self, clock: &Clock, places: &Places) -> Result<Yield, WorkloadError> {
        let work = self.work();
        let mut latency = Latency::new();
        let (start, end) = work.run(places, clock, |began, ended, _| {
            latency.record(clock.ns(began, ended))
        })?;
        Ok(work.figures(latency, clock.ns(start, end)))
    }
}

/// Runs `disk`, and keeps the stamps of each request.
pub(crate) fn run_with_series(
    spec: &WorkloadSpec,
    places: &Places,
) -> Result<(TrialResult, Series), WorkloadError> {
    let asked = asked(spec)?;
    let work = asked.work();
    let clock = Clock::calibrate();
    let mut recorder = Recorder::new(spec.name, work.count, work.time_ns, &clock)?;
    let mut latency = Latency::new();
    let (start, end) = work.run(places, &clock, |began, ended, position| {
        latency.record(clock.ns(began, ended));
        recorder.note(began, ended, position);
    })?;
    let spec = options::spec(spec.name, Disk::OPTIONS, &asked.values());
    let found = work.figures(latency, clock.ns(start, end));
    Ok((found.result(spec, &clock), recorder.series(&clock)))
}

/// The draw is the same in every run and on every machine, as fio's is by default.
const SEED: u64 = 1;

/// Where requests go: byte offsets, multiples of the block.
struct Positions {
    block: u64,
    /// Where the last block ends.
    end: u64,
    next: u64,
    random: Option<Rng>,
}

impl Positions {
    pub fn new(work: &BlockWork, disk: &OpenDisk) -> Positions {
        let random = work.random.then(|| Rng::with_seed(SEED));
        Positions {
            block: work.block,
            end: disk.end,
            next: 0,
            random,
        }
    }

    #[inline(always)]
    pub fn next(&mut self) -> u64 {
        if let Some(random) = &mut self.random {
            return random.u64(0..self.end / self.block) * self.block;
        }
        let position = self.next;
        self.next += self.block;
        if self.next == self.end {
            self.next = 0;
        }
        position
    }

    /// The next that is not `taken`, of which there must be one.
    pub fn next_but(&mut self, taken: impl Fn(u64) -> bool) -> u64 {
        loop {
            let position = self.next();
            if !taken(position) {
                return position;
            }
        }
    }
}

/// An open disk.
struct OpenDisk {
    path: PathBuf,
    pub file: File,
    /// Bytes in whole blocks.
    pub end: u64,
    /// Keeps others from a disk that is overwritten.
    _claim: Option<File>,
}

impl OpenDisk {
    /// Opens the disk for direct requests and finds its size.
    pub fn open(path: &Path, places: &Places, work: &BlockWork) -> Result<OpenDisk, WorkloadError> {
        let file_type = file_type(path)?;
        let claim = match work.write {
            true => Some(claim(path, places, WorkloadName::Disk, "operation=write")?),
            false => None,
        };
        let mut file = open_direct(path, work.write)?;
        // A block device's metadata say nothing of its size; its end does.
        let bytes = file
            .seek(SeekFrom::End(0))
            .map_err(|e| failed("read the metadata of", path, e))?;
        if bytes < SMALLEST {
            let why = format!("has {bytes} bytes: give a disk of at least {SMALLEST}");
            return Err(WorkloadError::unreadable(path, why));
        }
        if file_type.is_file() {
            // Also finds space that is reserved but not written, which reads as zeros without a disk.
            // SAFETY: lseek has no memory to be safe about.
            let hole = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_HOLE) };
            if (0..bytes as i64).contains(&hole) {
                let why = format!(
                    "is sparse (a hole at byte {hole}), and holes are read without a disk: write it full first"
                );
                return Err(WorkloadError::unreadable(path, why));
            }
        }
        let blocks = bytes / work.block;
        if blocks < u64::from(work.depth) {
            let why = format!(
                "has {blocks} blocks of {}, fewer than depth={}: give a larger disk, or a smaller block-size or depth",
                work.block, work.depth
            );
            return Err(WorkloadError::unreadable(path, why));
        }
        Ok(OpenDisk {
            path: path.to_owned(),
            file,
            end: blocks * work.block,
            _claim: claim,
        })
    }

    /// Returns an error unless a request moved its whole block.
    #[inline(always)]
    pub fn check(
        &self,
        work: &BlockWork,
        position: u64,
        moved: io::Result<usize>,
    ) -> Result<(), WorkloadError> {
        match moved {
            Ok(n) if n as u64 == work.block => Ok(()),
            other => Err(self.wrong(work, position, other)),
        }
    }

    #[cold]
    fn wrong(&self, work: &BlockWork, position: u64, moved: io::Result<usize>) -> WorkloadError {
        let (block, operation) = (work.block, work.operation());
        let why = match moved {
            Ok(n) => format!(
                "did a {operation} of {n} of {block} bytes at {position}: it shrank; give a disk at rest"
            ),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => format!(
                "refuses direct {operation}s of {block} bytes: give a larger block-size, or a disk on ext4, xfs or btrfs"
            ),
            Err(e) => return failed(operation, &self.path, e),
        };
        WorkloadError::unreadable(&self.path, why)
    }
}

/// Returns the file type of a disk before it is opened: opening a FIFO would wait for a writer.
///
/// # Errors
/// A path that is neither a file nor a block device.
pub(crate) fn file_type(path: &Path) -> Result<FileType, WorkloadError> {
    let metadata = path.metadata();
    let file_type = metadata
        .map_err(|e| failed("read the metadata of", path, e))?
        .file_type();
    if file_type.is_file() || file_type.is_block_device() {
        return Ok(file_type);
    }
    let why = "is neither a file nor a block device: give one with --disk";
    Err(WorkloadError::unreadable(path, why))
}

fn open_direct(path: &Path, write: bool) -> Result<File, WorkloadError> {
    let mut options = OpenOptions::new();
    options.read(!write).write(write);
    let opened = options.custom_flags(libc::O_DIRECT).open(path);
    opened.map_err(|e| match e.raw_os_error() {
        Some(libc::EINVAL) => WorkloadError::unreadable(
            path,
            "refuses direct I/O (O_DIRECT), as tmpfs and some overlays do: put the disk on ext4, xfs or btrfs",
        ),
        _ => failed("open", path, e),
    })
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> WorkloadError {
    let fix = match source.kind() {
        ErrorKind::NotFound => "give an existing block device or file with --disk",
        ErrorKind::PermissionDenied => "run as root, or give a file of your own with --disk",
        _ => "give another block device or file with --disk",
    };
    WorkloadError::File {
        action,
        path: path.to_owned(),
        source,
        fix,
    }
}

fn run_one_by_one(
    work: &BlockWork,
    disk: &OpenDisk,
    clock: &Clock,
    mut note: impl FnMut(u64, u64, u64),
) -> Result<(u64, u64), WorkloadError> {
    let mut buffer = work.buffer()?;
    let mut positions = Positions::new(work, disk);
    let mut made = 0;
    let start = clock.start();
    let mut now = start;
    while work.goes_on(made, clock.ns(start, now)) {
        let position = positions.next();
        if work.write {
            buffer.stamp(position);
        }
        let began = clock.start();
        let moved = if work.write {
            disk.file.write_at(buffer.bytes(), position)
        } else {
            disk.file.read_at(buffer.bytes(), position)
        };
        now = clock.stop();
        note(began, now, position);
        disk.check(work, position, moved)?;
        made += 1;
    }
    Ok((start, now))
}

/// Runs requests with several in flight: each completion's place is filled again, and the kernel told, before the next is sampled. The
/// time of a request runs from its submission to the sample of its completion.
fn run_in_ring(
    work: &BlockWork,
    disk: &OpenDisk,
    clock: &Clock,
    mut note: impl FnMut(u64, u64, u64),
) -> Result<(u64, u64), WorkloadError> {
    let mut ring = Ring::new(work, disk)?;
    let mut positions = Positions::new(work, disk);
    let mut made = 0;
    let start = clock.start();
    let mut now = start;
    for slot in 0..ring.slots.len() {
        if work.goes_on(made, clock.ns(start, clock.start())) {
            ring.begin(slot, &mut positions, clock)?;
            ring.enter(0)?;
            made += 1;
        }
    }
    while ring.under_way > 0 {
        let (slot, moved) = ring.completed()?;
        now = clock.stop();
        let Slot {
            began, position, ..
        } = ring.slots[slot];
        note(began, now, position);
        disk.check(work, position, moved)?;
        if work.goes_on(made, clock.ns(start, now)) {
            ring.begin(slot, &mut positions, clock)?;
            made += 1;
        }
    }
    Ok((start, now))
}

/// A place for a request.
struct Slot {
    buffer: Buffer,
    /// True if a request is under way in this slot.
    busy: bool,
    position: u64,
    began: u64,
}

struct Ring<'a> {
    ring: IoUring,
    slots: Vec<Slot>,
    under_way: usize,
    disk: &'a OpenDisk,
    work: &'a BlockWork,
}

impl<'a> Ring<'a> {
    fn new(work: &'a BlockWork, disk: &'a OpenDisk) -> Result<Ring<'a>, WorkloadError> {
        let ring = IoUring::new(work.depth.next_power_of_two()).map_err(no_ring)?;
        let slot = |_| {
            Ok(Slot {
                buffer: work.buffer()?,
                busy: false,
                position: 0,
                began: 0,
            })
        };
        let slots = (0..work.depth).map(slot);
        Ok(Ring {
            ring,
            slots: slots.collect::<Result<_, WorkloadError>>()?,
            under_way: 0,
            disk,
            work,
        })
    }

    /// Puts a request on the ring, to a block that no other under way has: so its offset tells it from those.
    fn begin(
        &mut self,
        slot: usize,
        positions: &mut Positions,
        clock: &Clock,
    ) -> Result<(), WorkloadError> {
        let position = positions.next_but(|p| self.slots.iter().any(|s| s.busy && s.position == p));
        let place = &mut self.slots[slot];
        if self.work.write {
            place.buffer.stamp(position);
        }
        let (fd, bytes) = (types::Fd(self.disk.file.as_raw_fd()), place.buffer.bytes());
        let (start, length) = (bytes.as_mut_ptr(), bytes.len() as u32);
        let entry = if self.work.write {
            let write = opcode::Write::new(fd, start, length);
            write.offset(position).build()
        } else {
            let read = opcode::Read::new(fd, start, length);
            read.offset(position).build()
        };
        let entry = entry.user_data(slot as u64);
        (place.busy, place.position) = (true, position);
        self.under_way += 1;
        place.began = clock.start();
        // SAFETY: file and buffer stay until the request is completed: the disk is borrowed for longer, a busy slot's
        // buffer is not touched, and dropping the ring waits for what is under way.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| no_ring(io::ErrorKind::StorageFull.into()))
    }

    /// Tells the kernel of new requests, and waits until at least `wanted` are completed.
    fn enter(&mut self, wanted: usize) -> Result<(), WorkloadError> {
        loop {
            match self.ring.submit_and_wait(wanted) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return done.map(drop).map_err(no_ring),
            }
        }
    }

    /// The next request that is completed, and how many bytes it moved; waits for one where there is none.
    fn completed(&mut self) -> Result<(usize, io::Result<usize>), WorkloadError> {
        let fresh = !self.ring.submission().is_empty();
        if fresh || self.ring.completion().is_empty() {
            self.enter(1)?;
        }
        let Some(entry) = self.ring.completion().next() else {
            return Err(no_ring(io::ErrorKind::UnexpectedEof.into()));
        };
        let slot = entry.user_data() as usize;
        self.under_way -= 1;
        self.slots[slot].busy = false;
        let moved = usize::try_from(entry.result())
            .map_err(|_| io::Error::from_raw_os_error(-entry.result()));
        Ok((slot, moved))
    }
}

impl Drop for Ring<'_> {
    /// After an error requests may still be under way, into buffers of ours.
    fn drop(&mut self) {
        while self.under_way > 0 {
            if self.completed().is_err() {
                // The kernel may still write to them: better lost than given to somebody else.
                std::mem::forget(std::mem::take(&mut self.slots));
                return;
            }
        }
    }
}

fn no_ring(source: io::Error) -> WorkloadError {
    WorkloadError::NoRing(source)
}
