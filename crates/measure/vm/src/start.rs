//! Starts a machine, whatever it boots.

use crate::MachineError;
use crate::agent::session::Session;
use crate::micro_guest::MicroGuest;
use crate::running::RunningMachine;
use crate::setup::{Boot, Setup};

/// Starts a machine and waits until it accepts workloads.
///
/// # Errors
/// [`MachineError`] with what the machine's console or QEMU printed last.
pub fn start<'a>(setup: &Setup<'a>) -> Result<Box<dyn RunningMachine + 'a>, MachineError> {
    Ok(match setup.boot {
        Boot::Host => Box::new(Session::start(setup, None)?),
        Boot::Linux(program, image) => Box::new(Session::start(setup, Some((program, image)))?),
        Boot::Micro(program, rom) => Box::new(MicroGuest::start(setup, program, rom)?),
    })
}
