//! A command of vmtax as a child process: bounded in time and output, ended when its caller cancels it or dies.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, read};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Bytes of an answer at most.
const MAX_ANSWER: usize = 32 << 20;
/// Bytes of messages that are kept: the last ones.
const MAX_MESSAGES: usize = 64 << 10;
/// A command that is to end removes what it set, and has this long for it.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Output of a command that ended by itself.
#[derive(Debug)]
pub(super) struct Ended {
    /// Exit status of the command; `None` when a signal ended it.
    pub status: Option<i32>,
    /// Output of the command: its answer.
    pub stdout: Vec<u8>,
    /// Last messages of the command.
    pub stderr: Vec<u8>,
}

/// Why a command has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChildError {
    #[error("starting vmtax: {0}")]
    Start(#[from] io::Error),
    #[error("no answer within {} s, so it was ended", .0.as_secs())]
    TimedOut(Duration),
    #[error("the answer is larger than 32 MiB: run the command itself, with --json")]
    TooLarge,
    #[error("cancelled")]
    Cancelled,
}

/// Runs this program with these arguments, for no longer than `limit`, and until the other end of `cancelled` closes.
///
/// # Errors
/// [`ChildError`]; the command has ended then, too.
pub(super) fn run(
    arguments: &[OsString],
    limit: Duration,
    cancelled: BorrowedFd<'_>,
) -> Result<Ended, ChildError> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("vmtax").args(arguments);
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // The thread that starts it waits for it. Its own watchdogs then remove what it set.
    vmtax_host::end_with_this_thread(&mut command);
    let mut child = Guarded(command.spawn()?);
    let stdout = Stream::new(child.0.stdout.take().map(Into::into), MAX_ANSWER)?;
    let stderr = Stream::new(child.0.stderr.take().map(Into::into), usize::MAX)?;
    let process = pidfd_open(Pid::from_child(&child.0), PidfdFlags::empty());
    let mut supervised = Supervised {
        process: process.map_err(io::Error::from)?,
        stdout,
        stderr,
        limit,
        until: Instant::now() + limit,
        ending: None,
    };
    while !supervised.has_ended(cancelled)? {}
    let status = child.0.wait()?.code();
    match supervised.ending {
        Some(why) => Err(why),
        None => Ok(Ended {
            status,
            stdout: supervised.stdout.bytes,
            stderr: supervised.stderr.bytes,
        }),
    }
}

/// A child whose output is read, and that is ended at its timeout.
struct Supervised {
    process: OwnedFd,
    stdout: Stream,
    stderr: Stream,
    limit: Duration,
    /// Until when it may run: its limit, or, once it is to end, the next signal.
    until: Instant,
    /// Why it is to end.
    ending: Option<ChildError>,
}

impl Supervised {
    /// Waits for output, a cancellation or the timeout, and does what follows; returns true once the child has ended.
    fn has_ended(&mut self, cancelled: BorrowedFd<'_>) -> io::Result<bool> {
        let events = self.wait(cancelled)?;
        self.stdout.read()?;
        self.stderr.read()?;
        self.stderr.keep_last(MAX_MESSAGES);
        if events.has_ended {
            return Ok(true);
        }
        let is_over = Instant::now() >= self.until;
        let signal = match self.ending {
            Some(_) if is_over => Signal::KILL,
            Some(_) => return Ok(false),
            None => {
                self.ending = if events.is_cancelled {
                    Some(ChildError::Cancelled)
                } else if self.stdout.is_full() {
                    Some(ChildError::TooLarge)
                } else {
                    is_over.then_some(ChildError::TimedOut(self.limit))
                };
                if self.ending.is_none() {
                    return Ok(false);
                }
                Signal::TERM
            }
        };
        // One that has ended meanwhile is seen at the next wait.
        let _ = pidfd_send_signal(&self.process, signal);
        self.until = Instant::now() + KILL_TIMEOUT;
        Ok(false)
    }

    fn wait(&self, cancelled: BorrowedFd<'_>) -> io::Result<Events> {
        let is_cancellable = self.ending.is_none();
        let mut fds = vec![PollFd::new(&self.process, PollFlags::IN)];
        if is_cancellable {
            fds.push(PollFd::from_borrowed_fd(cancelled, PollFlags::IN));
        }
        let open = [&self.stdout, &self.stderr].into_iter();
        let open = open.filter_map(|stream| stream.pipe.as_ref());
        fds.extend(open.map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        let left = self.until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut fds, Some(&left)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let happened = |number: usize| !fds[number].revents().is_empty();
        Ok(Events {
            has_ended: happened(0),
            is_cancelled: is_cancellable && happened(1),
        })
    }
}

/// Events of a wait; neither of them at output and at the timeout.
struct Events {
    has_ended: bool,
    is_cancelled: bool,
}

/// A child that does not outlive this value.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One of the child's streams, read as it comes.
struct Stream {
    /// End of the pipe in this process; `None` once the child has closed the other one.
    pipe: Option<OwnedFd>,
    bytes: Vec<u8>,
    limit: usize,
}

impl Stream {
    fn new(pipe: Option<OwnedFd>, limit: usize) -> io::Result<Stream> {
        if let Some(pipe) = &pipe {
            fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
        }
        Ok(Stream {
            pipe,
            bytes: Vec::new(),
            limit,
        })
    }

    /// Reads what is there, and drops what is beyond the limit.
    fn read(&mut self) -> io::Result<()> {
        let mut part = [0; 64 << 10];
        while let Some(pipe) = &self.pipe {
            match read(pipe, &mut part) {
                Ok(0) => self.pipe = None,
                Ok(length) => {
                    let room = self
                        .limit
                        .saturating_add(1)
                        .saturating_sub(self.bytes.len());
                    self.bytes.extend_from_slice(&part[..length.min(room)]);
                    // Others may write without end: their turn comes again.
                    if length < part.len() {
                        break;
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.bytes.len() > self.limit
    }

    fn keep_last(&mut self, count: usize) {
        let beyond = self.bytes.len().saturating_sub(count);
        self.bytes.drain(..beyond);
    }
}
