//! `open-fids`: what a call costs when the share's server knows many names. A 9p server has a *fid* for each name that the
//! guest keeps: with `cache=loose` for each name ever looked up, and always for each file held open.
//!
//! `count` names are made known: names of the tree, and empty files in the share's folder `scratch` for the rest. Every
//! tenth is such a file: on at most 100 of these, drawn at random, `stat` and open with close are timed, so that
//! they are spread over the server's list, first to last. With `keep=yes` the files stay: a later trial in the same guest
//! knows the same names and more, in the same order. Their stat is forced to the server: `AT_STATX_FORCE_SYNC` does
//! so on NFS and virtiofs; Linux' 9p ignores it, and asks the server only for a name whose attributes it knows to be
//! stale, hence before each timed stat a `chmod` that changes nothing. The stat is then one `Tgetattr` on the fid that
//! the name has, in every cache mode. Of these chmods and stats on 9p the controller counts the CPU time of QEMU's main
//! thread, which looks up fids: unlike the time of a stat it has no waits for a CPU.

use crate::descriptor::{Room, Workload, Yield, workload};
use crate::options::{Word, count, one_of};
use crate::share::{Folder, NAME_BYTES, SCRATCH, error, kept_folder, own_folder, root};
use crate::{Clock, WorkloadError};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::{read, retry_on_intr, write};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::CString;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use vmtax_model::{BatchEdge, Latency, Metric, Places, Unsupported, WorkloadName};

/// Bytes of the kernel's memory for a name that is held open: inode, name, open file.
const HELD_BYTES: u64 = 2048;
/// Descriptors for all else.
const SPARE: u64 = 64;
/// Enough for a median that decides nothing but a note.
const LOCAL: usize = 101;
/// A chmod and a stat, each with one look-up of the fid.
const REQUESTS: u64 = 2;
/// The drawing is the same in every trial.
const SEED: u64 = 4713;

workload! {
    OpenFids: "stat and open while the 9p server holds many fids";
    count: u64 = count("count", "1000", 1..=1 << 24, "names that are known while calls are timed");
    how: Word = one_of(
        "how", "cached", &["cached", "held"],
        "cached: looked up, which 9p remembers with cache=loose; held: kept open",
    );
    keep: Word = one_of(
        "keep", "no", &["no", "yes"],
        "yes: the files stay for a trial with more names in the same guest (scale --one-boot)",
    );
    samples: u64 = count("samples", "2000", 1..=1 << 24, "calls of each kind that are timed");
}

impl OpenFids {
    fn folder(&self, places: &Places) -> Result<Folder, WorkloadError> {
        match self.keep {
            "yes" => kept_folder(WorkloadName::OpenFids, places),
            _ => own_folder(WorkloadName::OpenFids, places),
        }
    }

    fn holds(&self) -> bool {
        self.how == "held"
    }
}

impl Workload for OpenFids {
    fn room(&self, tree_files: u64) -> Room {
        let files = self
            .count
            .saturating_sub(tree_files)
            .max(self.count.div_ceil(OWN_EVERY));
        let held_files = if self.holds() { self.count } else { 0 };
        Room {
            share_bytes: files * NAME_BYTES,
            share_files: files + files / 1000 + 2,
            known_names: self.count,
            held_files,
            held_bytes: held_files.saturating_mul(HELD_BYTES),
            ..Room::default()
        }
    }

    fn run(&self, clock: &Clock, places: &Places) -> Result<Yield, WorkloadError> {
        let root = root(WorkloadName::OpenFids, places)?;
        let (count, samples) = (self.count, self.samples);
        let mut got = Yield::default();
        let began = clock.start();
        let folder = self.folder(places)?;
        let mut known = Known::new(folder, self.holds(), clock);
        if known.hold {
            got.notes.push(raise_limit(count)?);
        }
        known.learn(count, root)?;
        let own = known.timed();
        let own = own.filter_map(|p| CString::new(p.as_os_str().as_bytes()).ok());
        let own: Vec<CString> = own.collect();
        let calls = Calls {
            clock,
            own: &own,
            stale: is_9p(root),
        };
        notify(places, BatchEdge::Begin)?;
        let (stat, again) = calls.stat(samples)?;
        if calls.stale {
            let requests = samples * REQUESTS;
            notify(places, BatchEdge::End { requests })?;
        } else {
            got.unsupported.push(Unsupported {
                metric: Metric::OpenFidsStatCpu,
                reason: "QEMU itself serves only 9p".to_owned(),
            });
        }
        let open_close = calls.open_close(samples)?;
        if calls.stale && stat.quantile(0.5) < 4 * calls.local()? {
            got.notes.push(
                "open-fids.stat takes little longer than a stat outside the share: the server was probably not asked".to_owned(),
            );
        }
        got.measure(Metric::OpenFidsStat, stat.quantile(0.5) as f64);
        got.measure(Metric::OpenFidsOpenClose, open_close.quantile(0.5) as f64);
        let learned = if known.hold { "hold" } else { "lookup" };
        got.operation("stat", stat);
        got.operation("stat-again", again);
        got.operation("open_close", open_close);
        got.operation(learned, std::mem::take(&mut known.latency));
        got.total_s = clock.ns(began, clock.stop()) as f64 / 1e9;
        if self.keep == "yes" {
            known.folder.keep();
        }
        Ok(got)
    }
}

