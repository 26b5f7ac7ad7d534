//! Facts about a VMM, and about any running VM. A [`Vm`] is one handle for a guest that vmtax booted and for one that
//! another program started: it is found by what people call it, and its threads, disks, settings and monitor are read.
//! No VM is started here; the crates above do that, and change settings of those that run.

pub mod kvm;
mod process;
pub mod qemu;
pub mod ring;
mod vm;

pub use process::NoMonitor;
pub use qemu::conversation::Peer;
pub use qemu::guest_program::GuestProgram;
pub use qemu::monitor::Monitor;
pub use qemu::probe_points::disk_probe_points;
pub use vm::{
    FindError, Vm, find, is_ours, is_vm, mark_shared_names, pids, process_identity, running,
    running_vms,
};

/// A VMM, or its guest, does not say or do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum VmmError {
    /// A program or file in a running guest.
    #[error(
        "QEMU's guest agent failed: {0}. Install qemu-guest-agent in the guest and allow guest-exec, or use SSH"
    )]
    InGuest(String),
    /// QEMU's monitor failed, for this reason.
    #[error("QEMU's monitor (QMP) failed: {0}")]
    Monitor(String),
    /// This user may not connect to QEMU's monitor, for this reason.
    #[error("QEMU's monitor (QMP) failed: {0}. Run vmtax as root or as QEMU's user")]
    MonitorDenied(String),
    /// QEMU's monitor does not answer.
    #[error("QMP did not answer within {seconds} s{}", if *.has_client { ", since another client is connected to it" } else { "" })]
    MonitorTimeout {
        /// The timeout, seconds.
        seconds: f64,
        /// True if another client is known to be connected: a QMP socket serves one at a time.
        has_client: bool,
    },
}

impl VmmError {
    /// The reason of an error of the monitor, without the words that name it.
    pub fn monitor_reason(self) -> String {
        match self {
            VmmError::Monitor(why) | VmmError::MonitorDenied(why) => why,
            other => other.to_string(),
        }
    }
}
