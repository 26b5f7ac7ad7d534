//! A command of the user's: started as the one who asks would start it, in a guest on the host's own files; watched to
//! its end; accounted for.

mod pump;
mod start;

use crate::trial::GuestTracer;
use crate::{AgentError, Failure, kernel, reply_or_broken, send, send_frame, ship};
use procfs::process::{self, Process};
use pump::{Pump, RunQueueWaits};
use rustix::fd::BorrowedFd;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};
pub(crate) use start::{ROOT, prepare};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use vmtax_model::{
    Execution, Measure, Metric, Places, Probes, TIMED_OUT, Timer, TimerSource, TrialResult,
    Unsupported, WorkloadName, WorkloadSpec,
};
use vmtax_observe::{ProbeSet, descendants};
use vmtax_wire::{Decoder, Launch, Reply, SHARE_MAC};

/// Time for which background processes of a shell line may hold the pipes without output.
const PIPE_TIMEOUT: Duration = Duration::from_millis(100);

/// Runs a command and gives the reply that ends it; what it prints is sent as it comes.
///
/// # Errors
/// [`AgentError`] when the channel breaks.
pub(crate) fn run(
    launch: &Launch,
    places: &Places,
    probes: Probes,
    channel: BorrowedFd<'_>,
    decoder: &mut Decoder,
) -> Result<Reply, AgentError> {
    let trace = begin_trace(places, probes).map_err(Failure::Trial);
    reply_or_broken(trace.and_then(|trace| execute(launch, places, trace, channel, decoder)))
}

fn begin_trace(places: &Places, probes: Probes) -> Result<Option<GuestTracer>, String> {
    if probes == Probes::None {
        return Ok(None);
    }
    let set = ProbeSet::guest_of_command(probes.checkpoints());
    GuestTracer::begin(places, SHARE_MAC, probes, Some(set)).map(Some)
}

fn execute(
    launch: &Launch,
    places: &Places,
    mut trace: Option<GuestTracer>,
    channel: BorrowedFd<'_>,
    decoder: &mut Decoder,
) -> Result<Reply, Failure> {
    let guest = std::process::id() == 1;
    adopt();
    let stay = descendants(std::process::id() as i32, &[]);
    send(channel, &Reply::Began)?;
    let before = Counters::now(guest);
    let switched_on = trace.as_ref().map_or(Ok(()), GuestTracer::on);
    switched_on.map_err(Failure::Trial)?;
    let began = Instant::now();
    let started = match start::start_command(launch, guest.then(|| Path::new(ROOT))) {
        Ok(started) => started,
        Err(start::NotStarted { status, error }) => return Ok(Reply::NotRun { status, error }),
    };
    let deadline = began + Duration::from_secs(u64::from(launch.timeout_s));
    let mut pump = Pump::new(channel, decoder, started, deadline)?;
    if launch.stays {
        pump.pipe_timeout = PIPE_TIMEOUT;
    }
    // In a guest the vCPUs wait, for which the host has the figures.
    pump.run_queue_waits = (!guest && !launch.stays).then(RunQueueWaits::new);
    let ended = pump.until_end();
    let (wall, after) = (began.elapsed(), Counters::now(guest));
    let switched_off = trace.as_ref().map_or(Ok(()), GuestTracer::off);
    pump.send_reply(&Reply::Ended)?;
    let left = if launch.stays { 0 } else { kill_all_but(&stay) };
    let rest = pump.drain();
    let end = ended?;
    rest?;
    if pump.timed_out {
        return Ok(killed(launch.timeout_s));
    }
    // From here on the channel waits for the controller again.
    drop(pump);
    let counted = after.since(&before);
    let mut result = result(wall, &end.usage, &counted);
    if guest {
        result.notes = start::notes(places);
    }
    switched_off.map_err(Failure::Trial)?;
    if let Some(trace) = &mut trace {
        let mut send = |frame: &[u8]| send_frame(channel, frame);
        ship(&mut send, |ship| trace.save(ship))?;
    }
    Ok(Reply::Ran {
        execution: Execution {
            waited_s: end.waited_s,
            ..counted.execution(end.status, left)
        },
        result: Box::new(result),
        observed: trace.map(|trace| trace.observed),
    })
}