/// Lets this process have so many files open. Says what the limit was and is.
fn raise_limit(count: u64) -> Result<String, WorkloadError> {
    let needed = count + SPARE;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let hard = maximum.unwrap_or(u64::MAX);
    // A guest's root may raise the hard limit too.
    let wanted = Some(hard.max(needed));
    let limit = Rlimit {
        current: wanted,
        maximum: wanted,
    };
    let raised = setrlimit(Resource::Nofile, limit);
    if hard < needed && raised.is_err() {
        let conflict = format!(
            "count={count} files held open exceed RLIMIT_NOFILE, {hard}: give a smaller count, how=cached, \
             or raise `ulimit -Hn`"
        );
        return Err(WorkloadError::conflict(WorkloadName::OpenFids, conflict));
    }
    let now = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    Ok(format!(
        "RLIMIT_NOFILE is {now}; it was {} (soft) and {hard} (hard)",
        current.unwrap_or(u64::MAX)
    ))
}

/// From the list of mounts, by device: asked for the kind of its filesystem, 9p answers with its server's.
fn is_9p(path: &Path) -> bool {
    let device = rustix::fs::stat(path).map(|s| {
        let (major, minor) = (rustix::fs::major(s.st_dev), rustix::fs::minor(s.st_dev));
        format!("{major}:{minor}")
    });
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    device.is_ok_and(|device| kind_of(&mounts, &device) == Some("9p"))
}

/// The kind of the filesystem on a device, `MAJOR:MINOR`, from the text of `mountinfo`.
fn kind_of<'a>(mounts: &'a str, device: &str) -> Option<&'a str> {
    let line = mounts
        .lines()
        .find(|line| line.split(' ').nth(2) == Some(device))?;
    line.split_once(" - ")?.1.split(' ').next()
}

/// System calls that are timed, and the files that they are made on.
struct Calls<'a> {
    clock: &'a Clock,
    own: &'a [CString],
    /// True if attributes have to be made stale before each stat.
    stale: bool,
}

impl Calls<'_> {
    fn drawn(&self, samples: u64) -> impl Iterator<Item = &CString> {
        let mut random = fastrand::Rng::with_seed(SEED);
        (0..samples).filter_map(move |_| self.own.get(random.usize(..self.own.len().max(1))))
    }

    /// Stats that ask the server, and the same at once again, which a cache may answer.
    fn stat(&self, samples: u64) -> Result<(Latency, Latency), WorkloadError> {
        let (mut asked, mut again) = (Latency::new(), Latency::new());
        for name in self.drawn(samples) {
            if self.stale {
                rustix::fs::chmod(name.as_c_str(), Mode::from(0o644))
                    .map_err(|e| failed("chmod", name, e))?;
            }
            for (flags, latency) in [
                (AtFlags::STATX_FORCE_SYNC, &mut asked),
                (AtFlags::empty(), &mut again),
            ] {
                let statx =
                    || rustix::fs::statx(CWD, name.as_c_str(), flags, StatxFlags::BASIC_STATS);
                self.clock
                    .time(latency, statx)
                    .map_err(|e| failed("stat", name, e))?;
            }
        }
        Ok((asked, again))
    }

    /// The median of a stat that no server is asked for, ns.
    fn local(&self) -> Result<u64, WorkloadError> {
        let mut latency = Latency::new();
        for _ in 0..LOCAL {
            self.clock
                .time(&mut latency, || rustix::fs::stat("/"))
                .map_err(|e| error("stat", "/", e))?;
        }
        Ok(latency.quantile(0.5))
    }

    fn open_close(&self, samples: u64) -> Result<Latency, WorkloadError> {
        let mut latency = Latency::new();
        for name in self.drawn(samples) {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let open = || rustix::fs::open(name.as_c_str(), flags, Mode::empty());
            self.clock
                .time(&mut latency, || open().map(drop))
                .map_err(|e| failed("open", name, e))?;
        }
        Ok(latency)
    }
}

