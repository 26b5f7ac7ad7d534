//! `fileio`: an event is one read, one write or one fsync of the test's files.
//!
//! Reference: sysbench 1.0 `fileio` with synchronous I/O, its `prepare` included. `seqwr` writes new files, `seqrewr` and
//! `seqrd` go through prepared ones, block after block and file after file, again from the start at the end; `rndrd`,
//! `rndwr` and `rndrw` draw blocks uniformly. After every `fsync-freq` requests all files are synced, one event
//! each, if anything was written; with `fsync-end` each thread syncs all files at its end, outside events.
//!
//! A trial starts from a defined state: whatever files of these names there are go, new ones are written with
//! pseudorandom data and synced (this is `prepare`, timed as sysbench times it), and are therefore in the page cache as
//! far as it reaches. They are removed at the end, also of a trial that fails.

mod requests;

use crate::buffer::Buffer;
use crate::descriptor::{Room, Workload, Yield, workload};
use crate::options::{
    Word, Words, alias, alias_of, count, must_end, one_of, ratio, size, some_of, switch,
};
use crate::sysbench::{self, EVENTS, THREADS, TIME, Worker};
use crate::{Clock, WorkloadError};
use requests::{Kinds, Layout, Plan, Request, Requests};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use vmtax_model::{Latency, Metric, Places, WorkloadName, WorkloadSpec};

workload! {
    Fileio: "reads, writes and syncs of files, like sysbench's fileio",
        quick [("total-size", "16M"), ("time", "1")], default [("total-size", "128M"), ("time", "2")], full [];
    num: u64 = count("num", "128", 1..=1 << 20, "number of files");
    block_size: u64 = size(WorkloadSpec::BLOCK_SIZE, "16384", 1..=1 << 30, 1, "bytes of a read or write")
        .aliases(&[alias("bs")]);
    total_size: u64 = size("total-size", "2G", 1..=1 << 50, 1, "bytes of all files together");
    test_mode: Word = one_of(
        "test-mode", "rndrw", &["seqwr", "seqrewr", "seqrd", "rndrd", "rndwr", "rndrw"],
        "sequential or random, reads or writes",
    ).aliases(&[
        alias_of("rw", &[("read", "seqrd"), ("write", "seqwr"), ("randread", "rndrd"), ("randwrite", "rndwr")]),
    ]);
    io_mode: Word = one_of("io-mode", "sync", &["sync"], "pread, pwrite and fsync");
    extra_flags: Words =
        some_of("extra-flags", "none", &["sync", "dsync", "direct"], "flags to open the files with");
    fsync_freq: u64 =
        count("fsync-freq", "100", 0..=1 << 31, "sync all files after this many requests; 0: never");
    fsync_all: bool = switch("fsync-all", "off", "sync after each write, and not otherwise");
    fsync_end: bool = switch("fsync-end", "on", "sync all files at the end");
    fsync_mode: Word = one_of("fsync-mode", "fsync", &["fsync", "fdatasync"], "how to sync");
    rw_ratio: f64 = ratio("rw-ratio", "1.5", "reads for each write in rndrw");
    threads: u32 = THREADS.aliases(&[alias("numjobs")]);
    time: f64 = TIME.aliases(&[alias("runtime")]);
    events: u64 = EVENTS;
}

/// Options that make writes durable.
#[derive(Clone, Copy)]
struct Sync {
    data_only: bool,
    after_each_write: bool,
    at_end: bool,
}

/// One kind of call that a thread made.
#[derive(Default)]
struct Calls {
    latency: Latency,
    bytes: u64,
}

/// The calls of a thread.
#[derive(Default)]
struct CallCounts {
    reads: Calls,
    writes: Calls,
    fsyncs: Calls,
}

struct Io<'a> {
    clock: &'a Clock,
    files: &'a Files,
    requests: Requests<'a>,
    sync: Sync,
    buffer: Buffer,
    calls: CallCounts,
}

impl Io<'_> {
    fn fsync(&mut self, file: usize) -> Result<(), WorkloadError> {
        let handle = &self.files.open[file];
        let sync = || {
            if self.sync.data_only {
                handle.sync_data()
            } else {
                handle.sync_all()
            }
        };
        self.clock
            .time(&mut self.calls.fsyncs.latency, sync)
            .map_err(|e| self.files.error("sync", file, e))
    }
}

