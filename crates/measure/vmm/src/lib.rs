//! What is known of a VMM, and of any VM that runs. A [`Vm`] is one handle for a guest of the lab and for one that
//! another program started: it is found by what people call it, and its threads, disks, settings and monitor are read.
//! No VM is started here; the crates above do that, and change settings of those that run.

mod error;
mod peer;
mod process;
pub mod qemu;
mod vm;

pub use error::VmmError;
pub use peer::Peer;
pub use process::NoMonitor;
pub use qemu::guest_program::GuestProgram;
pub use qemu::monitor::Monitor;
pub use qemu::probe_points::disk_probe_points;
pub use vm::{FindError, Vm, find, is_vm, pids, process_identity, running, running_vms};
