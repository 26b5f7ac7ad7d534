//! Failures that a guest's kernel reports on its console.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

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
