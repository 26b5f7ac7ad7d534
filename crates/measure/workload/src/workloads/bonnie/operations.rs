//! Operations on the one file, by blocks, and on the many small files, by their names.

use crate::buffer::Buffer;
use crate::share::error;
use crate::{Clock, WorkloadError};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir};
use std::ffi::CStr;
use std::fs::{File as StdFile, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use vmtax_model::{Latency, WorkloadName};

/// Bonnie++'s block size, in bytes.
const BLOCK: u64 = 8 << 10;

/// One of Bonnie++'s operations, done so many times.
pub(super) struct Done {
    pub latency: Latency,
    /// From the first to the last, with what the reference counts in.
    pub ns: u64,
}

impl Done {
    /// An operation that began at the stamp `first` and ends now.
    pub fn since(first: u64, latency: Latency, clock: &Clock) -> Done {
        let ns = clock.ns(first, clock.stop());
        Done { latency, ns }
    }

    pub fn seconds(&self) -> f64 {
        self.ns.max(1) as f64 / 1e9
    }
}

/// File that the block tests write and read.
pub(super) struct File<'a> {
    path: PathBuf,
    pub blocks: u64,
    pub clock: &'a Clock,
}

pub(super) fn block() -> Result<Buffer, WorkloadError> {
    let mut buffer = Buffer::new(BLOCK, WorkloadName::Bonnie, "size")?;
    // As Bonnie++ writes: all zeros except one byte more in each block.
    buffer.bytes().fill(0);
    Ok(buffer)
}

impl<'a> File<'a> {
    pub fn new(path: PathBuf, size: u64, clock: &'a Clock) -> Result<File<'a>, WorkloadError> {
        let file = File {
            path,
            blocks: size / BLOCK,
            clock,
        };
        // Bonnie++ makes it once before it is timed.
        let made = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&file.path);
        made.map(|_| file)
            .map_err(|e| error("make", "bonnie's file", e))
    }

    pub fn open(&self) -> Result<std::fs::File, WorkloadError> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(&self.path)
            .map_err(|e| error("open", &self.path, e))
    }

    /// The file again, block after block.
    pub fn write(&self) -> Result<Done, WorkloadError> {
        std::fs::remove_file(&self.path).map_err(|e| error("remove", &self.path, e))?;
        let made = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.path);
        let made = made.map_err(|e| error("make", &self.path, e))?;
        self.each("write", made, |file, block| file.write_all(block))
    }

    /// Each block read, changed by a byte, and written where it was.
    pub fn rewrite(&self) -> Result<Done, WorkloadError> {
        self.each("rewrite", self.open()?, |file, block| {
            file.read_exact(block)?;
            block[0] = block[0].wrapping_add(1);
            file.seek(SeekFrom::Current(-(BLOCK as i64)))?;
            file.write_all(block)
        })
    }

    /// Block after block.
    pub fn read(&self) -> Result<Done, WorkloadError> {
        self.each("read", self.open()?, |file, block| file.read_exact(block))
    }

    fn each(
        &self,
        action: &'static str,
        mut file: std::fs::File,
        mut work: impl FnMut(&mut std::fs::File, &mut [u8]) -> io::Result<()>,
    ) -> Result<Done, WorkloadError> {
        let mut block = block()?;
        let mut latency = Latency::new();
        let first = self.clock.start();
        for number in 0..self.blocks {
            let byte = &mut block.bytes()[(number % BLOCK) as usize];
            *byte = byte.wrapping_add(1);
            self.clock
                .time(&mut latency, || work(&mut file, block.bytes()))
                .map_err(|e| error(action, &self.path, e))?;
        }
        self.finish(file)?;
        Ok(Done::since(first, latency, self.clock))
    }

    /// Syncs and closes, as Bonnie++ ends each part.
    pub fn finish(&self, file: std::fs::File) -> Result<(), WorkloadError> {
        file.sync_all().map_err(|e| error("sync", &self.path, e))
    }

    /// Reads the block `number`, and writes it again with one byte changed if told so.
    pub fn visit(
        &self,
        file: &mut std::fs::File,
        number: u64,
        block: &mut [u8],
        again: bool,
    ) -> Result<(), WorkloadError> {
        let position = SeekFrom::Start(number * BLOCK);
        let mut work = || {
            file.seek(position)?;
            file.read_exact(block)?;
            if again {
                let byte = &mut block[(number % BLOCK) as usize];
                *byte = byte.wrapping_sub(1);
                file.seek(position)?;
                file.write_all(block)?;
            }
            io::Result::Ok(())
        };
        work().map_err(|e| error("seek, read or write in", &self.path, e))
    }
}

