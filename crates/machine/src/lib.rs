//! Where workloads run. A [`Session`] is a machine that is up: the host itself in a confined process, or a QEMU guest
//! under KVM or TCG. All three speak the agent's protocol, so whoever holds a session need not know which it is.
//!
//! Whatever is started stands under a watchdog process that outlives this one when it is killed, ends what was
//! started, and removes what was left.

mod child;
mod console;
mod error;
mod interrupt;
mod lines;
mod memory;
mod native;
mod qemu;
mod qmp;
mod scratch;
mod session;
mod setup;
mod watchdog;

pub use error::MachineError;
pub use interrupt::Interrupt;
pub use scratch::{Needs, Scratch, sweep};
pub use session::Session;
pub use setup::{GuestImage, Setup, Target};
pub use watchdog::watchdog;
