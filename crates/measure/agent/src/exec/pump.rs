//! The streams of a command that runs, and its end: all that it prints goes to the controller as it comes, what is typed
//! comes from there, and nothing is kept but what is on its way.

use super::start::{Started, resize};
use crate::AgentError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::{Duration, Instant};
use vmtax_wire::{Decoder, Frame, Reply, Request, STREAM_PIECE, Stream, encode, piece};

/// Between SIGTERM and SIGKILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

const PIPE_TIMEOUT: Duration = Duration::from_secs(5);

/// End of a command: its status and the resources that it used.
pub(super) struct End {
    pub status: i32,
    pub usage: libc::rusage,
    /// Seconds that its threads were runnable without a CPU; `None` where that was not asked for.
    pub waited_s: Option<f64>,
}

/// A command that runs, between its pipes and the channel.
pub(super) struct Pump<'a> {
    channel: BorrowedFd<'a>,
    decoder: &'a mut Decoder,
    flags: OFlags,
    /// 0 when it ended.
    pid: i32,
    exited: OwnedFd,
    outputs: [(Stream, Option<OwnedFd>); 2],
    stdin: Option<OwnedFd>,
    terminal: Option<OwnedFd>,
    /// Input that the command has not read yet.
    typed: Vec<u8>,
    /// True if more input was requested.
    asked: bool,
    /// Output that is not sent yet.
    outgoing: Vec<u8>,
    deadline: Instant,
    /// True if the command timed out.
    pub timed_out: bool,
    /// Time for which other processes may hold the pipes of a command that ended open without output.
    pub pipe_timeout: Duration,
    /// Run-queue waits of the command, where they are asked for.
    pub run_queue_waits: Option<RunQueueWaits>,
    buffer: Vec<u8>,
}

/// Streams and events that a command's pump can go on with.
struct Ready {
    channel: bool,
    outputs: bool,
    stdin: bool,
    exited: bool,
}