const SEEKERS: usize = 5;
/// One block in so many is written again.
const AGAIN: u32 = 10;
/// The drawing is the same in every trial.
const SEED: u64 = 4711;

/// Reads `seeks` random blocks with [`SEEKERS`] threads, and writes one in [`AGAIN`] of them again. As in Bonnie++, the threads draw
/// tickets from a pipe, and reading it is part of what is timed.
pub(super) fn seek_randomly(file: &File, seeks: u32) -> Result<Done, WorkloadError> {
    let (tickets, mut source) = rustix::pipe::pipe()
        .map(|(r, w)| (r, StdFile::from(w)))
        .map_err(no_pipe)?;
    let mut seekers = Vec::new();
    for _ in 0..SEEKERS {
        seekers.push((
            file.open()?,
            block()?,
            tickets.try_clone().map_err(no_pipe)?,
        ));
    }
    drop(tickets);
    let own = file.open()?;
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (number, (open, mut block, tickets)) in seekers.into_iter().enumerate() {
            let seeker = move || seek(file, open, block.bytes(), &tickets);
            let started = std::thread::Builder::new().spawn_scoped(scope, seeker);
            running.push(started.map_err(WorkloadError::thread(number, SEEKERS))?);
        }
        let mut random = fastrand::Rng::with_seed(SEED);
        let numbers: Vec<u8> = (0..seeks)
            .flat_map(|_| random.u32(..1 << 31).to_ne_bytes())
            .collect();
        // Seekers that failed close their ends: their error is the one to report.
        let _ = source.write_all(&numbers);
        drop(source);
        // Here, too, as Bonnie++ closes its own: while the seekers are at work.
        file.finish(own)?;
        let mut all = (Latency::new(), u64::MAX, 0);
        for seeker in running {
            let Ok(done) = seeker.join() else {
                return Err(no_pipe(io::Error::other("a thread ended too early")));
            };
            let (latency, first, last) = done?;
            all.0.add(&latency);
            all = (all.0, all.1.min(first), all.2.max(last));
        }
        Ok(Done {
            latency: all.0,
            ns: file.clock.ns(all.1, all.2),
        })
    })
}

fn no_pipe(e: impl Into<io::Error>) -> WorkloadError {
    crate::share::error("make or read", "a pipe", e)
}

/// One seeker: its latencies, when it had its first block's number and when it had synced the file.
fn seek(
    file: &File,
    mut open: StdFile,
    block: &mut [u8],
    tickets: &OwnedFd,
) -> Result<(Latency, u64, u64), WorkloadError> {
    let (clock, mut latency) = (file.clock, Latency::new());
    let mut next = ticket(tickets)?;
    let first = clock.start();
    while let Some(drawn) = next {
        let number = u64::from(drawn) % file.blocks;
        clock.time(&mut latency, || {
            file.visit(&mut open, number, block, drawn % AGAIN == 0)
        })?;
        next = ticket(tickets)?;
    }
    file.finish(open)?;
    Ok((latency, first, clock.stop()))
}

/// The next number; `None` when all are drawn.
fn ticket(tickets: impl AsFd) -> Result<Option<u32>, WorkloadError> {
    let mut number = [0; 4];
    // Writes and reads are of whole numbers, and a pipe's page holds a whole number of them.
    match rustix::io::retry_on_intr(|| rustix::io::read(&tickets, &mut number)) {
        Ok(4) => Ok(Some(u32::from_ne_bytes(number))),
        Ok(_) => Ok(None),
        Err(e) => Err(no_pipe(e)),
    }
}

