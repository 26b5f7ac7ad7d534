//! Where workloads run. [`start`] starts a machine; a [`RunningMachine`] is the host itself in a confined process, a guest
//! with a kernel, or the micro-guest, all behind one trait. The first two have an agent and
//! speak its protocol; the micro-guest has no room for one and takes orders in its memory.
//!
//! Each process that is started has a watchdog process, which survives this one: if this process is killed, the watchdog
//! kills what was started, restores the host's settings and removes temporary files.

mod agent;
mod error;
mod host_settings;
pub mod micro_guest;
mod network;
mod process;
mod running;
mod sandbox;
mod scratch;
mod setup;
mod share;
mod vmm;

pub use agent::command::{CommandRun, Finished, Ran};
pub use agent::messages::{Files, no_files};
pub use agent::native::remove_stale_groups;
pub use agent::streams::{Capture, Streams};
pub use error::MachineError;
pub use host_settings::{HostSettings, host_setting_fault};
pub use network::network_device;
pub use process::child::Watchdog;
pub use process::watchdog::watchdog;
pub use running::RunningMachine;
pub use sandbox::mounts::{Mount, mounts};
pub use sandbox::mounts::{RootMounts, root_mounts};
pub use scratch::tree::tree_room;
pub use scratch::{DISK_BYTES, DiskKind, Needs, Scratch, disk_images_mib, remove_scratch};
pub use setup::{Boot, GuestImage, Interrupt, Setup, VmmProgram};
pub use share::jail::jailed;
pub use share::{
    RootExtras, Sharing, check_rights, check_share, image_mib, make_image, portmapper_program,
    share_program,
};
pub use vmm::qemu::DISK_DEVICE;
pub use vmm::qemu::device_arguments::{DiskDevices, NET_DEVICE};
pub use vmtax_wire::{Hello, Observed};

/// Starts a machine, whatever it boots, and waits until it accepts workloads.
///
/// # Errors
/// [`MachineError`] with what the machine's console or QEMU printed last.
pub fn start<'a>(setup: &Setup<'a>) -> Result<Box<dyn RunningMachine + 'a>, MachineError> {
    use agent::session::Session;
    Ok(match setup.boot {
        Boot::Host => Box::new(Session::start(setup, None)?),
        Boot::Linux(program, image) => Box::new(Session::start(setup, Some((program, image)))?),
        Boot::Micro(program, rom) => Box::new(micro_guest::MicroGuest::start(setup, program, rom)?),
    })
}
