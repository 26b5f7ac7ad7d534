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

mod files;
mod requests;

use super::events::{self, Worker};
use super::{EVENTS, THREADS, TIME, common, limits};
use crate::buffer::Buffer;
use crate::options::{Kind, OptionInfo, Values, must_end};
use crate::{Clock, Places, WorkloadError, Yield};
use files::{Files, Layout};
use requests::{Kinds, Plan, Request, Requests};
use std::os::unix::fs::FileExt;
use vmtax_model::{Latency, Metric, WorkloadName, WorkloadSpec};

pub(crate) const OPTIONS: &[OptionInfo] = &[
    OptionInfo { name: "num", default: "128", help: "number of files", kind: Kind::Count { min: 1, max: 1 << 20 } },
    OptionInfo {
        name: "block-size",
        default: "16384",
        help: "bytes of a read or write",
        kind: Kind::Size { min: 1, max: 1 << 30, multiple: 1 },
    },
    OptionInfo {
        name: "total-size",
        default: "2G",
        help: "bytes of all files together",
        kind: Kind::Size { min: 1, max: 1 << 50, multiple: 1 },
    },
    OptionInfo {
        name: "test-mode",
        default: "rndrw",
        help: "sequential or random, reads or writes",
        kind: Kind::OneOf(&["seqwr", "seqrewr", "seqrd", "rndrd", "rndwr", "rndrw"]),
    },
    OptionInfo { name: "io-mode", default: "sync", help: "pread, pwrite and fsync", kind: Kind::OneOf(&["sync"]) },
    OptionInfo {
        name: "extra-flags",
        default: "none",
        help: "flags to open the files with",
        kind: Kind::SomeOf("none", &["sync", "dsync", "direct"]),
    },
    OptionInfo {
        name: "fsync-freq",
        default: "100",
        help: "sync all files after this many requests; 0: never",
        kind: Kind::Count { min: 0, max: 1 << 31 },
    },
    OptionInfo {
        name: "fsync-all",
        default: "off",
        help: "sync after each write, and not otherwise",
        kind: Kind::Switch,
    },
    OptionInfo { name: "fsync-end", default: "on", help: "sync all files at the end", kind: Kind::Switch },
    OptionInfo {
        name: "fsync-mode",
        default: "fsync",
        help: "how to sync",
        kind: Kind::OneOf(&["fsync", "fdatasync"]),
    },
    OptionInfo { name: "rw-ratio", default: "1.5", help: "reads for each write in rndrw", kind: Kind::Ratio },
    THREADS,
    TIME,
    EVENTS,
];

/// `fsync-all` turns the other syncs off; files hold at least a block; direct I/O is of whole sectors.
pub(crate) fn reconcile(spec: &mut WorkloadSpec) -> Result<(), WorkloadError> {
    must_end(spec, "events")?;
    let values = Values(spec);
    let (file, block) = (values.number("total-size")? / values.number("num")?, values.number("block-size")?);
    let conflict =
        |conflict: &str| Err(WorkloadError::Conflict { workload: WorkloadName::Fileio, conflict: conflict.to_owned() });
    if file < block {
        return conflict("a file is smaller than a block: give a larger total-size, or a smaller num or block-size");
    }
    if values.text("extra-flags").contains("direct") && (block % 512 != 0 || file % block != 0) {
        return conflict("direct needs a block-size that is a multiple of 512 and divides total-size / num");
    }
    if values.is_on("fsync-all") {
        spec.options.insert("fsync-freq".to_owned(), "0".to_owned());
        spec.options.insert("fsync-end".to_owned(), "off".to_owned());
    }
    Ok(())
}

/// How writes become durable.
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
struct Tally {
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
    tally: Tally,
}

