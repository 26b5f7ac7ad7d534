//! Many small files in one folder: created, read with stat, deleted; in order, and at random.

use super::blocks::Done;
use crate::share::error;
use crate::{Clock, WorkloadError};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir};
use std::ffi::CStr;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::path::PathBuf;
use vmtax_model::Latency;

/// Bonnie++'s blocks for small files.
const BLOCK: usize = 8 << 10;
/// As glibc's readdir asks, which Bonnie++ uses.
const ENTRIES: usize = 32 << 10;
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// A name has up to so many random characters beside its number.
const EXTRA: usize = 12;
/// The names are the same in every trial.
const SEED: u64 = 4712;

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
        let mut random = fastrand::Rng::with_seed(SEED);
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
            buffer: vec![0; BLOCK],
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
            left -= rustix::io::write(&fd, &self.buffer[..left.min(BLOCK)])?;
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
                let length = left.min(BLOCK);
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