impl<'a> Pump<'a> {
    pub fn new(
        channel: BorrowedFd<'a>,
        decoder: &'a mut Decoder,
        started: Started,
        deadline: Instant,
    ) -> Result<Pump<'a>, AgentError> {
        let failed = |e: Errno| AgentError::system("watching the command", e);
        let flags = fcntl_getfl(channel).map_err(failed)?;
        let pid = Pid::from_raw(started.pid).ok_or_else(|| failed(Errno::SRCH))?;
        let exited = pidfd_open(pid, PidfdFlags::empty()).map_err(failed)?;
        let ours = [
            Some(&started.stdout),
            started.stderr.as_ref(),
            started.stdin.as_ref(),
        ];
        for pipe in ours.into_iter().flatten() {
            fcntl_setfl(pipe, OFlags::NONBLOCK).map_err(failed)?;
        }
        // A controller that reads slowly must not keep its own signals from being heard.
        fcntl_setfl(channel, flags | OFlags::NONBLOCK).map_err(failed)?;
        Ok(Pump {
            channel,
            decoder,
            flags,
            pid: started.pid,
            exited,
            outputs: [
                (Stream::Stdout, Some(started.stdout)),
                (Stream::Stderr, started.stderr),
            ],
            stdin: started.stdin,
            terminal: started.terminal,
            typed: Vec::new(),
            asked: false,
            outgoing: Vec::new(),
            deadline,
            timed_out: false,
            pipe_timeout: PIPE_TIMEOUT,
            run_queue_waits: None,
            buffer: vec![0; STREAM_PIECE],
        })
    }

    /// Until the command's own end, whatever it left running.
    pub fn until_end(&mut self) -> Result<End, AgentError> {
        loop {
            if self.poll_once(true)? {
                let waits = self.run_queue_waits.take();
                let waited_s = waits.map(|waits| waits.at_end(self.pid));
                let end = wait_for(self.pid).map(|end| End { waited_s, ..end });
                // From now on the number may be another's: no signal goes there.
                self.pid = 0;
                return end.map_err(|e| AgentError::system("waiting for the command", e));
            }
        }
    }

    /// Sends a message behind what is on its way.
    pub fn send_reply(&mut self, reply: &Reply) -> Result<(), AgentError> {
        self.outgoing.extend_from_slice(&encode(reply)?);
        self.send()
    }

    /// Sends the rest of the pipes' content when nobody writes to them any more.
    pub fn drain(&mut self) -> Result<(), AgentError> {
        self.stdin = None;
        while self.outputs.iter().any(|(_, pipe)| pipe.is_some()) || !self.outgoing.is_empty() {
            self.poll_once(false)?;
        }
        Ok(())
    }

    /// Waits once and handles the events; returns whether the command ended.
    fn poll_once(&mut self, until_end: bool) -> Result<bool, AgentError> {
        if self.stdin.is_some() && self.typed.is_empty() && !self.asked && self.outgoing.is_empty()
        {
            self.asked = true;
            self.outgoing = encode(&Reply::Input)?;
        }
        if let Some(waits) = &mut self.run_queue_waits {
            waits.read_when_due(self.pid);
        }
        let idle = self.outgoing.is_empty();
        let ready = self.poll(until_end, idle)?;
        if !until_end && idle && !ready.channel && !ready.outputs {
            // A process that cannot be killed holds a pipe.
            self.outputs.iter_mut().for_each(|(_, pipe)| *pipe = None);
        }
        if ready.channel {
            self.send()?;
            self.receive()?;
        }
        if ready.outputs {
            self.take_output()?;
        }
        if ready.stdin {
            self.give_input();
        }
        if until_end && Instant::now() >= self.deadline {
            self.on_timeout();
        }
        Ok(ready.exited)
    }

    /// Waits for the channel, the pipes and the command's end; outputs are read only while nothing waits to be sent.
    fn poll(&self, until_end: bool, idle: bool) -> Result<Ready, AgentError> {
        let to_channel = if idle {
            PollFlags::IN
        } else {
            PollFlags::IN | PollFlags::OUT
        };
        let mut fds = vec![PollFd::from_borrowed_fd(self.channel, to_channel)];
        let outputs: Vec<&OwnedFd> = self
            .outputs
            .iter()
            .filter_map(|(_, p)| p.as_ref())
            .filter(|_| idle)
            .collect();
        fds.extend(outputs.iter().map(|pipe| PollFd::new(*pipe, PollFlags::IN)));
        let typed = self.stdin.as_ref().filter(|_| !self.typed.is_empty());
        fds.extend(typed.map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
        fds.extend(until_end.then(|| PollFd::new(&self.exited, PollFlags::IN)));
        let timeout = self.poll_timeout(until_end);
        rustix::io::retry_on_intr(|| poll(&mut fds, timeout.as_ref()))
            .map_err(|e| AgentError::system("waiting for the command", e))?;
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut is_ready = || ready.next().unwrap_or(false);
        // All of them in the order in which they were added.
        Ok(Ready {
            channel: is_ready(),
            outputs: outputs.iter().filter(|_| is_ready()).count() > 0,
            stdin: typed.is_some() && is_ready(),
            exited: until_end && is_ready(),
        })
    }

    /// `None` while output waits for the controller.
    fn poll_timeout(&self, until_end: bool) -> Option<Timespec> {
        let left = if until_end {
            let left = self.deadline.saturating_duration_since(Instant::now());
            let waits = self.run_queue_waits.as_ref();
            waits.map_or(left, |waits| left.min(waits.time_left()))
        } else {
            self.pipe_timeout
        };
        let waits = until_end || self.outgoing.is_empty();
        waits.then(|| Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        })
    }

    /// SIGTERM first, then SIGKILL.
    fn on_timeout(&mut self) {
        self.signal(if self.timed_out {
            libc::SIGKILL
        } else {
            libc::SIGTERM
        });
        self.timed_out = true;
        self.deadline = Instant::now() + KILL_TIMEOUT;
    }

    fn signal(&self, number: i32) {
        // SAFETY: the number comes from the controller, and the kernel refuses what is no signal.
        let signal = Signal::from_named_raw(number);
        if let Some((pid, signal)) = Pid::from_raw(self.pid).zip(signal) {
            let _ = kill_process_group(pid, signal);
        }
    }

    fn take_output(&mut self) -> Result<(), AgentError> {
        for (stream, pipe) in &mut self.outputs {
            let Some(open) = pipe else { continue };
            match rustix::io::read(&*open, &mut self.buffer) {
                Ok(0) => *pipe = None,
                Ok(length) => {
                    let frame = piece(stream.as_str(), &self.buffer[..length])?;
                    self.outgoing.extend_from_slice(&frame);
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => *pipe = None,
            }
        }
        self.send()
    }

    fn send(&mut self) -> Result<(), AgentError> {
        while !self.outgoing.is_empty() {
            match rustix::io::write(self.channel, &self.outgoing) {
                Ok(written) => drop(self.outgoing.drain(..written)),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(AgentError::Channel(e.into())),
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(), AgentError> {
        match rustix::io::read(self.channel, &mut self.buffer) {
            Ok(0) => return Err(AgentError::Channel(io::ErrorKind::UnexpectedEof.into())),
            Ok(length) => self.decoder.push(&self.buffer[..length]),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(e) => return Err(AgentError::Channel(e.into())),
        }
        while let Some(frame) = self.decoder.frame() {
            match frame? {
                Frame::Piece { name, bytes } if name == Stream::Stdin.as_str() => {
                    self.asked = false;
                    if bytes.is_empty() {
                        self.stdin = None;
                    }
                    self.typed = bytes;
                }
                Frame::Message(Request::Signal { signal }) => self.signal(signal),
                Frame::Message(Request::Resize { size }) => {
                    self.terminal
                        .iter()
                        .for_each(|terminal| resize(terminal, size));
                }
                Frame::Message(Request::Close { stream }) => {
                    // A write to it then ends the command, as it would without a machine between.
                    self.outputs
                        .iter_mut()
                        .filter(|(name, _)| *name == stream)
                        .for_each(|(_, pipe)| *pipe = None);
                }
                // Nothing else is asked while a command runs.
                Frame::Message(_) | Frame::Piece { .. } => {}
            }
        }
        Ok(())
    }

    fn give_input(&mut self) {
        let Some(pipe) = &self.stdin else { return };
        match rustix::io::write(pipe, &self.typed) {
            Ok(written) => drop(self.typed.drain(..written)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            // The command does not read any more.
            Err(_) => {
                self.stdin = None;
                self.typed = Vec::new();
            }
        }
    }
}

impl Drop for Pump<'_> {
    fn drop(&mut self) {
        let _ = fcntl_setfl(self.channel.as_fd(), self.flags);
    }
}

/// The status and the usage of a child that ended.
fn wait_for(pid: i32) -> io::Result<End> {
    let mut status = 0;
    // SAFETY: all of it are numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both are written by the kernel before the call returns.
    while unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let status = if libc::WIFSIGNALED(status) {
        128 + libc::WTERMSIG(status)
    } else {
        libc::WEXITSTATUS(status)
    };
    Ok(End {
        status,
        usage,
        waited_s: None,
    })
}

/// Time between two readings of run-queue waits.
const INTERVAL: Duration = Duration::from_millis(20);
/// A reading takes at most one part of so many of the time.
const PARTS: u32 = 100;

/// Run-queue waits of the threads of a process and of its descendants, which the kernel counts for each thread as long as that is
/// there, and adds up for nobody; as far as they are read before they end: threads that live
/// shorter than 20 ms are missed, except the command's first.
#[derive(Debug)]
pub(super) struct RunQueueWaits {
    /// Run-queue wait of each thread when it was read last, ns, by its number.
    by_thread: BTreeMap<i32, u64>,
    due: Instant,
}

impl RunQueueWaits {
    pub fn new() -> RunQueueWaits {
        RunQueueWaits {
            by_thread: BTreeMap::new(),
            due: Instant::now() + INTERVAL,
        }
    }

    /// Returns the time until the next reading.
    pub fn time_left(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// Reads the threads of the command with this PID, if it is time.
    pub fn read_when_due(&mut self, pid: i32) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        let mut processes = vec![pid];
        while let Some(process) = processes.pop() {
            for thread in threads(process) {
                let directory = format!("/proc/{process}/task/{thread}");
                self.note(thread, &directory);
                let children = fs::read_to_string(format!("{directory}/children"));
                let children = children.unwrap_or_default();
                processes.extend(
                    children
                        .split(' ')
                        .filter_map(|pid| pid.parse::<i32>().ok()),
                );
            }
        }
        self.due = Instant::now() + INTERVAL.max(now.elapsed() * PARTS);
    }

    /// Returns the seconds of all threads, for a command with this PID that has ended and was not waited for yet.
    pub fn at_end(mut self, pid: i32) -> f64 {
        self.note(pid, &format!("/proc/{pid}"));
        self.by_thread.values().sum::<u64>() as f64 / 1e9
    }

    fn note(&mut self, thread: i32, directory: &str) {
        let text = fs::read_to_string(format!("{directory}/schedstat")).unwrap_or_default();
        if let Some(wait) = run_delay(&text) {
            self.by_thread.insert(thread, wait);
        }
    }
}

/// Returns the threads of a process; none where it has ended.
fn threads(process: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{process}/task"));
    let entries = entries.into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.filter_map(number).collect()
}

/// The second number of a thread's `schedstat`: run-queue wait, ns (Documentation/scheduler/sched-stats.rst).
fn run_delay(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    #[test]
    fn the_second_number_is_the_wait() {
        assert_eq!(run_delay("812 4711 3\n"), Some(4711));
        assert_eq!([run_delay(""), run_delay("1 x 2")], [None, None]);
    }

    /// Two loops on one CPU: each waits while the other runs. One of them is a grandchild.
    #[test]
    fn loops_that_share_a_cpu_wait_for_it() {
        let cpus = "$(taskset -pc $$ | sed 's/.*[ ,-]//')";
        let script = format!(
            "taskset -pc {cpus} $$ >/dev/null; (while :; do :; done) & while :; do :; done"
        );
        let mut child: Child = Command::new("timeout")
            .args(["3", "sh", "-c", &script])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        let (mut waits, start) = (RunQueueWaits::new(), Instant::now());
        while start.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(waits.time_left());
            waits.read_when_due(pid);
        }
        // The group of the loops is that of timeout, which passes the signal on.
        let _ = Command::new("kill").arg(pid.to_string()).status();
        let waited = waits.at_end(pid);
        child.wait().unwrap();
        assert!(
            (0.3..30.0).contains(&waited),
            "{waited} s of 1 s on one CPU"
        );
    }
}
