//! `seqread`: block requests to a block device or a written file, around every cache of the kernel.
//!
//! As it is without options: reads from start to end and again, one block at a time. Reference: fio with
//! `ioengine=psync direct=1 rw=read bs=4k iodepth=1`; with a `depth` above 1, `ioengine=io_uring`; with `mode=random`,
//! `norandommap=1`. A latency here is what fio calls clat. The figures are the median and 99th percentile of the
//! latency and the requests per second, reads or writes.

mod disk;
mod one;
mod positions;
mod recorder;
mod ring;

use crate::buffer::Buffer;
use crate::options::{Kind, OptionInfo, Values};
use crate::{Clock, Places, WorkloadError, Yield, check};
use disk::Disk;
use recorder::Recorder;
use vmtax_model::{Latency, Metric, Series, WorkloadName, WorkloadSpec};

/// Less than this and a disk's own cache would hold all of it.
const SMALLEST: u64 = 1 << 20;

pub(crate) const OPTIONS: &[OptionInfo] = &[
    OptionInfo {
        name: "block-size",
        default: "4K",
        help: "bytes of a request",
        kind: Kind::Size { min: 512, max: SMALLEST, multiple: 512 },
    },
    OptionInfo {
        name: "mode",
        default: "seq",
        help: "seq: block after block; random: any block, each time the same sequence",
        kind: Kind::OneOf(&["seq", "random"]),
    },
    OptionInfo {
        name: "operation",
        default: "read",
        help: "read, or write, which overwrites the disk",
        kind: Kind::OneOf(&["read", "write"]),
    },
    OptionInfo {
        name: "depth",
        default: "1",
        help: "requests under way at a time; above 1 through io_uring",
        kind: Kind::Count { min: 1, max: 32 },
    },
    OptionInfo {
        name: "time",
        default: "10",
        help: "seconds after which no new request starts; 0: no limit",
        kind: Kind::Seconds { min: 0.0, max: 86_400.0 },
    },
    OptionInfo {
        name: "count",
        default: "0",
        help: "requests after which none starts; 0: no limit",
        kind: Kind::Count { min: 0, max: u64::MAX },
    },
];

/// What `seqread` is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockWork {
    /// Bytes of a request.
    pub block: u64,
    /// Any block, rather than one after the other.
    pub random: bool,
    /// Writes, rather than reads.
    pub write: bool,
    /// Requests under way at a time.
    pub depth: u32,
    /// Nanoseconds after which none starts; 0: no limit.
    pub time_ns: u64,
    /// Requests after which none starts; 0: no limit.
    pub count: u64,
}

/// What a spec of `seqread` asks for, for those that do the same by other means.
///
/// # Errors
/// As [`check`], and [`WorkloadError::NotBlocks`] for other workloads.
pub fn block_work(spec: &WorkloadSpec) -> Result<BlockWork, WorkloadError> {
    if spec.name != WorkloadName::Seqread {
        return Err(WorkloadError::NotBlocks(spec.name));
    }
    BlockWork::of(&Values(&check(spec)?))
}

impl BlockWork {
    fn of(values: &Values) -> Result<BlockWork, WorkloadError> {
        Ok(BlockWork {
            block: values.number("block-size")?,
            random: values.text("mode") == "random",
            write: values.text("operation") == "write",
            depth: values.small("depth")?,
            time_ns: values.nanoseconds("time")?,
            count: values.number("count")?,
        })
    }

    /// The operation's name, for people and in results.
    fn operation(&self) -> &'static str {
        if self.write { "write" } else { "read" }
    }

    /// Whether another request starts, after so many and so long.
    #[inline(always)]
    fn goes_on(&self, made: u64, ns: u64) -> bool {
        (self.time_ns == 0 || ns < self.time_ns) && (self.count == 0 || made < self.count)
    }

    fn buffer(&self) -> Result<Buffer, WorkloadError> {
        Buffer::new(self.block as usize).ok_or(WorkloadError::NoMemory {
            workload: WorkloadName::Seqread,
            bytes: self.block,
            option: "block-size",
        })
    }

    /// Makes the requests. `note` is told of each when it is done: the stamps of its begin and its end, and where.
    /// Gives the stamps of the first's begin and the last's end.
    fn run(
        &self,
        places: &Places,
        clock: &Clock,
        note: impl FnMut(u64, u64, u64),
    ) -> Result<(u64, u64), WorkloadError> {
        let path = places.disk.as_deref().ok_or(WorkloadError::NoPlace {
            workload: WorkloadName::Seqread,
            what: "a block device or a written file",
            option: "--disk FILE",
        })?;
        let disk = Disk::open(path, self)?;
        if self.depth == 1 { one::run(self, &disk, clock, note) } else { ring::run(self, &disk, clock, note) }
    }

    fn figures(&self, latency: Latency, total_ns: u64) -> Yield {
        let mut got = Yield { total_s: total_ns as f64 / 1e9, ..Yield::default() };
        got.measure(Metric::SeqreadMedian, latency.quantile(0.5) as f64);
        got.measure(Metric::SeqreadTail, latency.quantile(0.99) as f64);
        got.measure(Metric::SeqreadRate, latency.count() as f64 / got.total_s);
        got.operation(self.operation(), latency);
        got
    }
}

pub(crate) fn run(values: &Values, clock: &Clock, places: &Places) -> Result<Yield, WorkloadError> {
    let work = BlockWork::of(values)?;
    let mut latency = Latency::new();
    let (start, end) = work.run(places, clock, |began, ended, _| latency.record(clock.ns(began, ended)))?;
    Ok(work.figures(latency, clock.ns(start, end)))
}

/// The same, and keeps the stamps of each request.
pub(crate) fn run_with_series(
    values: &Values,
    clock: &Clock,
    places: &Places,
) -> Result<(Yield, Series), WorkloadError> {
    let work = BlockWork::of(values)?;
    let mut recorder = Recorder::new(&work, clock)?;
    let mut latency = Latency::new();
    let (start, end) = work.run(places, clock, |began, ended, position| {
        latency.record(clock.ns(began, ended));
        recorder.note(began, ended, position);
    })?;
    Ok((work.figures(latency, clock.ns(start, end)), recorder.series(clock)))
}
