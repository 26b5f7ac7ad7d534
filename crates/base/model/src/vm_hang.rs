//! States in which a guest does not run: of the guest, by its monitor, of the VMM's process, and failures of the guest's
//! kernel.

use crate::Role;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// State of a guest, as its monitor says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// The vCPUs may run.
    Running,
    /// They are stopped: `paused`, `prelaunch`, `io-error`, `postmigrate`, … as QEMU's `RunState` has it.
    Stopped(String),
}

impl RunState {
    /// QEMU's word for the state in which the guest does not run; `None` while it does.
    pub fn stopped(&self) -> Option<&str> {
        match self {
            RunState::Running => None,
            RunState::Stopped(why) => Some(why),
        }
    }
}

/// Cause of all threads of a process being stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessStop {
    /// A signal, such as SIGSTOP: state T.
    Signal,
    /// The tracer of this name, such as a debugger: state t.
    Tracer(String),
}

/// A thread that does not run, and where in the kernel it waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedThread {
    /// TID on the host.
    pub tid: i32,
    /// Role of the thread.
    pub role: Role,
    /// True in uninterruptible sleep (state D).
    pub is_uninterruptible: bool,
    /// The kernel's function in which it waits, `/proc/PID/task/TID/wchan`; null without the permission.
    pub wait_channel: Option<String>,
}

/// The failure of a guest's kernel that a console has last, of the guest's last boot. The guest writes the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelFailure {
    /// Consequence for the guest.
    pub kind: FailureKind,
    /// The kernel's line without its time, at most 160 characters.
    pub line: String,
    /// The file to which QEMU writes the console, as QEMU's arguments or libvirt name it.
    pub file: PathBuf,
    /// Time since something was last written to the file, s.
    pub age_s: u64,
}

/// Consequence of a kernel's failure for the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The kernel panicked: nothing of the guest runs.
    Panic,
    /// A CPU does not leave the kernel: a soft or hard lockup, an RCU stall.
    Lockup,
    /// The kernel ended the task in which a bug showed (an oops).
    Oops,
}
