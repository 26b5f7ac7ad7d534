//! What it takes to bring a machine up.

use crate::{Interrupt, Scratch};
use std::path::{Path, PathBuf};
use std::time::Duration;
use vmtax_model::{MachineName, QemuFacts};

/// Which machine, with what a guest is started from.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// The host itself.
    Native,
    /// A guest under KVM.
    Kvm(&'a GuestImage),
    /// A guest under TCG.
    Tcg(&'a GuestImage),
}

impl Target<'_> {
    /// The machine's name.
    pub fn name(&self) -> MachineName {
        match self {
            Target::Native => MachineName::Native,
            Target::Kvm(_) => MachineName::Kvm,
            Target::Tcg(_) => MachineName::Tcg,
        }
    }
}

/// What to start.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    /// Which machine.
    pub target: Target<'a>,
    /// Its processors; natively that many of the host's.
    pub cpus: u32,
    /// Its memory, MiB; natively a limit.
    pub memory_mib: u32,
    /// The files and disks it works on.
    pub scratch: &'a Scratch,
    /// The folder for its logs.
    pub log: &'a Path,
    /// How long it may take to come up.
    pub boot_deadline: Duration,
    /// Somebody's wish to stop.
    pub interrupt: &'a Interrupt,
}

/// What a guest is started from.
#[derive(Debug, Clone, PartialEq)]
pub struct GuestImage {
    /// The QEMU.
    pub qemu: QemuFacts,
    /// The kernel as QEMU takes it: a bzImage, or an uncompressed one with a PVH entry.
    pub kernel: PathBuf,
    /// The initramfs, this very binary in it.
    pub initramfs: PathBuf,
}