impl Worker for Io<'_> {
    type Request = Request;

    fn next(&mut self) -> Option<Request> {
        Some(self.requests.next())
    }

    fn execute(&mut self, request: Request) -> Result<(), WorkloadError> {
        match request {
            Request::Fsync { file } => self.fsync(file),
            Request::Read {
                file,
                position,
                bytes,
            } => {
                let read = || {
                    self.files.open[file].read_exact_at(&mut self.buffer.bytes()[..bytes], position)
                };
                self.calls.reads.bytes += bytes as u64;
                self.clock
                    .time(&mut self.calls.reads.latency, read)
                    .map_err(|e| self.files.error("read", file, e))
            }
            Request::Write {
                file,
                position,
                bytes,
            } => {
                let write =
                    || self.files.open[file].write_all_at(&self.buffer.bytes()[..bytes], position);
                self.calls.writes.bytes += bytes as u64;
                self.clock
                    .time(&mut self.calls.writes.latency, write)
                    .map_err(|e| self.files.error("write", file, e))?;
                if self.sync.after_each_write {
                    self.fsync(file)
                } else {
                    Ok(())
                }
            }
        }
    }

    fn finish(&mut self) -> Result<(), WorkloadError> {
        let files = if self.sync.at_end {
            self.files.open.len()
        } else {
            0
        };
        (0..files).try_for_each(|file| self.fsync(file))
    }
}

impl Fileio {
    fn layout(&self) -> Layout {
        Layout {
            files: self.num as usize,
            file_bytes: self.total_size / self.num,
            block_bytes: self.block_size as usize,
        }
    }

    fn kinds(&self) -> Kinds {
        match self.test_mode {
            "seqwr" | "seqrewr" => Kinds::SequentialWrites,
            "seqrd" => Kinds::SequentialReads,
            "rndrd" => Kinds::RandomReads,
            "rndwr" => Kinds::RandomWrites,
            _ => Kinds::RandomBoth,
        }
    }
}

impl Workload for Fileio {
    /// `fsync-all` turns the other syncs off; files hold at least a block; direct I/O is of whole sectors.
    fn reconcile(&mut self) -> Result<(), WorkloadError> {
        must_end(WorkloadName::Fileio, self.time, EVENTS.name, self.events)?;
        let (file, block) = (self.total_size / self.num, self.block_size);
        let conflict = |conflict| Err(WorkloadError::conflict(WorkloadName::Fileio, conflict));
        if file < block {
            return conflict(
                "a file is smaller than a block: give a larger total-size, or a smaller num or block-size",
            );
        }
        if self.extra_flags.contains(&"direct") && (block % 512 != 0 || file % block != 0) {
            return conflict(
                "direct needs a block-size that is a multiple of 512 and divides total-size / num",
            );
        }
        if self.fsync_all {
            (self.fsync_freq, self.fsync_end) = (0, false);
        }
        Ok(())
    }

    fn room(&self, _: u64) -> Room {
        Room {
            files_bytes: self.total_size,
            ..Room::default()
        }
    }

    fn run(&self, clock: &Clock, places: &Places) -> Result<Yield, WorkloadError> {
        let (what, option) = ("a directory for its files", "--files DIR");
        let missing = WorkloadError::no_place(WorkloadName::Fileio, what, option);
        let directory = places.files.as_deref().ok_or(missing)?;
        let (layout, kinds) = (self.layout(), self.kinds());
        let sync = Sync {
            data_only: self.fsync_mode == "fdatasync",
            after_each_write: self.fsync_all,
            at_end: self.fsync_end && kinds.writes(),
        };
        let empty = self.test_mode == "seqwr";
        let (files, prepare) = Files::prepare(directory, layout, &self.extra_flags, empty, clock)?;
        let plan = Plan::new(layout, kinds, self.fsync_freq, self.rw_ratio);
        let workers = (0..self.threads)
            .map(|thread| {
                Ok(Io {
                    clock,
                    files: &files,
                    requests: Requests::of_thread(&plan, thread),
                    sync,
                    buffer: buffer(layout.block_bytes)?,
                    calls: CallCounts::default(),
                })
            })
            .collect::<Result<Vec<_>, WorkloadError>>()?;
        let (done, mut got) = sysbench::run(clock, self.time, self.events, workers)?;
        if let Some(mebibytes_per_s) = prepare {
            got.measure(Metric::FileioPrepare, mebibytes_per_s);
        }
        let mut report = |name, per_second, bandwidth, of: fn(&CallCounts) -> &Calls| {
            let all = all_calls(done.workers.iter().map(|worker| of(&worker.calls)));
            // What the mode does not do has no figure, rather than a zero that nothing can be compared with.
            if all.latency.count() > 0 {
                got.measure(per_second, all.latency.count() as f64 / done.total_s);
                let rate = all.bytes as f64 / (1 << 20) as f64 / done.total_s;
                if let Some(metric) = bandwidth {
                    got.measure(metric, rate);
                }
                got.operation(name, all.latency);
            }
        };
        let bandwidth = Some(Metric::FileioReadBandwidth);
        report("read", Metric::FileioReads, bandwidth, |t| &t.reads);
        let bandwidth = Some(Metric::FileioWriteBandwidth);
        report("write", Metric::FileioWrites, bandwidth, |t| &t.writes);
        report("fsync", Metric::FileioFsyncs, None, |t| &t.fsyncs);
        Ok(got)
    }
}