/// The reply on a command that did not end in its time.
fn killed(timeout_s: u32) -> Reply {
    Reply::NotRun {
        status: TIMED_OUT,
        error: format!("the command was killed after {timeout_s} s: use a longer --timeout"),
    }
}

/// The command's figures.
fn result(wall: Duration, usage: &libc::rusage, counted: &Usage) -> TrialResult {
    let timer = Timer {
        source: TimerSource::ClockGettime,
        mhz: 1000.0,
        error: 0.0,
        pair_ns: 0.0,
        reason: Some("a command is timed as a whole".to_owned()),
    };
    let (measures, unsupported) = measures(wall, usage, counted);
    TrialResult {
        total_s: wall.as_secs_f64(),
        measures,
        unsupported,
        ..TrialResult::new(WorkloadSpec::new(WorkloadName::Exec), timer, kernel())
    }
}

/// Killed processes end at once, except those in an uninterruptible system call.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Whoever loses its parent below this process becomes its child, as all do in a guest.
fn adopt() {
    let _ = set_child_subreaper(Some(rustix::process::getpid()));
}

/// Kills all descendants of this process except `stay` and their descendants, so that none disturbs the next trial; returns how many.
fn kill_all_but(stay: &[i32]) -> u32 {
    let (mut ended, until) = (BTreeSet::new(), Instant::now() + KILL_TIMEOUT);
    loop {
        let children = descendants(std::process::id() as i32, stay);
        if children.is_empty() || Instant::now() > until {
            reap();
            return ended.len() as u32;
        }
        for pid in children {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
            ended.insert(pid);
        }
        reap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Those that ended are taken off the kernel's table.
fn reap() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

const NO_IO: &str = "the kernel does not count the I/O of processes (CONFIG_TASK_IO_ACCOUNTING)";

/// Counters that only grow.
#[derive(Debug, Clone, Default, PartialEq)]
struct Counters {
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
struct Usage {
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
        let io = self.io.zip(before.io);

        Usage {
            busy_s: seconds(self.busy_ns, before.busy_ns, 1e9),
            stolen_s: seconds(self.stolen_ticks, before.stolen_ticks, ticks),
            io: io.map(|(after, before)| after.minus(&before)),
        }
    }
}

impl Usage {
    /// A command that ended with this status and left so many processes.
    fn execution(&self, status: i32, left: u32) -> Execution {
        Execution {
            status,
            left,
            busy_s: self.busy_s,
            stolen_s: self.stolen_s,
            ..Execution::default()
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
        let own = process.task_main_thread().ok()?.io().ok()?;
        Some(io_counts(process.io().ok()?).minus(&io_counts(own)))
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
    let first = stat.lines().find(|line| line.starts_with("cpu "))?;
    first.split_whitespace().nth(8)?.parse().ok()
}

/// The command's figures, and those that the kernel does not count.
fn measures(
    wall: Duration,
    usage: &libc::rusage,
    counted: &Usage,
) -> (Vec<Measure>, Vec<Unsupported>) {
    let time = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    let count = |n: u64| n as f64;
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
        (Metric::ExecReadCalls, io(|io| io.read_calls).map(count)),
        (Metric::ExecWriteCalls, io(|io| io.write_calls).map(count)),
        (Metric::ExecRead, io(|io| io.read).map(mib)),
        (Metric::ExecWritten, io(|io| io.written).map(mib)),
    ];
    let (mut measures, mut unsupported) = (Vec::new(), Vec::new());
    for (metric, value) in figures {
        let reason = NO_IO.to_owned();
        match value {
            Some(value) => measures.push(Measure { metric, value }),
            None => unsupported.push(Unsupported { metric, reason }),
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
