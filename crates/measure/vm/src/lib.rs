//! Where workloads run. A [`Session`] is a machine that is up: the host itself in a confined process, or a QEMU guest
//! under KVM or TCG. All three speak the agent's protocol, so whoever holds a session need not know which it is. A
//! [`MicroSession`] is the micro-guest, which has no room for an agent and takes orders in its memory.
//!
//! Whatever is started stands under a watchdog process that outlives this one when it is killed, ends what was
//! started, and removes what was left.

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
mod micro;
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
mod scratch;
mod session;
mod setup;
mod share;
mod streams;
mod terminal;
mod tree;
mod watchdog;

pub use apart::Apart;
pub use capture::Capture;
pub use error::MachineError;
pub use exec::{Finished, Ran};
pub use foreign::{QemuMonitor, sockets as qmp_sockets};
pub use host_settings::HostSettings;
pub use interrupt::Interrupt;
pub use jail::{Jail, jailed};
pub use lines::Files;
pub use micro::MicroSession;
pub use mountinfo::{Mount, mounts};
pub use outside::QemuOutside;
pub use processor::{between as processor_between, descendants};
pub use root::{RootMounts, root_mounts};
pub use scratch::{DiskKind, Needs, Scratch, sweep};
pub use session::{Session, no_files};
pub use setup::{Boot, GuestImage, MicroImage, Setup};
pub use share::{Besides, Sharing, check_rights, image_mib, make_image};
pub use streams::Streams;
pub use tree::tree_room;
pub use vmtax_wire::{Hello, Observed};
pub use watchdog::watchdog;
