//! Processes under a watchdog, what they leave, and the CPU time that they use.

pub(crate) mod child;
pub(crate) mod cpu_accounting;
pub(crate) mod log;
pub(crate) mod remove;
pub(crate) mod watchdog;

use crate::MachineError;
use crate::sandbox::overlay::Discard;
use crate::sandbox::rights::Rights;
use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

/// The exit status of vmtax where it fails itself.
const FAILED: i32 = 2;

/// Starts a program.
pub(crate) fn spawn(program: &str, arguments: &[String]) -> Result<Child, MachineError> {
    spawn_command(Command::new(program), arguments, None, None)
}

/// Starts a program with its streams, where given with these rights only, or among files whose changes are discarded.
pub(crate) fn spawn_command(
    mut command: Command,
    arguments: &[String],
    rights: Option<&Rights>,
    discard: Option<&Discard>,
) -> Result<Child, MachineError> {
    command.args(arguments).process_group(0);
    let (rights, discard, parent) = (rights.cloned(), discard.cloned(), getpid());
    // SAFETY: watchdog and jail have one thread, so no lock is held that the closure could wait for.
    unsafe {
        command.pre_exec(move || {
            let entered = discard.as_ref().map_or(Ok(()), Discard::enter);
            // Of an error that is returned from here, a number is left.
            if let Err(error) = entered.and_then(|()| rights.as_ref().map_or(Ok(()), Rights::apply))
            {
                eprintln!("Error: {error}");
                libc::_exit(FAILED);
            }
            // Should the watchdog itself be killed. Its one thread lives as long as it does. Last, as the kernel forgets it
            // when a process changes its user; a program that does so by itself, as QEMU's `-runas`, would live on.
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // It may have been killed before.
            if getppid() == Some(parent) {
                Ok(())
            } else {
                Err(Errno::SRCH.into())
            }
        });
    }
    let program = command.get_program().to_string_lossy().into_owned();
    command
        .spawn()
        .map_err(|e| MachineError::system(format!("starting {program}"), e))
}

/// As a shell tells it: 128 + n for signal n.
pub(crate) fn status(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
