//! Reads a thread: what it waits for and a copy of its stack, or, stopped for it, its registers too.
//!
//! A thread that is stopped is attached to for one reading only. Between readings nobody traces it, so that its signals are
//! delivered as usual, and if vmtax is killed it runs on.
//! The duration of a stop on this host now is measured on a process of vmtax's own.

use crate::ProbeError;
use crate::counters::wait_channel;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vmtax_model::samples::ThreadState;
use vmtax_trace::stacks::Registers;

/// A thread stops in microseconds, unless it has to wait for a CPU, or for a disk where nothing wakes it.
const STOP_TIMEOUT: Duration = Duration::from_millis(20);
/// Time for which the wait yields the CPU without sleeping.
const SPIN_TIME: Duration = Duration::from_micros(300);
/// Interval at which a thread that did not stop in time is checked: it is held until vmtax sees that it has stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Time that the end waits for threads that have not stopped yet.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Reads threads of one process. Of one thread of vmtax: the kernel ties tracing to it.
#[derive(Debug)]
pub struct ThreadReader {
    pid: i32,
    memory: File,
    /// Asked to stop, and when they had not yet.
    late: HashMap<i32, Instant>,
    pauses: Vec<Duration>,
}

impl ThreadReader {
    /// Makes a reader of the threads of a process.
    ///
    /// # Errors
    /// [`ProbeError`] when it may not be read.
    pub fn new(pid: i32) -> Result<ThreadReader, ProbeError> {
        let path = format!("/proc/{pid}/mem");
        let memory = File::open(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => ProbeError::NoProcess { pid },
            std::io::ErrorKind::PermissionDenied => ProbeError::NotOurs { pid },
            _ => ProbeError::system(format!("opening {path}"), source),
        })?;
        Ok(ThreadReader {
            pid,
            memory,
            late: HashMap::new(),
            pauses: Vec::new(),
        })
    }

    /// Returns whether a thread runs or waits, without stopping it; `None` after it ended.
    pub fn state(&self, tid: i32) -> Option<ThreadState> {
        state(&fs::read_to_string(format!("/proc/{}/task/{tid}/syscall", self.pid)).ok()?)
    }

    /// The kernel's function that a thread waits in; `None` where it does not say.
    pub fn waits_in(&self, tid: i32) -> Option<String> {
        wait_channel(self.pid, tid)
    }

    /// Returns the time that a thread ran and was runnable, and how often it got a CPU, as the kernel's `schedstat`
    /// says: unchanged while it waits.
    pub fn turns(&self, tid: i32) -> String {
        fs::read_to_string(format!("/proc/{}/task/{tid}/schedstat", self.pid)).unwrap_or_default()
    }

    /// The longest stop so far.
    pub fn longest_pause(&self) -> Option<Duration> {
        self.pauses.iter().copied().max()
    }

    /// Copies memory of the process from `at` on, as much as `into` takes: how much it was.
    pub fn copy(&self, at: u64, into: &mut [u8]) -> usize {
        self.memory.read_at(into, at).unwrap_or(0)
    }

    /// Stops a thread, copies its registers and the part of its stack that `into` takes, and lets it run on. `None` when it
    /// ended, did not stop in time, or is somebody else's to stop.
    pub fn stop(&mut self, tid: i32, into: &mut [u8]) -> Option<(Registers, usize)> {
        let pid = Pid::from_raw(tid);
        self.let_late_go();
        if self.late.contains_key(&tid) {
            return None;
        }
        ptrace::seize(pid, Options::empty()).ok()?;
        ptrace::interrupt(pid).ok()?;
        let Some((signal, since)) = stopped(pid, STOP_TIMEOUT) else {
            self.late.insert(tid, Instant::now());
            return None;
        };
        let registers = ptrace::getregs(pid);
        let copied = registers.as_ref().map_or(0, |r| self.copy(r.rsp, into));
        let _ = ptrace::detach(pid, signal);
        let pause = since.elapsed();
        let registers = registers.ok()?;
        self.pauses.push(pause);
        Some((
            Registers {
                ip: registers.rip,
                sp: registers.rsp,
                bp: registers.rbp,
            },
            copied,
        ))
    }

    /// Does nothing for so long, but let threads go that stop only now.
    pub fn rest(&mut self, time: Duration) {
        let begin = Instant::now();
        loop {
            self.let_late_go();
            let left = time.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(if self.late.is_empty() {
                left
            } else {
                left.min(POLL_INTERVAL)
            });
        }
    }

    /// Ends: how long threads were stopped, at most, one for each stop. One that has yet to stop is waited for, since only
    /// then can it be let go; the end of the thread that reads lets all go.
    pub fn end(mut self) -> Vec<Duration> {
        let begin = Instant::now();
        while !self.late.is_empty() && begin.elapsed() < END_TIMEOUT {
            self.rest(POLL_INTERVAL);
        }
        self.pauses
    }

    fn let_late_go(&mut self) {
        self.late.retain(|&tid, since| {
            let (pid, before) = (Pid::from_raw(tid), Instant::now());
            let Some((signal, _)) = stopped(pid, Duration::ZERO) else {
                *since = before;
                return true;
            };
            // One that ended cannot be let go.
            if ptrace::detach(pid, signal).is_ok() {
                self.pauses.push(since.elapsed());
            }
            false
        });
    }
}

