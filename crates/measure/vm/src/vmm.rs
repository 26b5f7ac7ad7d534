//! Starts the VMMs of vmtax's own guests, each of which has a directory here, and connects to them: the one place that
//! distinguishes them. A VMM refuses a setting that it does not support with a [`MachineError`] when it starts.

pub(crate) mod qemu;
pub(crate) mod started;

use crate::MachineError;
use crate::network::NetworkLink;
use crate::setup::{GuestImage, Setup, VmmProgram};
use procfs::process::Process;
use started::{Started, Streams};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use vmtax_model::Vmm;
use vmtax_vmm::{Vm, VmmError};

/// Starts a Linux guest.
pub(crate) fn start_linux(
    setup: &Setup<'_>,
    vmm: &VmmProgram,
    image: &GuestImage,
    streams: Streams,
) -> Result<Started, MachineError> {
    match vmm {
        VmmProgram::Qemu(program) => qemu::start_linux(setup, program, image, streams),
    }
}

/// Starts the micro-guest from the file of its ROM.
pub(crate) fn start_micro_guest(
    setup: &Setup<'_>,
    vmm: &VmmProgram,
    rom: &Path,
    network: Option<NetworkLink>,
) -> Result<Started, MachineError> {
    match vmm {
        VmmProgram::Qemu(program) => qemu::start_micro_guest(setup, program, rom, network),
    }
}

/// Connects to a VMM that was started in a session with this end of its control socket, which must respond within
/// `greeting`. Checks that it runs the guest as `setup` says.
pub(crate) fn connect(
    setup: &Setup<'_>,
    session: i32,
    control: UnixStream,
    greeting: Duration,
) -> Result<Vm, MachineError> {
    let vmm = setup.machine.vmm().ok_or(MachineError::NoAgent {
        machine: setup.machine,
    })?;
    let (monitor, pid) = match vmm {
        Vmm::Qemu => qemu::connect(setup, control, greeting)
            .and_then(|monitor| Ok((monitor.clone(), monitor.pid()?)))
            .map_err(of_guest)?,
        other => {
            let why = format!("vmtax boots no guests of {}", other.subject());
            return Err(MachineError::GuestMonitor(why));
        }
    };
    // Its threads are moved and traced: a QEMU that its guest took over may name any.
    if !is_in_session(pid, session) {
        let why = format!(
            "query-cpus-fast names a thread of process {pid}, which is not this guest's QEMU"
        );
        return Err(MachineError::GuestMonitor(why));
    }
    Ok(Vm::started(pid, vmm, monitor, setup.machine.has_kernel()))
}

/// An error of the monitor of a QEMU that vmtax started, for which there may be another.
fn of_guest(error: MachineError) -> MachineError {
    match error {
        MachineError::Vmm(error @ (VmmError::Monitor(_) | VmmError::MonitorTimeout { .. })) => {
            MachineError::GuestMonitor(error.monitor_reason())
        }
        other => other,
    }
}

/// Returns true if a process is in a session.
fn is_in_session(pid: i32, session: i32) -> bool {
    Process::new(pid)
        .and_then(|process| process.stat())
        .is_ok_and(|stat| stat.session == session)
}
