//! Starts QEMUs of the lab, and connects their monitors.

use super::command_line::{self, SHARED_BYTES};
use super::dummy_devices;
use super::logs::{events, log};
use super::monitor::{Monitor, QMP_TIMEOUT};
use crate::micro_guest::layout::RAM_BYTES;
use crate::process::child::{Child, Start};
use crate::process::watchdog::Supervision;
use crate::sandbox::namespaces::Namespaces;
use crate::setup::{GuestImage, MicroImage, Setup};
use crate::share::{Reach, Sharing};
use crate::{MachineError, Vm};
use rustix::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;
use vmtax_clock::Shared;
use vmtax_model::{ShareMethod, shell_line};

/// QEMU's ends of what connects a guest that has an agent with this program.
pub(crate) struct Streams {
    /// The agent's channel.
    pub agent: OwnedFd,
    /// The console.
    pub console: OwnedFd,
    /// The share's server.
    pub server: Option<Reach>,
}

/// A guest's QEMU that was started.
pub(crate) struct Started {
    pub child: Child,
    /// The arguments of its share.
    pub share: Vec<String>,
    /// Memory that both sides see: the guest's own, or a device's.
    pub memory: Shared,
    /// All that QEMU writes.
    pub log: PathBuf,
    pub link: Link,
}

/// What its monitor is connected by.
pub(crate) struct Link(UnixStream);

/// Starts a guest with a kernel.
pub(crate) fn start(setup: &Setup<'_>, image: &GuestImage, streams: Streams) -> Result<Started, MachineError> {
    let Streams { agent, console, server } = streams;
    let share = command_line::share(setup, &image.qemu, server.as_ref());
    let mut arguments = command_line::guest(setup, image);
    arguments.extend(share.iter().cloned());
    let started = spawn(setup, arguments, Shared::create(SHARED_BYTES)?, vec![agent, console], server)?;
    Ok(Started { share, ..started })
}

/// Starts the micro-guest.
pub(crate) fn start_micro(setup: &Setup<'_>, image: &MicroImage) -> Result<Started, MachineError> {
    spawn(setup, command_line::micro_guest(setup, image), Shared::create(RAM_BYTES)?, Vec::new(), None)
}

/// Descriptors are numbered in the order in which the command line counts on them.
fn spawn(
    setup: &Setup<'_>,
    mut command: Vec<String>,
    memory: Shared,
    agent: Vec<OwnedFd>,
    server: Option<Reach>,
) -> Result<Started, MachineError> {
    if setup.events {
        command.extend(["-msg".to_owned(), "timestamp=on".to_owned(), "-D".to_owned()]);
        command.push(events(setup.log).display().to_string());
    }
    command.extend(setup.guest.qemu_args.iter().cloned());
    let saved = setup.log.join("qemu.command");
    std::fs::write(&saved, shell_line(&command) + "\n")
        .map_err(|e| MachineError::system(format!("writing {}", saved.display()), e))?;
    let (monitor, theirs) = UnixStream::pair().map_err(|e| MachineError::system("making a socket pair", e))?;
    let (server, network_of) = match server {
        Some(Reach::Stream(stream)) => (Some(stream), None),
        Some(Reach::Ports { of, .. }) => (None, Some(of)),
        None => (None, None),
    };
    let descriptors = agent.into_iter().chain([theirs.into(), memory.descriptor()?]).chain(server).collect();
    // An old QEMU opens what devices a guest makes on a 9p share.
    let no_devices = setup.share.map(Sharing::served_by_qemu).unwrap_or_default();
    // Of the shares only this one is QEMU's own to serve.
    let root = setup.share.filter(|s| s.share.method == ShareMethod::NineP).and_then(Sharing::root);
    let log = log(setup.log);
    let child = Child::spawn(Start {
        command,
        stdin: None,
        descriptors,
        log: &log,
        supervision: Supervision {
            namespaces: Namespaces { network_of, no_devices, root, ..Namespaces::default() },
            emptied: Vec::new(),
            removed: vec![setup.scratch.folder().to_path_buf()],
            restored: setup.restored.to_vec(),
        },
    })?;
    Ok(Started { child, share: Vec::new(), memory, log, link: Link(monitor) })
}

impl Link {
    /// Connects the monitor, which greets within `greeting`, and checks that the guest is the one asked for: QEMU can fall
    /// back to translation, and not each firmware has room for each number of devices.
    pub fn connect(self, setup: &Setup<'_>, greeting: Duration) -> Result<Vm, MachineError> {
        let monitor = Monitor::connect(self.0, greeting, QMP_TIMEOUT)?;
        if setup.machine.has_kernel() {
            dummy_devices::check(setup, &monitor)?;
        }
        if setup.machine.is_kvm() && !monitor.is_kvm()? {
            return Err(MachineError::NotKvm);
        }
        Vm::started(monitor, setup.machine.has_kernel())
    }
}
