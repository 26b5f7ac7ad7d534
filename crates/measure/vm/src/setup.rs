//! What it takes to bring a machine up.

use crate::{Interrupt, Scratch, Sharing};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vmtax_model::{Machine, QemuFacts};

/// What a machine boots.
#[derive(Debug, Clone, Copy)]
pub enum Boot<'a> {
    /// Nothing: it is the host itself.
    Host,
    /// A Linux kernel with the agent.
    Linux(&'a GuestImage),
    /// The micro-guest.
    Micro(&'a MicroImage),
}

/// What to start.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    /// Which machine.
    pub machine: Machine,
    /// What it boots.
    pub boot: Boot<'a>,
    /// Its processors; natively that many of the host's.
    pub cpus: u32,
    /// Its memory, MiB; natively a limit.
    pub memory_mib: u32,
    /// Disks that a guest has besides.
    pub disks: u32,
    /// Regions of memory that a guest has besides.
    pub memory_regions: u32,
    /// How the measured disk is attached: a variant's settings.
    pub disk: &'a BTreeMap<String, String>,
    /// Words for the kernel's command line, besides the usual ones.
    pub append: Option<&'a str>,
    /// Words for QEMU's command line, behind all others.
    pub options: &'a [String],
    /// What has to be written where should this program be killed: settings of the host.
    pub put_back: &'a [(PathBuf, String)],
    /// The tree that a guest is given, if any.
    pub share: Option<&'a Sharing>,
    /// The files and disks it works on.
    pub scratch: &'a Scratch,
    /// The folder for its logs.
    pub log: &'a Path,
    /// Whether QEMU is to have a log of its own events, to be switched on later: in [`Setup::log`], `qemu.events`.
    pub events: bool,
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

/// What the micro-guest is started from.
#[derive(Debug, Clone, PartialEq)]
pub struct MicroImage {
    /// The QEMU.
    pub qemu: QemuFacts,
    /// The file that holds the ROM.
    pub rom: PathBuf,
}