/// Waits until a thread stopped: with the signal that it was about to get, and has to get, and with a moment at which it
/// was not stopped yet. One that has no CPU gets one first, and is not kept from anything until then.
fn stopped(pid: Pid, timeout: Duration) -> Option<(Option<Signal>, Instant)> {
    let begin = Instant::now();
    let mut since = begin;
    loop {
        let before = Instant::now();
        match waitpid(pid, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => since = before,
            // Stopped as asked for, or with its whole process by somebody else.
            Ok(WaitStatus::PtraceEvent(..)) => return Some((None, since)),
            Ok(WaitStatus::Stopped(_, signal)) => return Some((Some(signal), since)),
            _ => return Some((None, since)), // it ended: letting it go fails, and need not succeed
        }
        let waited = begin.elapsed();
        if waited > timeout {
            return None;
        }
        if waited < SPIN_TIME {
            std::thread::yield_now()
        } else {
            std::thread::sleep(Duration::from_micros(50))
        }
    }
}

/// Reads /proc/PID/task/TID/syscall: `running`, `NUMBER ARGUMENTS SP PC`, or `-1 SP PC`.
fn state(text: &str) -> Option<ThreadState> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    match words[..] {
        ["running"] => Some(ThreadState::Runs),
        [call, .., sp, ip] => {
            let call = call.parse::<i64>().ok()?;
            let argument = words
                .get(1)
                .copied()
                .filter(|_| call >= 0)
                .and_then(hex)
                .unwrap_or(0);
            Some(ThreadState::Waits {
                call: (call >= 0).then_some(call),
                argument,
                sp: hex(sp)?,
                ip: hex(ip)?,
            })
        }
        _ => None,
    }
}

/// Stops that are measured.
const STOPS: usize = 50;
/// Between two of them, so that the process waits again.
const INTERVAL: Duration = Duration::from_millis(4);
/// Bytes of stack that are copied: as many as a sample copies.
const STACK: usize = 12 << 10;

/// The expected duration of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopTime {
    /// Median of the stops.
    pub median: Duration,
    /// Longest of 50.
    pub max: Duration,
}

/// Measures stops of a thread that waits, and so needs a CPU to stop: `waiting` starts a process that reads its standard input.
/// Has to run in a thread of its own, like every [`ThreadReader`].
///
/// # Errors
/// [`ProbeError`] when the process cannot be started or stopped.
pub fn stop_time(waiting: &mut Command) -> Result<StopTime, ProbeError> {
    let child = waiting
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let waiting =
        Waiting(child.map_err(|e| ProbeError::system("starting a process to measure a stop", e))?);
    let pid = i32::try_from(waiting.0.id()).unwrap_or(i32::MAX);
    let (mut reader, mut stack) = (ThreadReader::new(pid)?, vec![0; STACK]);
    for _ in 0..STOPS {
        reader.rest(INTERVAL);
        reader.stop(pid, &mut stack);
    }
    let mut pauses = reader.end();
    pauses.sort_unstable();
    match (pauses.get(pauses.len() / 2), pauses.last()) {
        (Some(&median), Some(&max)) => Ok(StopTime { median, max }),
        _ => Err(ProbeError::system(
            "stopping a process to measure it",
            std::io::Error::other("it did not stop"),
        )),
    }
}

/// Ends with its measurement.
struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_as_the_kernel_writes_them() {
        assert_eq!(state("running\n"), Some(ThreadState::Runs));
        let waits = state("202 0x7f 0x80 0x0 0x0 0x0 0x0 0x7ffd10 0x7f1122\n");
        assert_eq!(
            waits,
            Some(ThreadState::Waits {
                call: Some(202),
                argument: 0x7f,
                sp: 0x7f_fd10,
                ip: 0x7f_1122
            })
        );
        assert_eq!(
            state("-1 0x10 0x20"),
            Some(ThreadState::Waits {
                call: None,
                argument: 0,
                sp: 16,
                ip: 32
            })
        );
        assert!(
            ["", "x", "1 2", "-1 0x 0x"]
                .iter()
                .all(|text| state(text).is_none())
        );
    }

    #[test]
    fn stops_are_measured_and_leave_no_process() {
        let StopTime { median, max } = stop_time(&mut Command::new("cat")).unwrap();
        assert!(
            median > Duration::ZERO && median <= max && max < Duration::from_secs(2),
            "{median:?} {max:?}"
        );
        // On a busy host one that is about to end may be stopped first.
        let fails = |_| stop_time(&mut Command::new("true")).is_err();
        assert!((0..50).any(fails), "a process that ended cannot be stopped");
    }
}