/// Bonnie++'s blocks for small files.
const WRITE_BYTES: usize = 8 << 10;
/// As glibc's readdir asks, which Bonnie++ uses.
const ENTRIES: usize = 32 << 10;
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// A name has up to so many random characters beside its number.
const EXTRA: usize = 12;
/// The names are the same in every trial.
const NAMES_SEED: u64 = 4712;

/// Small files to make: their folder, number and size.
pub(super) struct Small {
    pub folder: PathBuf,
    pub count: u64,
    pub bytes: u64,
}

/// Order of the files' names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The number comes first in the name.
    InOrder,
    /// It comes last.
    AtRandom,
}

/// The files that are there.
pub(super) struct Files<'a> {
    of: &'a Small,
    clock: &'a Clock,
    folder: OwnedFd,
    names: Vec<Vec<u8>>,
    buffer: Vec<u8>,
    random: fastrand::Rng,
}

/// The files, and how making them went.
pub(super) struct Created<'a> {
    pub files: Files<'a>,
    pub created: Done,
}

fn names(count: u64, order: Order, random: &mut fastrand::Rng) -> Vec<Vec<u8>> {
    (0..count)
        .map(|number| {
            let extra: String = (0..random.usize(..=EXTRA))
                .map(|_| random.alphanumeric())
                .collect();
            let name = match order {
                Order::InOrder => format!("{number:010x}{extra}"),
                Order::AtRandom => format!("{extra}{number:010x}"),
            };
            // Ended by a zero byte: no copy of a name is made while it is timed.
            [name.as_bytes(), &[0]].concat()
        })
        .collect()
}

fn c_name(name: &[u8]) -> io::Result<&CStr> {
    CStr::from_bytes_with_nul(name).map_err(|_| ErrorKind::InvalidInput.into())
}

