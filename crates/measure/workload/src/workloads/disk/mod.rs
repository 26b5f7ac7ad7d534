//! `disk`: block requests to a block device or a written file, around every cache of the kernel.
//!
//! As it is without options: reads from start to end and again, one block at a time. Reference: fio with
//! `ioengine=psync direct=1 rw=read bs=4k iodepth=1`; with a `depth` above 1, `ioengine=io_uring`; with `mode=random`,
//! `norandommap=1`. A latency here is what fio calls clat. The figures are the median and 99th percentile of the
//! latency and the requests per second, reads or writes.

mod requests;

use crate::descriptor::{Workload, Yield, options_of, workload};
use crate::options::{
    self, Options, Word, alias, alias_of, count, must_end, nanoseconds, one_of, seconds, size,
};
use crate::recorder::Recorder;
use crate::{Clock, WorkloadError};
pub use requests::BlockWork;
use requests::{COUNT, OpenDisk, SMALLEST};
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

impl BlockWork {
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
        let disk = OpenDisk::open(path, self)?;
        if self.depth == 1 {
            requests::run_one_by_one(self, &disk, clock, note)
        } else {
            requests::run_in_ring(self, &disk, clock, note)
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
