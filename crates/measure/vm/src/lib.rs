//! Where workloads run. [`start`] starts a machine; a [`RunningMachine`] is the host itself in a confined process, a guest
//! with a kernel, or the micro-guest, and whoever holds one need not know which it is. The first two have an agent and
//! speak its protocol; the micro-guest has no room for one and takes orders in its memory.
//!
//! Whatever is started stands under a watchdog process that outlives this one when it is killed, ends what was
//! started, and removes what was left.

mod agent;
mod apart;
mod capture;
mod child;
mod console;
mod disk;
mod error;
mod exec;
mod extra;
mod foreign;
mod host_settings;
mod interrupt;
mod jail;
mod lines;
mod memory;
pub mod micro_guest;
mod mountinfo;
mod mounts;
mod native;
mod outside;
mod portmapper;
mod processor;
mod qemu;
mod qmp;
mod remove;
mod root;
mod running;
mod scratch;
mod session;
mod setup;
mod share;
mod start;
mod streams;
mod terminal;
mod tree;
mod vm;
mod watchdog;

pub use apart::Apart;
pub use capture::Capture;
pub use error::MachineError;
pub use exec::{CommandRun, Finished, Ran};
pub use foreign::{QemuMonitor, sockets as qmp_sockets};
pub use host_settings::HostSettings;
pub use interrupt::Interrupt;
pub use jail::{Jail, jailed};
pub use lines::{Files, no_files};
pub use mountinfo::{Mount, mounts};
pub use outside::QemuOutside;
pub use processor::{between as processor_between, descendants};
pub use root::{RootMounts, root_mounts};
pub use running::RunningMachine;
pub use scratch::{DiskKind, Needs, Scratch, sweep};
pub use setup::{Boot, GuestImage, MicroImage, Setup};
pub use share::{Besides, Sharing, check_rights, image_mib, make_image};
pub use start::start;
pub use streams::Streams;
pub use tree::tree_room;
pub use vm::Vm;
pub use vmtax_wire::{Hello, Observed};
pub use watchdog::watchdog;
