//! The micro-guest: a ROM of ours without an operating system, the floor under every guest figure.
//!
//! QEMU starts it as firmware ([`rom`], [`qemu`]). It goes straight to 64-bit user mode, where its code runs natively
//! under every KVM, also one that emulates kernel mode, and takes its orders through a [`Mailbox`] in its RAM, which is
//! a file that the host maps too. It has drivers of its own for virtio-blk, polled or interrupt driven, and virtio-net,
//! and stamps each request; it measures the cost of each kind of exit, and of antipatterns of guest kernels beside their
//! fixes; it answers
//! the host's clock.

mod guest;
pub mod layout;
mod mailbox;
mod order;
pub mod qemu;
mod rom;
mod workloads;

pub(crate) use guest::MicroGuest;
pub use mailbox::{Mailbox, MicroRequest};
pub use order::{
    Completion, Direction, ExitKind, Failure, MicroError, Order, Pattern, RoundTrips, Run, State,
};
pub use rom::rom;