fn failed(action: &'static str, name: &CString, e: rustix::io::Errno) -> WorkloadError {
    error(action, name.to_string_lossy().as_ref(), e)
}

/// Notifies the agent, if it waits for that, and waits until the controller has read the clock.
pub(crate) fn notify(places: &Places, edge: BatchEdge) -> Result<(), WorkloadError> {
    if !places.notified {
        return Ok(());
    }
    let agent = rustix::stdio::stdin();
    // Eight bytes fit into an empty socket at once.
    retry_on_intr(|| write(agent, &edge.to_bytes())).map_err(|e| WorkloadError::Agent(e.into()))?;
    match retry_on_intr(|| read(agent, &mut [0; 1][..])) {
        Ok(1) => Ok(()),
        Ok(_) => Err(WorkloadError::Agent(ErrorKind::UnexpectedEof.into())),
        Err(e) => Err(WorkloadError::Agent(e.into())),
    }
}

/// Of so many names one is a file of its own, whatever the number of names: a trial with more of them has the same first ones.
const OWN_EVERY: u64 = 10;
/// Own files on which calls are timed, at most: as many with many names as with few.
const TIMED: usize = 100;
/// Names are made known by so many threads: while one waits for the server, or for a CPU of a busy host, others do not …
const LEARNERS: usize = 16;
/// … and so many at a time, so that the server learns them about in order.
const BATCH: usize = 1024;
/// Names in a folder of its own.
const FOLDER: u64 = 1000;

/// The names that the server knows by now.
struct Known<'a> {
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
            let path = existing.map_or_else(|| self.next_made(), Ok)?;
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
            std::fs::create_dir(&folder).map_err(|e| error("create the directory", &folder, e))?;
        }
        let path = folder.join(format!("{:03}", self.made % FOLDER));
        self.made += 1;
        Ok(path)
    }

    fn look_up(&mut self, batch: &[Name]) -> Result<(), WorkloadError> {
        let learners = 0..LEARNERS.min(batch.len());
        let mut parts: Vec<Part> = learners.map(|_| Part::new(self.hold, self.clock)).collect();
        std::thread::scope(|scope| {
            for (first, part) in parts.iter_mut().enumerate() {
                let learner = move || part.learn(batch.iter().skip(first).step_by(LEARNERS));
                let started = std::thread::Builder::new().spawn_scoped(scope, learner);
                started.map_err(WorkloadError::thread(first, LEARNERS))?;
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
            let stat = || rustix::fs::lstat(path);
            let found = self.clock.time(&mut self.latency, stat);
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
                let opened = std::fs::read_dir(&folder);
                self.open = Some(opened.map_err(|e| error("read the directory", &folder, e))?);
                continue;
            };
            let Some(entry) = open.next() else {
                self.open = None;
                continue;
            };
            let entry = entry.map_err(|e| error("read a directory of", &self.scratch, e))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_filesystem_is_that_of_its_device() {
        let mounts = "22 1 254:0 / / rw - ext4 /dev/vda rw\n\
                      31 22 0:29 / /a\\040b rw,nosuid shared:5 - 9p share rw,trans=virtio\n";
        assert_eq!(
            [kind_of(mounts, "0:29"), kind_of(mounts, "254:0")],
            [Some("9p"), Some("ext4")]
        );
        assert_eq!(kind_of(mounts, "0:2"), None);
        assert!(!is_9p(Path::new("/proc")));
    }

    #[test]
    fn more_names_held_than_any_kernel_allows_are_refused() {
        let error = raise_limit(1 << 40).unwrap_err().to_string();
        assert!(
            error.contains("RLIMIT_NOFILE") && error.contains("smaller count"),
            "{error}"
        );
        assert!(raise_limit(1).unwrap().contains("RLIMIT_NOFILE"));
    }
}
