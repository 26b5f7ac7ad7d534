//! From traces to requests, from requests to layers.
//!
//! [`join`] reads the traces of one observed trial and follows each operation of the workload through guest, KVM, QEMU and
//! host: a [`JoinedRequest`] has the moment at which it passed each station, and [`Piece`]s that fill its way without a gap,
//! each in one state. [`findings`] makes of all trials of a plan what reports show, [`command()`] of a command's requests,
//! which nobody stamped. `docs/layers.md` says how and why.
//!
//! The way of an event, module by module:
//!
//! ```text
//! open, fields ─▶ event ─▶ join ─▶ host, guest ─▶ follow ─▶ pieces ─▶ request ─▶ trial
//!                                  (what was lately) (stations) (states)          │
//!                                                    findings ◀─ column ◀─ tally ◀┘
//! ```

mod advice;
mod calls;
mod chain;
mod clocks;
mod column;
mod command;
mod distribution;
mod error;
mod event;
mod fields;
mod findings;
mod follow;
mod guest;
mod heat;
mod host;
mod join;
mod joined;
mod nested;
mod open;
mod path;
mod pieces;
mod qemu_log;
mod request;
mod rwbs;
mod side;
mod stats;
#[cfg(test)]
mod synthetic;
mod tally;
#[cfg(test)]
mod tests;
mod trial;
mod waterfall;
mod way;

pub use command::command;
pub use error::LayersError;
pub use findings::findings;
pub use open::join;
pub use request::{JoinedRequest, Piece, Who};
pub use trial::JoinedTrial;
