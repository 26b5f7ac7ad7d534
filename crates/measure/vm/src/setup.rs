//! The parameters of a machine, among them the request to stop that ends its waits.

use crate::{Scratch, Sharing};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use vmtax_model::{Accelerator, CommandSpec, Guest, Machine, NetBackend, QemuFacts, Vmm};

/// The program of a VMM that was found on this host.
#[derive(Debug, Clone, PartialEq)]
pub enum VmmProgram {
    /// QEMU, with the facts of its binary.
    Qemu(QemuFacts),
}

impl VmmProgram {
    /// Whose program it is.
    pub fn vmm(&self) -> Vmm {
        match self {
            VmmProgram::Qemu(_) => Vmm::Qemu,
        }
    }

    /// Returns the path of the binary.
    pub fn path(&self) -> &Path {
        match self {
            VmmProgram::Qemu(qemu) => &qemu.path,
        }
    }

    /// Returns true if the VMM was built with an accelerator.
    pub fn has(&self, accelerator: Accelerator) -> bool {
        match self {
            VmmProgram::Qemu(qemu) => qemu
                .accelerators
                .iter()
                .any(|name| name == accelerator.as_str()),
        }
    }
}

/// Software that a machine boots.
#[derive(Debug, Clone, Copy)]
pub enum Boot<'a> {
    /// Nothing: it is the host itself.
    Host,
    /// A Linux kernel with the agent.
    Linux(&'a VmmProgram, &'a GuestImage),
    /// The micro-guest, from the file of its ROM.
    Micro(&'a VmmProgram, &'a Path),
}

/// A machine to start.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    /// Kind of the machine.
    pub machine: Machine,
    /// Software that the machine boots.
    pub boot: Boot<'a>,
    /// The guest's description; natively its CPUs, and its memory as a limit.
    pub guest: &'a Guest,
    /// The host CPUs of a native trial; empty: as many as the guest has, whichever.
    pub pinned: &'a [u32],
    /// Settings, of a variant, of the measured disk, or of the network card where there is a network.
    pub disk: &'a BTreeMap<String, String>,
    /// Host settings that the watchdog restores if this program is killed: file and content.
    pub restored: &'a [(PathBuf, String)],
    /// The tree that is shared with a guest, if any.
    pub share: Option<&'a Sharing>,
    /// True if the machine has a network with an echo server.
    pub network: bool,
    /// The backend of a guest's network card; `None` for a tap, or what this user may make.
    pub backend: Option<NetBackend>,
    /// The command that it runs, if any.
    pub command: Option<&'a CommandSpec>,
    /// The files and disks it works on.
    pub scratch: &'a Scratch,
    /// The folder for its logs.
    pub log: &'a Path,
    /// True if QEMU logs its own trace events, enabled later: in [`Setup::log`], `qemu.events`.
    pub events: bool,
    /// Ends every wait.
    pub interrupt: &'a Interrupt,
}

/// Files from which a guest is started.
#[derive(Debug, Clone, PartialEq)]
pub struct GuestImage {
    /// The kernel: a bzImage, or an uncompressed one with a PVH entry.
    pub kernel: PathBuf,
    /// The initramfs, this very binary in it.
    pub initramfs: PathBuf,
}

/// A stop request as a file descriptor, which is readable until the request is acknowledged: waiting for it needs no periodic
/// wake-ups, which would disturb a measurement.
#[derive(Debug)]
pub struct Interrupt {
    readable: OwnedFd,
    acknowledged: AtomicBool,
}

impl Interrupt {
    /// From the reading end of a pipe or socket that a signal handler writes to.
    pub fn new(readable: OwnedFd) -> Self {
        Interrupt {
            readable,
            acknowledged: AtomicBool::new(false),
        }
    }

    /// Acknowledges a request, so that the next one can be waited for; [`Interrupt::raised`] stays true.
    pub fn acknowledge(&self) {
        self.acknowledged.store(true, Ordering::Relaxed);
        let _ = rustix::io::read(&self.readable, &mut [0]);
    }

    /// Returns true if a stop was requested.
    pub fn raised(&self) -> bool {
        if self.acknowledged.load(Ordering::Relaxed) {
            return true;
        }
        let mut fds = [PollFd::new(&self.readable, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}
