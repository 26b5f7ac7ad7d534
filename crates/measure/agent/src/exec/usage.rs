//! The resources that a command used: by its own counters, and by the machine's.

use procfs::process::{self, Process};
use std::fs;
use std::time::Duration;
use vmtax_model::{Measure, Metric, Unsupported};

const NO_IO: &str = "the kernel does not count the I/O of processes (CONFIG_TASK_IO_ACCOUNTING)";

/// Counters that only grow.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Counters {
    /// Nanoseconds that tasks ran, all CPUs together; in a guest.
    busy_ns: Option<u64>,
    /// Clock ticks that a hypervisor took and reported; in a guest.
    stolen_ticks: Option<u64>,
    /// Of this process and all it waited for: bytes and calls; `None` where the kernel does not count them.
    io: Option<Io>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Io {
    read: u64,
    written: u64,
    read_calls: u64,
    write_calls: u64,
}

/// Resources used between two readings of the counters.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Usage {
    pub busy_s: Option<f64>,
    pub stolen_s: Option<f64>,
    io: Option<Io>,
}

impl Counters {
    pub fn now(guest: bool) -> Counters {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Counters {
            busy_ns: guest.then(|| busy(&read("/proc/schedstat"))).flatten(),
            stolen_ticks: guest.then(|| stolen(&read("/proc/stat"))).flatten(),
            io: Io::below(),
        }
    }

    pub fn since(&self, before: &Counters) -> Usage {
        let seconds = |after: Option<u64>, before: Option<u64>, second: f64| {
            Some(after?.saturating_sub(before?) as f64 / second)
        };
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        Usage {
            busy_s: seconds(self.busy_ns, before.busy_ns, 1e9),
            stolen_s: seconds(self.stolen_ticks, before.stolen_ticks, ticks),
            io: self
                .io
                .zip(before.io)
                .map(|(after, before)| after.minus(&before)),
        }
    }
}

impl Io {
    /// Of what this process waited for. What it copied itself is its one thread's, and not the command's.
    fn below() -> Option<Io> {
        let process = Process::myself().ok()?;
        let io_counts = |io: process::Io| Io {
            read: io.rchar,
            written: io.wchar,
            read_calls: io.syscr,
            write_calls: io.syscw,
        };
        Some(
            io_counts(process.io().ok()?)
                .minus(&io_counts(process.task_main_thread().ok()?.io().ok()?)),
        )
    }

    fn minus(&self, other: &Io) -> Io {
        Io {
            read: self.read.saturating_sub(other.read),
            written: self.written.saturating_sub(other.written),
            read_calls: self.read_calls.saturating_sub(other.read_calls),
            write_calls: self.write_calls.saturating_sub(other.write_calls),
        }
    }
}

/// The seventh number of each CPU's line: how long tasks ran on it, ns.
fn busy(schedstat: &str) -> Option<u64> {
    let lines = schedstat.lines().filter(|line| line.starts_with("cpu"));
    let ran = |line: &str| line.split_whitespace().nth(7)?.parse::<u64>().ok();
    let all: Option<Vec<u64>> = lines.map(ran).collect();
    all.filter(|all| !all.is_empty())
        .map(|all| all.into_iter().fold(0, u64::saturating_add))
}

/// The eighth number of the first line.
fn stolen(stat: &str) -> Option<u64> {
    stat.lines()
        .find(|line| line.starts_with("cpu "))?
        .split_whitespace()
        .nth(8)?
        .parse()
        .ok()
}

/// The command's figures, and those that the kernel does not count.
pub(super) fn measures(
    wall: Duration,
    usage: &libc::rusage,
    counted: &Usage,
) -> (Vec<Measure>, Vec<Unsupported>) {
    let time = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let io = |figure: fn(&Io) -> u64| counted.io.as_ref().map(figure);
    let figures = [
        (Metric::ExecWall, Some(wall.as_secs_f64())),
        (Metric::ExecUser, Some(time(usage.ru_utime))),
        (Metric::ExecSystem, Some(time(usage.ru_stime))),
        (Metric::ExecMemory, Some(usage.ru_maxrss as f64 / 1024.0)),
        (Metric::ExecVoluntary, Some(usage.ru_nvcsw as f64)),
        (Metric::ExecInvoluntary, Some(usage.ru_nivcsw as f64)),
        (Metric::ExecMinorFaults, Some(usage.ru_minflt as f64)),
        (Metric::ExecMajorFaults, Some(usage.ru_majflt as f64)),
        (
            Metric::ExecReadCalls,
            io(|io| io.read_calls).map(|n| n as f64),
        ),
        (
            Metric::ExecWriteCalls,
            io(|io| io.write_calls).map(|n| n as f64),
        ),
        (Metric::ExecRead, io(|io| io.read).map(mib)),
        (Metric::ExecWritten, io(|io| io.written).map(mib)),
    ];
    let (mut measures, mut unsupported) = (Vec::new(), Vec::new());
    for (metric, value) in figures {
        match value {
            Some(value) => measures.push(Measure { metric, value }),
            None => unsupported.push(Unsupported {
                metric,
                reason: NO_IO.to_owned(),
            }),
        }
    }
    (measures, unsupported)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let schedstat = "version 15\ntimestamp 1\ncpu0 0 0 0 0 0 0 1000 5 6\ndomain0 3 1 2 3 4 5 6 7\ncpu1 0 0 0 0 0 0 2000 5 6\n";
        assert_eq!(busy(schedstat), Some(3000));
        assert_eq!((busy("version 15\n"), busy("cpu0 1")), (None, None));
        assert_eq!(
            stolen("cpu  1 2 3 4 5 6 7 80 0 0\ncpu0 1 1 1 1 1 1 1 9\n"),
            Some(80)
        );
        assert_eq!(stolen("nonsense"), None);
    }
}