fn all_calls<'a>(of_threads: impl Iterator<Item = &'a Calls>) -> Calls {
    of_threads.fold(Calls::default(), |mut all, calls| {
        all.latency.add(&calls.latency);
        all.bytes += calls.bytes;
        all
    })
}

/// The files of a trial, open; removed when dropped.
struct Files {
    directory: PathBuf,
    count: usize,
    pub open: Vec<File>,
}

/// A block's buffer.
fn buffer(bytes: usize) -> Result<Buffer, WorkloadError> {
    Buffer::new(bytes as u64, WorkloadName::Fileio, WorkloadSpec::BLOCK_SIZE)
}

fn open_flags(words: &[&str]) -> i32 {
    words.iter().fold(0, |flags, word| {
        flags
            | match *word {
                "sync" => libc::O_SYNC,
                "dsync" => libc::O_DSYNC,
                "direct" => libc::O_DIRECT,
                _ => 0,
            }
    })
}

fn path(directory: &Path, file: usize) -> PathBuf {
    // sysbench's own names, so that one tool's leftovers are the other's to replace.
    directory.join(format!("test_file.{file}"))
}

fn file_error(action: &'static str, path: PathBuf, source: io::Error) -> WorkloadError {
    let fix = match source.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => {
            "give a smaller total-size, or a directory with more free space"
        }
        Some(libc::EMFILE | libc::ENFILE) => "give a smaller num, or raise `ulimit -n`",
        Some(libc::EINVAL) => {
            "its filesystem may refuse extra-flags=direct: give another directory or extra-flags=none"
        }
        Some(libc::ENOENT | libc::ENOTDIR) => "create the directory first, or give another one",
        _ => "give a directory on a disk that works and is writable",
    };
    WorkloadError::File {
        action,
        path,
        source,
        fix,
    }
}

impl Files {
    /// Writes new files (or none but their names, for a test that writes them itself) and opens them. Also gives the
    /// MiB/s of writing, syncs included.
    pub fn prepare(
        directory: &Path,
        layout: Layout,
        flags: &[&str],
        empty: bool,
        clock: &Clock,
    ) -> Result<(Files, Option<f64>), WorkloadError> {
        let mut files = Files {
            directory: directory.to_owned(),
            count: layout.files,
            open: Vec::new(),
        };
        for file in 0..layout.files {
            match fs::remove_file(path(directory, file)) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    return Err(files.error("remove", file, e));
                }
                _ => {}
            }
        }
        let flags = open_flags(flags);
        let mut buffer = buffer(layout.block_bytes)?;
        let began = clock.start();
        let mut how = OpenOptions::new();
        how.write(true).create_new(true).custom_flags(flags);
        for file in 0..layout.files {
            let new = files.open(file, &how)?;
            if !empty {
                files.fill(file, new, layout, &mut buffer)?;
            }
        }
        let seconds = clock.ns(began, clock.stop()) as f64 / 1e9;
        let mut how = OpenOptions::new();
        how.read(true).write(true).custom_flags(flags);
        let open = (0..layout.files).map(|file| files.open(file, &how));
        files.open = open.collect::<Result<_, _>>()?;
        let mebibytes = (layout.file_bytes * layout.files as u64) as f64 / (1 << 20) as f64;
        Ok((files, (!empty).then(|| mebibytes / seconds)))
    }

    /// Writes a new file, and syncs it.
    fn fill(
        &self,
        file: usize,
        mut new: File,
        layout: Layout,
        buffer: &mut Buffer,
    ) -> Result<(), WorkloadError> {
        for position in (0..layout.file_bytes).step_by(layout.block_bytes) {
            buffer.stamp(file as u64 * layout.file_bytes + position);
            let written = new.write_all(&buffer.bytes()[..layout.bytes_at(position)]);
            written.map_err(|e| self.error("write", file, e))?;
        }
        new.sync_all().map_err(|e| self.error("sync", file, e))
    }

    fn open(&self, file: usize, how: &OpenOptions) -> Result<File, WorkloadError> {
        how.open(path(&self.directory, file))
            .map_err(|e| self.error("open", file, e))
    }

    /// The error of a call on a file.
    pub fn error(&self, action: &'static str, file: usize, source: io::Error) -> WorkloadError {
        file_error(action, path(&self.directory, file), source)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for file in 0..self.count {
            // One that is not there, or will not go, has been reported or is the next trial's to report.
            let _ = fs::remove_file(path(&self.directory, file));
        }
    }
}
