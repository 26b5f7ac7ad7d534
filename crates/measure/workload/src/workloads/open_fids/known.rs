//! The names that are made known.

use crate::share::{Folder, SCRATCH, error};
use crate::{Clock, WorkloadError};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::path::{Path, PathBuf};
use vmtax_model::Latency;

/// Of so many names one is a file of its own, whatever the number of names: a trial with more of them has the same first ones.
pub(super) const OWN_EVERY: u64 = 10;
/// Own files on which calls are timed, at most: as many with many names as with few.
const TIMED: usize = 100;
/// Names are made known by so many threads: while one waits for the server, or for a CPU of a busy host, others do not …
const LEARNERS: usize = 16;
/// … and so many at a time, so that the server learns them about in order.
const BATCH: usize = 1024;
/// Names in a folder of its own.
const FOLDER: u64 = 1000;

/// The names that the server knows by now.
pub(super) struct Known<'a> {
    // Before the folder: what is held open goes before its names go.
    held: Vec<OwnedFd>,
    pub folder: Folder,
    pub hold: bool,
    clock: &'a Clock,
    pub latency: Latency,
    own: Vec<PathBuf>,
    made: u64,
}

impl<'a> Known<'a> {
    pub fn new(folder: Folder, hold: bool, clock: &'a Clock) -> Known<'a> {
        let latency = Latency::new();
        Known {
            held: Vec::new(),
            folder,
            hold,
            clock,
            latency,
            own: Vec::new(),
            made: 0,
        }
    }

    /// Makes `count` names known, of the tree below `root` as far as it has any, about in this order.
    pub fn learn(&mut self, count: u64, root: &Path) -> Result<(), WorkloadError> {
        let mut tree = Names::new(root);
        let mut batch = Vec::new();
        for number in 0..count {
            let own = number % OWN_EVERY == 0;
            let existing = if own { None } else { tree.next()? };
            let is_made = existing.is_none();
            let path = match existing {
                Some(path) => path,
                None => self.next_made()?,
            };
            if own {
                self.own.push(path.clone());
            }
            batch.push(Name { path, is_made });
            if batch.len() == BATCH {
                self.look_up(&std::mem::take(&mut batch))?;
            }
        }
        self.look_up(&batch)
    }

    /// The own files on which calls are timed, spread evenly over all names.
    pub fn timed(&self) -> impl Iterator<Item = &PathBuf> {
        self.own
            .iter()
            .step_by(self.own.len().div_ceil(TIMED).max(1))
    }

    /// The path of the next file of its own, in a folder that is there.
    fn next_made(&mut self) -> Result<PathBuf, WorkloadError> {
        let folder = self.folder.0.join(format!("{:05}", self.made / FOLDER));
        if self.made % FOLDER == 0 && !folder.is_dir() {
            std::fs::create_dir(&folder).map_err(|e| error("make the folder", &folder, e))?;
        }
        let path = folder.join(format!("{:03}", self.made % FOLDER));
        self.made += 1;
        Ok(path)
    }

    fn look_up(&mut self, batch: &[Name]) -> Result<(), WorkloadError> {
        let mut parts: Vec<Part> = (0..LEARNERS.min(batch.len()))
            .map(|_| Part::new(self.hold, self.clock))
            .collect();
        std::thread::scope(|scope| {
            for (first, part) in parts.iter_mut().enumerate() {
                let learner = move || part.learn(batch.iter().skip(first).step_by(LEARNERS));
                let (number, threads) = (first as u32 + 1, LEARNERS as u32);
                let started = std::thread::Builder::new().spawn_scoped(scope, learner);
                started.map_err(|source| WorkloadError::Threads {
                    number,
                    threads,
                    source,
                })?;
            }
            Ok(())
        })?;
        for part in parts {
            part.error.map_or(Ok(()), Err)?;
            self.held.extend(part.held);
            self.latency.add(&part.latency);
        }
        Ok(())
    }
}

/// A name that is made known.
struct Name {
    path: PathBuf,
    /// True if it is a file of this workload's own, which an earlier trial may have left.
    is_made: bool,
}

/// Names that one thread makes known, and the latency of doing so.
struct Part<'a> {
    hold: bool,
    clock: &'a Clock,
    held: Vec<OwnedFd>,
    latency: Latency,
    error: Option<WorkloadError>,
}

impl<'a> Part<'a> {
    fn new(hold: bool, clock: &'a Clock) -> Part<'a> {
        Part {
            hold,
            clock,
            held: Vec::new(),
            latency: Latency::new(),
            error: None,
        }
    }

    fn learn<'n>(&mut self, mut names: impl Iterator<Item = &'n Name>) {
        self.error = names.try_for_each(|name| self.look_up(name)).err();
    }

    fn look_up(&mut self, Name { path, is_made }: &Name) -> Result<(), WorkloadError> {
        // A name that is known already gets no second fid.
        if *is_made && std::fs::symlink_metadata(path).is_err() {
            std::fs::File::create_new(path).map_err(|e| error("make", path, e))?;
        }
        if self.hold {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let opened = self.clock.time(&mut self.latency, || {
                rustix::fs::open(path, flags, Mode::empty())
            });
            self.held
                .push(opened.map_err(|e| error("hold open", path, e))?);
        } else {
            let found = self
                .clock
                .time(&mut self.latency, || rustix::fs::lstat(path));
            found.map_err(|e| error("stat", path, e))?;
        }
        Ok(())
    }
}

/// The regular files of the tree, one after the other; not those of its folder `scratch`.
struct Names {
    scratch: PathBuf,
    folders: Vec<PathBuf>,
    open: Option<std::fs::ReadDir>,
}

impl Names {
    fn new(root: &Path) -> Names {
        Names {
            scratch: root.join(SCRATCH),
            folders: vec![root.to_owned()],
            open: None,
        }
    }

    fn next(&mut self) -> Result<Option<PathBuf>, WorkloadError> {
        loop {
            let Some(open) = &mut self.open else {
                let Some(folder) = self.folders.pop() else {
                    return Ok(None);
                };
                self.open = Some(
                    std::fs::read_dir(&folder).map_err(|e| error("read the folder", &folder, e))?,
                );
                continue;
            };
            let Some(entry) = open.next() else {
                self.open = None;
                continue;
            };
            let entry = entry.map_err(|e| error("read a folder of", &self.scratch, e))?;
            // Linux gives the kind with the name: nothing is looked up here.
            let kind = entry
                .file_type()
                .map_err(|e| error("stat", entry.path(), e))?;
            if kind.is_dir() && entry.path() != self.scratch {
                self.folders.push(entry.path());
            } else if kind.is_file() {
                return Ok(Some(entry.path()));
            }
        }
    }
}
