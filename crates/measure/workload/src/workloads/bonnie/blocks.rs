//! One file by blocks: written, read and written again, read.

use crate::buffer::Buffer;
use crate::share::error;
use crate::{Clock, WorkloadError};
use rustix::fd::{AsFd, OwnedFd};
use std::fs::{File as StdFile, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
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
