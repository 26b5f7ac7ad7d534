//! One file by blocks: written, read and written again, read.

use crate::buffer::Buffer;
use crate::share::error;
use crate::{Clock, WorkloadError};
use std::fs::OpenOptions;
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
        Ok(Done {
            latency,
            ns: self.clock.ns(first, self.clock.stop()),
        })
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
