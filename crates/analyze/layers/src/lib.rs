//! From traces to requests, from requests to layers.
//!
//! [`join`] reads the traces of one observed trial and follows each operation of the workload through guest, KVM, QEMU
//! and host: a [`JoinedRequest`] has the moment at which it passed each checkpoint, and [`Segment`]s that fill its
//! path without a gap, each in one state. [`findings`] makes of all trials of a plan what reports show, [`command()`]
//! of a command's requests, which nobody stamped, [`vm()`] of those of a running VM, which its host alone shows.
//! `docs/layers.md` says how and why.
//!
//! The data pass the folders in this order:
//!
//! ```text
//! events ────────────────▶ join ──────────────────────────────▶ trial ──────────▶ findings
//! trace_reader, decode      joiner ─▶ guest, host ─▶ follow      joined_trial      column_sums ─▶ column ─▶ plan
//! (one clock, one form)     (event windows)  (checkpoints)       (rows)
//!                           ─▶ segments (states) ─▶ request
//! ```
//!
//! Code for disks alone is in the folder `disk`: events that are requests, their identity, and how they are followed.

mod disk;
mod error;
mod events;
mod findings;
mod join;
mod net;
mod request;
#[cfg(test)]
mod synthetic;
#[cfg(test)]
mod tests;
mod trial;

pub use error::LayersError;
pub use findings::command::command;
pub use findings::plan::findings;
pub use findings::vm::vm;
pub use request::{JoinedRequest, Segment, Who};
pub use trial::joined_trial::JoinedTrial;
pub use trial::open::join;
pub use trial::vm::{VmTrial, join_vm};
