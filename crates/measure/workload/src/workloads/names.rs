//! `names`: what a call on a name costs where there are many beside it, a long way to it, or much that hangs on it: sizes
//! for a range to grow. It writes in the share's folder `scratch`.

use crate::descriptor::{Room, Workload, Yield, workload};
use crate::options::count;
use crate::share::{NAME_BYTES, PAGE_BYTES, error, is_read_only, own_folder, read_only};
use crate::{Clock, WorkloadError};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, XattrFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use vmtax_model::{Latency, Metric, Places, Unsupported, WorkloadName};

/// Files that are called, spread among all.
const OWN: u64 = 100;
/// A listing reads everything: fewer of them.
const LISTINGS: u64 = 10;
/// The drawing is the same in every trial.
const SEED: u64 = 4714;

workload! {
    Names: "path operations: many names, deep directories, xattrs";
    files: u64 = count("files", "100", 1..=1 << 24, "files in the directory");
    depth: u64 = count("depth", "1", 1..=1000, "directories on the path to them, below scratch");
    xattrs: u64 = count("xattrs", "0", 0..=10_000, "user attributes of each file that is called");
    samples: u64 = count("samples", "500", 1..=1 << 24, "calls of each kind that are timed");
}

impl Workload for Names {
    fn room(&self, _: u64) -> Room {
        // Attributes that an inode has no room for take a page.
        let attributes = if self.xattrs > 0 {
            self.files.min(OWN) * PAGE_BYTES
        } else {
            0
        };
        let share_bytes = self.files * NAME_BYTES + self.depth * PAGE_BYTES + attributes;
        Room {
            share_bytes,
            share_files: self.files + self.depth + 2,
            ..Room::default()
        }
    }

    fn run(&self, clock: &Clock, places: &Places) -> Result<Yield, WorkloadError> {
        if is_read_only(places) {
            return Ok(read_only(WorkloadName::Names));
        }
        let own = own_folder(WorkloadName::Names, places)?;
        let (files, samples) = (self.files, self.samples);
        let began = clock.start();
        let folder = deep_folder(&own.0, self.depth)?;
        let called = make(&folder, files)?;
        let mut got = Yield::default();
        let mut random = fastrand::Rng::with_seed(SEED);
        let mut drawn = || {
            let number = random.usize(..called.len().max(1));
            called.get(number).unwrap_or(&folder)
        };
        let mut measured =
            |metric: Metric, count: u64, call: &mut dyn FnMut() -> Result<(), WorkloadError>| {
                let mut latency = Latency::new();
                for _ in 0..count {
                    clock.time(&mut latency, &mut *call)?;
                }
                got.measure(metric, latency.quantile(0.5) as f64);
                got.operation(metric.operation().unwrap_or_default(), latency);
                Ok(())
            };
        measured(Metric::NamesStat, samples, &mut || stat(drawn()))?;
        measured(Metric::NamesOpenClose, samples, &mut || open_close(drawn()))?;
        let new = folder.join("new");
        measured(Metric::NamesCreateUnlink, samples, &mut || {
            create_unlink(&new)
        })?;
        measured(Metric::NamesList, samples.min(LISTINGS), &mut || {
            list(&folder)
        })?;
        if self.xattrs > 0 {
            match set_attributes(&called, self.xattrs)? {
                None => {
                    let last = attribute(self.xattrs - 1);
                    measured(Metric::NamesGetxattr, samples, &mut || {
                        getxattr(drawn(), &last)
                    })?;
                }
                Some(unsupported) => got.unsupported.push(unsupported),
            }
        }
        got.total_s = clock.ns(began, clock.stop()) as f64 / 1e9;
        Ok(got)
    }
}

/// Makes folders within each other; gives the innermost.
fn deep_folder(own: &Path, depth: u64) -> Result<PathBuf, WorkloadError> {
    let mut folder = own.to_owned();
    for _ in 0..depth {
        folder.push("d");
        std::fs::create_dir(&folder).map_err(|e| error("create the directory", &folder, e))?;
    }
    Ok(folder)
}

/// Makes the files, all empty. Gives those that are called: the first of every so many.
fn make(folder: &Path, files: u64) -> Result<Vec<PathBuf>, WorkloadError> {
    let every = files.div_ceil(OWN);
    let mut called = Vec::new();
    for number in 0..files {
        let path = folder.join(format!("{number:08}"));
        std::fs::File::create_new(&path).map_err(|e| error("make", &path, e))?;
        if number % every == 0 {
            called.push(path);
        }
    }
    Ok(called)
}

fn attribute(number: u64) -> String {
    format!("user.{number}")
}

/// Sets so many attributes of each file; gives the reason where files cannot have them here.
fn set_attributes(files: &[PathBuf], count: u64) -> Result<Option<Unsupported>, WorkloadError> {
    for file in files {
        for number in 0..count {
            let set = rustix::fs::lsetxattr(file, attribute(number), b"v", XattrFlags::empty());
            let reason = match set {
                Ok(()) => continue,
                Err(Errno::OPNOTSUPP) => {
                    "EOPNOTSUPP: files have no user attributes here".to_owned()
                }
                Err(Errno::NOSPC | Errno::DQUOT) => {
                    format!("the filesystem has no room for {count} attributes of a file")
                }
                Err(e) => return Err(error("set an attribute of", file, e)),
            };
            let metric = Metric::NamesGetxattr;
            return Ok(Some(Unsupported { metric, reason }));
        }
    }
    Ok(None)
}

/// One that NFS and virtiofs pass on to the server; 9p does so where it does not cache.
fn stat(path: &Path) -> Result<(), WorkloadError> {
    let found = rustix::fs::statx(
        CWD,
        path,
        AtFlags::STATX_FORCE_SYNC,
        StatxFlags::BASIC_STATS,
    );
    found.map(drop).map_err(|e| error("stat", path, e))
}

fn open_close(path: &Path) -> Result<(), WorkloadError> {
    let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    opened.map(drop).map_err(|e| error("open", path, e))
}

fn create_unlink(path: &Path) -> Result<(), WorkloadError> {
    std::fs::File::create_new(path).map_err(|e| error("make", path, e))?;
    std::fs::remove_file(path).map_err(|e| error("remove", path, e))
}

fn list(folder: &Path) -> Result<(), WorkloadError> {
    let entries = std::fs::read_dir(folder).map_err(|e| error("read the directory", folder, e))?;
    for entry in entries {
        entry.map_err(|e| error("read the directory", folder, e))?;
    }
    Ok(())
}

fn getxattr(path: &Path, name: &str) -> Result<(), WorkloadError> {
    let got = rustix::fs::lgetxattr(path, name, &mut [0; 16][..]);
    got.map(drop)
        .map_err(|e| error("read an attribute of", path, e))
}
