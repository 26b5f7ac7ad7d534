//! Starts a process that ends with this one.

use crate::MachineError;
use rustix::process::{Signal, set_parent_process_death_signal};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

pub(crate) fn spawn(program: &str, arguments: &[String]) -> Result<Child, MachineError> {
    let mut command = Command::new(program);
    command.args(arguments).process_group(0);
    // SAFETY: the closure makes one system call and touches no memory of the parent.
    unsafe {
        // Should the watchdog itself be killed. Its one thread lives as long as it does.
        command.pre_exec(|| set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into));
    }
    command.spawn().map_err(|e| MachineError::system(format!("starting {program}"), e))
}

/// As a shell tells it: 128 + n for signal n.
pub(crate) fn status(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
