//! The watchdog: a process between this program and what it starts. However this program ends, even by SIGKILL, its end of
//! the lifeline pipe closes; the watchdog then kills what was started and removes temporary files.
//!
//! Why not a parent-death signal alone: that fires when the *thread* that spawned ends, and removes nothing.

use super::log::BoundedLog;
use super::remove::remove;
use super::spawn_command;
use crate::sandbox::overlay::Discard;
use crate::sandbox::rights::Rights;
use crate::sandbox::{Namespaces, leave};
use crate::{MachineError, process};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, kill_process_group, pidfd_open,
    set_child_subreaper, setsid,
};
use rustix::stdio::stdout;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::process::Command;
use vmtax_observe::{descendants, is_ending};

/// The file descriptor on which the watchdog holds the lifeline.
pub(crate) const LIFELINE: i32 = 3;

/// Settings of the watchdog for its command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Supervision {
    /// The process at the lifeline's other end, which `Child::spawn` fills in: by the time the watchdog asks, its parent may be
    /// another one. 0 for none.
    pub controller: i32,
    /// Isolation of the command from the host.
    pub namespaces: Namespaces,
    /// Rights of this program that the command keeps; `None` for all.
    pub rights: Option<Rights>,
    /// Settings by which the command's writes to the host's files are discarded; `None` if they are not.
    pub discard: Option<Discard>,
    /// Control groups to remove in any case.
    pub emptied: Vec<PathBuf>,
    /// Trees to remove when the lifeline closes without a byte, since then nobody else will.
    pub removed: Vec<PathBuf>,
    /// Files to write then, with what they held.
    pub restored: Vec<(PathBuf, String)>,
}

/// The body of `vmtax watchdog`: runs `command`, if there is one, until it ends, or the lifeline on descriptor 3 brings a byte
/// or closes. Gives the exit status of the command, 128 + n for signal n. `supervision` is JSON, as `Child::spawn` writes it.
///
/// # Errors
/// [`MachineError::System`] when the command cannot be started or watched.
pub fn watchdog(supervision: &str, command: &[String]) -> Result<i32, MachineError> {
    let Supervision {
        controller,
        namespaces,
        rights,
        discard,
        emptied,
        removed,
        restored,
    } = serde_json::from_str(supervision)
        .map_err(|e| MachineError::system("reading the watchdog's settings", e))?;
    // Out of the terminal's reach: Ctrl-C is the controller's to answer.
    let _ = setsid();
    // SAFETY: descriptor 3 was placed there by `Child::spawn` and stays open until this process ends.
    let lifeline = unsafe { BorrowedFd::borrow_raw(LIFELINE) };
    fcntl_setfd(lifeline, FdFlags::CLOEXEC)
        .map_err(|e| MachineError::system("watchdog: no lifeline", e))?;
    let mounted = namespaces.enter()?;
    let outcome = match command {
        [] => wait_for(lifeline),
        command => run(command, rights.as_ref(), discard.as_ref(), lifeline),
    };
    leave(mounted);
    if let Some(Discard { layers, .. }) = &discard {
        let _ = remove(layers); // with the scratch folder at the latest
    }
    let alone = match outcome {
        Ok(None) => nobody_there(lifeline),
        // An agent that is told nothing any more ends, and may be the first to notice.
        Ok(Some(_)) => controller != 0 && is_ending(controller),
        Err(_) => false,
    };
    if alone {
        for (file, held) in &restored {
            let _ = std::fs::write(file, held);
        }
        for tree in &removed {
            let _ = remove(tree);
        }
        if command.is_empty() {
            wait_for_the_end_of(controller);
            vmtax_observe::remove_stale_traces();
        }
    }
    for folder in &emptied {
        remove_group(folder);
    }
    Ok(outcome?.unwrap_or(128 + Signal::KILL.as_raw()))
}

/// Returns true if the process at the lifeline's other end is gone, and did not ask for the command's end.
fn nobody_there(lifeline: BorrowedFd<'_>) -> bool {
    matches!(
        rustix::io::retry_on_intr(|| rustix::io::read(lifeline, &mut [0])),
        Ok(0) | Err(_)
    )
}

/// Waits until the lifeline brings a byte or closes.
fn wait_for(lifeline: BorrowedFd<'_>) -> Result<Option<i32>, MachineError> {
    let mut fds = [PollFd::from_borrowed_fd(lifeline, PollFlags::IN)];
    let waited = rustix::io::retry_on_intr(|| poll(&mut fds, None));
    waited
        .map(|_| None)
        .map_err(|e| MachineError::system("watching the controller", e))
}

