//! `seqread`: reads a block device or a written file from start to end and again, one block at a time, around every
//! cache of the kernel.
//!
//! Reference: fio with `ioengine=psync direct=1 rw=read bs=4k iodepth=1`; a latency here is what fio calls clat. The
//! figures are the median and 99th percentile of the latency and the reads per second.

use crate::buffer::Buffer;
use crate::options::{Kind, OptionInfo, Values};
use crate::{Clock, Places, WorkloadError, Yield};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use vmtax_model::{Latency, Metric, WorkloadName};

/// Less than this and a disk's own cache would hold all of it.
const SMALLEST: u64 = 1 << 20;

pub(crate) const OPTIONS: &[OptionInfo] = &[
    OptionInfo {
        name: "block-size",
        default: "4K",
        help: "bytes of a read",
        kind: Kind::Size { min: 512, max: SMALLEST, multiple: 512 },
    },
    OptionInfo {
        name: "time",
        default: "10",
        help: "seconds after which no new read starts; 0: no limit",
        kind: Kind::Seconds { min: 0.0, max: 86_400.0 },
    },
    OptionInfo {
        name: "count",
        default: "0",
        help: "reads after which none starts; 0: no limit",
        kind: Kind::Count { min: 0, max: u64::MAX },
    },
];

fn unreadable(path: &Path, why: impl Into<String>) -> WorkloadError {
    WorkloadError::Unreadable { path: path.to_owned(), why: why.into() }
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> WorkloadError {
    let mend = match source.kind() {
        ErrorKind::NotFound => "give an existing block device or file with --disk",
        ErrorKind::PermissionDenied => "run as root, or give a file of your own with --disk",
        _ => "give another block device or file with --disk",
    };
    WorkloadError::File { action, path: path.to_owned(), source, mend }
}

/// Opens the disk for direct reads and finds its size.
fn open(path: &Path) -> Result<(File, u64), WorkloadError> {
    // Before it is opened: opening a FIFO would wait for a writer.
    let kind = path.metadata().map_err(|e| failed("look at", path, e))?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(unreadable(path, "is neither a file nor a block device: give one with --disk"));
    }
    let mut file =
        OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).map_err(|e| match e.raw_os_error() {
            Some(libc::EINVAL) => unreadable(
                path,
                "refuses direct I/O (O_DIRECT), as tmpfs and some overlays do: put the disk on ext4, xfs or btrfs",
            ),
            _ => failed("open", path, e),
        })?;
    // A block device's metadata say nothing of its size; its end does.
    let bytes = file.seek(SeekFrom::End(0)).map_err(|e| failed("look at", path, e))?;
    if bytes < SMALLEST {
        return Err(unreadable(path, format!("has {bytes} bytes: give a disk of at least {SMALLEST}")));
    }
    if kind.is_file() {
        // Also finds space that is reserved but not written, which reads as zeros without a disk.
        // SAFETY: lseek has no memory to be safe about.
        let hole = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_HOLE) };
        if (0..bytes as i64).contains(&hole) {
            return Err(unreadable(
                path,
                format!("is sparse (a hole at byte {hole}), and holes are read without a disk: write it full first"),
            ));
        }
    }
    Ok((file, bytes))
}

pub(crate) fn run(values: &Values, clock: &Clock, places: &Places) -> Result<Yield, WorkloadError> {
    let path = places.disk.as_deref().ok_or(WorkloadError::NoPlace {
        workload: WorkloadName::Seqread,
        what: "a block device or a written file to read",
        option: "--disk FILE",
    })?;
    let (disk, bytes) = open(path)?;
    let block = values.number("block-size")?;
    let (time_ns, count) = (values.nanoseconds("time")?, values.number("count")?);
    let mut buffer = Buffer::new(block as usize).ok_or(WorkloadError::NoMemory {
        workload: WorkloadName::Seqread,
        bytes: block,
        option: "block-size",
    })?;
    let mut latency = Latency::new();
    let end = bytes - bytes % block;
    let mut position = 0;
    let start = clock.start();
    let mut now = start;
    while (time_ns == 0 || clock.ns(start, now) < time_ns) && (count == 0 || latency.count() < count) {
        let began = clock.start();
        let read = disk.read_at(buffer.bytes(), position);
        now = clock.stop();
        latency.record(clock.ns(began, now));
        match read {
            Ok(n) if n as u64 == block => {}
            Ok(n) => {
                return Err(unreadable(
                    path,
                    format!("gave {n} of {block} bytes at {position}: it shrank; give a disk at rest"),
                ));
            }
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                return Err(unreadable(
                    path,
                    format!(
                        "refuses direct reads of {block} bytes: give a larger block-size, or a disk on ext4, xfs or btrfs"
                    ),
                ));
            }
            Err(e) => return Err(failed("read", path, e)),
        }
        position += block;
        if position == end {
            position = 0;
        }
    }
    let mut got = Yield { total_s: clock.ns(start, now) as f64 / 1e9, ..Yield::default() };
    got.measure(Metric::SeqreadMedian, latency.quantile(0.5) as f64);
    got.measure(Metric::SeqreadTail, latency.quantile(0.99) as f64);
    got.measure(Metric::SeqreadRate, latency.count() as f64 / got.total_s);
    got.operation("read", latency);
    Ok(got)
}