impl<'a> Files<'a> {
    /// Makes them in a folder of their own. `sync(2)` is the end of it.
    pub fn create(
        of: &'a Small,
        order: Order,
        clock: &'a Clock,
    ) -> Result<Created<'a>, WorkloadError> {
        let mut random = fastrand::Rng::with_seed(NAMES_SEED);
        let names = names(of.count, order, &mut random);
        std::fs::create_dir(&of.folder)
            .map_err(|e| error("create the directory", &of.folder, e))?;
        let folder = rustix::fs::open(&of.folder, FOLDER, Mode::empty())
            .map_err(|e| error("open", &of.folder, e))?;
        let files = Files {
            of,
            clock,
            folder,
            names,
            buffer: vec![0; WRITE_BYTES],
            random,
        };
        let first = clock.start();
        let latency = files.each("create a file in", |files, name| files.make(name))?;
        rustix::fs::sync();
        let created = Done::since(first, latency, clock);
        Ok(Created { files, created })
    }

    /// As a listing of the directory gives them. The time of listing is in the latency of the file that it gives.
    pub fn stat_in_order(&self) -> Result<Done, WorkloadError> {
        let mut buffer = self.buffer.clone();
        let first = self.clock.start();
        let latency = self.listed("stat a file in", false, |name| self.stat(name, &mut buffer))?;
        Ok(Done::since(first, latency, self.clock))
    }

    /// As a listing gives them, and then the folder.
    pub fn delete_in_order(self) -> Result<Done, WorkloadError> {
        let first = self.clock.start();
        let latency = self.listed("delete a file in", true, |name| {
            Ok(rustix::fs::unlinkat(&self.folder, name, AtFlags::empty())?)
        })?;
        self.end(latency, first)
    }

    /// In an order drawn before.
    pub fn stat_at_random(&mut self) -> Result<Done, WorkloadError> {
        self.random.shuffle(&mut self.names);
        let first = self.clock.start();
        let mut buffer = std::mem::take(&mut self.buffer);
        let latency = self.each("stat a file in", |files, name| {
            files.stat(c_name(name)?, &mut buffer)
        })?;
        Ok(Done::since(first, latency, self.clock))
    }

    /// In an order drawn before, and then the folder.
    pub fn delete_at_random(mut self) -> Result<Done, WorkloadError> {
        self.random.shuffle(&mut self.names);
        let first = self.clock.start();
        let latency = self.each("delete a file in", |files, name| {
            let name = c_name(name)?;
            Ok(rustix::fs::unlinkat(&files.folder, name, AtFlags::empty())?)
        })?;
        self.end(latency, first)
    }

    fn end(self, latency: Latency, first: u64) -> Result<Done, WorkloadError> {
        drop(self.folder);
        std::fs::remove_dir(&self.of.folder)
            .map_err(|e| error("remove the directory", &self.of.folder, e))?;
        rustix::fs::sync();
        Ok(Done::since(first, latency, self.clock))
    }

    fn make(&self, name: &[u8]) -> io::Result<()> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.folder, c_name(name)?, flags, Mode::RUSR | Mode::WUSR)?;
        let mut left = self.of.bytes as usize;
        while left > 0 {
            left -= rustix::io::write(&fd, &self.buffer[..left.min(WRITE_BYTES)])?;
        }
        Ok(())
    }

    /// Bonnie++'s stat also reads the file, if there is anything in it.
    fn stat(&self, name: &CStr, buffer: &mut [u8]) -> io::Result<()> {
        let mut left = rustix::fs::statat(&self.folder, name, AtFlags::empty())?.st_size as usize;
        if left > 0 {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(&self.folder, name, flags, Mode::empty())?;
            while left > 0 {
                let length = left.min(WRITE_BYTES);
                match rustix::io::read(&fd, &mut buffer[..length])? {
                    0 => return Err(ErrorKind::UnexpectedEof.into()),
                    n => left = left.saturating_sub(n),
                }
            }
        }
        Ok(())
    }

    fn each(
        &self,
        action: &'static str,
        mut work: impl FnMut(&Self, &[u8]) -> io::Result<()>,
    ) -> Result<Latency, WorkloadError> {
        let mut latency = Latency::new();
        for name in &self.names {
            self.clock
                .time(&mut latency, || work(self, name))
                .map_err(|e| error(action, &self.of.folder, e))?;
        }
        Ok(latency)
    }

    /// As a listing gives them. A name that a server's listing skips while names before it go is found by the next one;
    /// Bonnie++ would break off.
    fn listed(
        &self,
        action: &'static str,
        deletes: bool,
        mut work: impl FnMut(&CStr) -> io::Result<()>,
    ) -> Result<Latency, WorkloadError> {
        let mut latency = Latency::new();
        let failed = |e: io::Error| error(action, &self.of.folder, e);
        let mut room = vec![MaybeUninit::uninit(); ENTRIES];
        loop {
            let before = latency.count();
            // Again each time, as opendir does: a server is asked again, whatever this system remembers.
            let folder = rustix::fs::openat(&self.folder, c".", FOLDER, Mode::empty())
                .map_err(|e| failed(e.into()))?;
            let mut entries = RawDir::new(&folder, &mut room);
            loop {
                let began = self.clock.start();
                let Some(entry) = entries.next() else { break };
                let entry = entry.map_err(|e| failed(e.into()))?;
                if !entry.file_name().to_bytes().starts_with(b".") {
                    work(entry.file_name()).map_err(failed)?;
                    latency.record(self.clock.ns(began, self.clock.stop()));
                }
            }
            let found = latency.count();
            if found == self.of.count {
                return Ok(latency);
            }
            if !deletes || found == before {
                let why = format!(
                    "lists {found} files although {} were created: the share loses names",
                    self.of.count
                );
                return Err(WorkloadError::unreadable(&self.of.folder, why));
            }
        }
    }
}