/// Waits, for seconds at the most, until a process has closed its files: what it traces with is in use before.
fn wait_for_the_end_of(process: i32) {
    let limit = Timespec {
        tv_sec: 5,
        tv_nsec: 0,
    };
    let Some(Ok(process)) = Pid::from_raw(process).map(|pid| pidfd_open(pid, PidfdFlags::empty()))
    else {
        return;
    };
    let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit));
}

/// Runs the command; `None` when it had to be killed because of the lifeline.
fn run(
    command: &[String],
    rights: Option<&Rights>,
    discard: Option<&Discard>,
    lifeline: BorrowedFd<'_>,
) -> Result<Option<i32>, MachineError> {
    let (program, arguments) = command.split_first().ok_or_else(|| {
        MachineError::system("watchdog: no command", std::io::ErrorKind::InvalidInput)
    })?;
    // What loses its parent stays in reach.
    let _ = set_child_subreaper(Some(getpid()));
    let (output, theirs) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|e| MachineError::system("making a pipe", e))?;
    let failed = |e| MachineError::system(format!("watching {program}"), e);
    // Its writers' end still blocks.
    fcntl_setfl(&output, OFlags::NONBLOCK).map_err(|e| failed(e.into()))?;
    let mut output = Some(output);
    let mut command = Command::new(program);
    command
        .stdout(theirs.try_clone().map_err(failed)?)
        .stderr(theirs);
    let mut child = spawn_command(command, arguments, rights, discard)?;
    let pid = Pid::from_child(&child);
    let exited = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| failed(e.into()))?;
    let own_output = stdout().as_fd().try_clone_to_owned().map_err(failed)?;
    let mut log = BoundedLog::new(own_output.into());
    let ended_by_itself =
        log_until_end(&exited, lifeline, &mut output, &mut log).map_err(|e| failed(e.into()))?;
    // What the command forked is in its process group and must not outlive it either.
    let _ = kill_process_group(pid, Signal::KILL);
    end_descendants();
    // What it printed last.
    while output.as_ref().is_some_and(|output| copy(output, &mut log)) {}
    let status = child
        .wait()
        .map_err(|e| MachineError::system(format!("waiting for {program}"), e))?;
    Ok(ended_by_itself.then_some(process::status(status)))
}

/// Logs a command's output until the command has ended, which gives true, or the lifeline brings a byte or closes.
fn log_until_end(
    exited: &OwnedFd,
    lifeline: BorrowedFd<'_>,
    output: &mut Option<OwnedFd>,
    log: &mut BoundedLog,
) -> rustix::io::Result<bool> {
    loop {
        let mut fds = vec![
            PollFd::new(exited, PollFlags::IN),
            PollFd::new(&lifeline, PollFlags::IN),
        ];
        // One that closed its output goes on.
        fds.extend(
            output
                .as_ref()
                .map(|output| PollFd::new(output, PollFlags::IN)),
        );
        rustix::io::retry_on_intr(|| poll(&mut fds, None))?;
        let [child, lifeline, output_ready] =
            [0, 1, 2].map(|index| fds.get(index).is_some_and(|fd| !fd.revents().is_empty()));
        if child || lifeline {
            return Ok(child);
        }
        if output_ready && !output.as_ref().is_some_and(|output| copy(output, log)) {
            *output = None;
        }
    }
}

/// Reads what there is of a process's output into its log; gives whether there can be more.
fn copy(output: &OwnedFd, log: &mut BoundedLog) -> bool {
    let mut piece = [0; 64 << 10];
    match rustix::io::retry_on_intr(|| rustix::io::read(output, &mut piece)) {
        Ok(read) => {
            log.push(&piece[..read]);
            read > 0
        }
        Err(_) => false,
    }
}

/// A command of the user's may start what leaves its group and its session.
fn end_descendants() {
    let own = getpid().as_raw_nonzero().get();
    // Each round may set free what the killed ones were about to start.
    for _ in 0..100 {
        let left = descendants(own, &[]);
        if left.is_empty() {
            return;
        }
        for pid in left.into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// A control group can be removed only when its last process is gone, a moment after it was reaped.
pub(crate) fn remove_group(folder: &PathBuf) {
    for _ in 0..100 {
        match std::fs::remove_dir(folder) {
            Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            _ => return,
        }
    }
}
