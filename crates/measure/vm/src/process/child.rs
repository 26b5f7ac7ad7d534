//! A process under the watchdog.

use super::watchdog::{LIFELINE, Supervision, remove_group};
use crate::MachineError;
use command_fds::{CommandFdExt, FdMapping};
use rustix::fd::OwnedFd;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use vmtax_observe::processes;

/// Command to start, with its streams and supervision.
pub(crate) struct Start<'a> {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Standard input of the command, if any.
    pub stdin: Option<OwnedFd>,
    /// More descriptors for it; the first becomes number 4, the next 5, and so on.
    pub descriptors: Vec<OwnedFd>,
    /// Where its output goes.
    pub log: &'a Path,
    /// Isolation of the command from the host, and the actions when it or this program has ended.
    pub supervision: Supervision,
}

/// The number of the first descriptor of [`Start::descriptors`].
pub(crate) const FIRST_DESCRIPTOR: i32 = LIFELINE + 1;

/// A watchdog without a command: should this program be killed, it removes what this program would have, and its traces.
#[derive(Debug)]
pub struct Watchdog {
    _child: Child,
}

impl Watchdog {
    /// Starts it. `removed`: folders, which need not be there yet.
    ///
    /// # Errors
    /// [`MachineError::System`] when no process can be started.
    pub fn start(removed: Vec<PathBuf>) -> Result<Watchdog, MachineError> {
        let supervision = Supervision {
            removed,
            ..Supervision::default()
        };
        let start = Start {
            command: Vec::new(),
            stdin: None,
            descriptors: Vec::new(),
            log: Path::new("/dev/null"),
            supervision,
        };
        Ok(Watchdog {
            _child: Child::spawn(start)?,
        })
    }
}

#[derive(Debug)]
pub(crate) struct Child {
    watchdog: std::process::Child,
    /// A byte or its end ends the child; the end alone also has the watchdog remove what this program would have.
    lifeline: Option<OwnedFd>,
    /// Control groups that the watchdog removes at its end.
    emptied: Vec<PathBuf>,
}

impl Child {
    pub fn spawn(start: Start<'_>) -> Result<Child, MachineError> {
        let failed = |e| MachineError::system("starting the watchdog", e);
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
        let creating = |e| MachineError::system(format!("creating {}", start.log.display()), e);
        let log = File::create(start.log).map_err(creating)?;
        let controller = std::process::id() as i32;
        let supervision = Supervision {
            controller,
            ..start.supervision
        };
        let settings = serde_json::to_string(&supervision).map_err(|e| failed(e.into()))?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("vmtax").arg("watchdog").arg(settings);
        command.arg("--").args(&start.command);
        command
            .stdin(start.stdin.map_or_else(Stdio::null, Stdio::from))
            .stdout(log.try_clone().map_err(creating)?)
            .stderr(log);
        let descriptors = std::iter::once(theirs).chain(start.descriptors);
        let mappings = descriptors
            .zip(LIFELINE..)
            .map(|(parent_fd, child_fd)| FdMapping {
                parent_fd,
                child_fd,
            });
        command
            .fd_mappings(mappings.collect())
            .map_err(|e| failed(std::io::Error::other(e.to_string())))?;
        let watchdog = command.spawn().map_err(failed)?;
        Ok(Child {
            watchdog,
            lifeline: Some(ours),
            emptied: supervision.emptied,
        })
    }

    /// The exit status, once it ended within `timeout`; 128 + n for signal n.
    pub fn wait(&mut self, timeout: Duration) -> Option<i32> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.watchdog.try_wait() {
                Ok(Some(status)) => return Some(status.code().unwrap_or(-1)),
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(2))
                }
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// The session of the process and of all that it started; the watchdog itself leads it.
    pub fn session(&self) -> i32 {
        Pid::from_child(&self.watchdog).as_raw_nonzero().get()
    }

    /// Becomes readable when it has ended.
    pub fn ended(&self) -> Result<OwnedFd, MachineError> {
        pidfd_open(Pid::from_child(&self.watchdog), PidfdFlags::empty())
            .map_err(|e| MachineError::system("watching the watchdog", e))
    }

    /// Ends it now, at the latest within moments.
    pub fn kill(&mut self) {
        if let Some(lifeline) = self.lifeline.take() {
            let _ = rustix::io::write(lifeline, b".");
        }
        // What the command started in turn does not end with the watchdog.
        if self
            .watchdog
            .wait()
            .is_ok_and(|status| status.signal().is_some())
        {
            self.end_session();
            self.emptied.iter().for_each(remove_group);
        }
    }
}

impl Child {
    fn end_session(&self) {
        let session = self.session();
        for process in processes().filter(|process| process.session == session) {
            if let Some(pid) = Pid::from_raw(process.pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}