impl Io<'_> {
    fn fsync(&mut self, file: usize) -> Result<(), WorkloadError> {
        let handle = &self.files.open[file];
        let began = self.clock.start();
        let done = if self.sync.data_only { handle.sync_data() } else { handle.sync_all() };
        self.tally.fsyncs.latency.record(self.clock.ns(began, self.clock.stop()));
        done.map_err(|e| self.files.error("sync", file, e))
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
            Request::Read { file, position, bytes } => {
                let began = self.clock.start();
                let done = self.files.open[file].read_exact_at(&mut self.buffer.bytes()[..bytes], position);
                self.tally.reads.latency.record(self.clock.ns(began, self.clock.stop()));
                self.tally.reads.bytes += bytes as u64;
                done.map_err(|e| self.files.error("read", file, e))
            }
            Request::Write { file, position, bytes } => {
                let began = self.clock.start();
                let done = self.files.open[file].write_all_at(&self.buffer.bytes()[..bytes], position);
                self.tally.writes.latency.record(self.clock.ns(began, self.clock.stop()));
                self.tally.writes.bytes += bytes as u64;
                done.map_err(|e| self.files.error("write", file, e))?;
                if self.sync.after_each_write { self.fsync(file) } else { Ok(()) }
            }
        }
    }

    fn finish(&mut self) -> Result<(), WorkloadError> {
        let files = if self.sync.at_end { self.files.open.len() } else { 0 };
        (0..files).try_for_each(|file| self.fsync(file))
    }
}

fn kinds(mode: &str) -> Kinds {
    match mode {
        "seqwr" | "seqrewr" => Kinds::SequentialWrites,
        "seqrd" => Kinds::SequentialReads,
        "rndrd" => Kinds::RandomReads,
        "rndwr" => Kinds::RandomWrites,
        _ => Kinds::RandomBoth,
    }
}

pub(crate) fn run(values: &Values, clock: &Clock, places: &Places) -> Result<Yield, WorkloadError> {
    let directory = places.files.as_deref().ok_or(WorkloadError::NoPlace {
        workload: WorkloadName::Fileio,
        what: "a directory for its files",
        option: "--files DIR",
    })?;
    let files = values.number("num")? as usize;
    let layout = Layout {
        files,
        file_bytes: values.number("total-size")? / files as u64,
        block_bytes: values.number("block-size")? as usize,
    };
    let (mode, flags) = (values.text("test-mode"), values.text("extra-flags"));
    let kinds = kinds(mode);
    let sync = Sync {
        data_only: values.text("fsync-mode") == "fdatasync",
        after_each_write: values.is_on("fsync-all"),
        at_end: values.is_on("fsync-end") && kinds.writes(),
    };
    let (files, prepare) = Files::prepare(directory, layout, flags, mode == "seqwr", clock)?;
    let plan = Plan::new(layout, kinds, values.number("fsync-freq")?, values.real("rw-ratio")?);
    let workers = (0..values.small("threads")?)
        .map(|thread| {
            Ok(Io {
                clock,
                files: &files,
                requests: Requests::of_thread(&plan, thread),
                sync,
                buffer: files::buffer(layout.block_bytes)?,
                tally: Tally::default(),
            })
        })
        .collect::<Result<Vec<_>, WorkloadError>>()?;
    let mut done = events::run(clock, &limits(values)?, workers)?;
    let mut got = common(&mut done);
    if let Some(mebibytes_per_s) = prepare {
        got.measure(Metric::FileioPrepare, mebibytes_per_s);
    }
    let mut report = |name, per_second, bandwidth: Option<Metric>, of: fn(&Tally) -> &Calls| {
        let mut all = Latency::new();
        done.workers.iter().for_each(|w| all.add(&of(&w.tally).latency));
        // What the mode does not do has no figure, rather than a zero that nothing can be compared with.
        if all.count() > 0 {
            got.measure(per_second, all.count() as f64 / done.total_s);
            if let Some(metric) = bandwidth {
                let bytes: u64 = done.workers.iter().map(|w| of(&w.tally).bytes).sum();
                got.measure(metric, bytes as f64 / (1 << 20) as f64 / done.total_s);
            }
            got.operation(name, all);
        }
    };
    report("read", Metric::FileioReads, Some(Metric::FileioReadBandwidth), |t| &t.reads);
    report("write", Metric::FileioWrites, Some(Metric::FileioWriteBandwidth), |t| &t.writes);
    report("fsync", Metric::FileioFsyncs, None, |t| &t.fsyncs);
    Ok(got)
}
