//! From traces to requests, from requests to layers.
//!
//! [`join`] reads the traces of one observed trial and follows each operation of the workload through guest, KVM, QEMU and
//! host: a [`JoinedRequest`] has the moment at which it passed each checkpoint, and [`Segment`]s that fill its path without a gap,
//! each in one state. [`findings`] makes of all trials of a plan what reports show, [`command()`] of a command's requests,
//! which nobody stamped. `docs/layers.md` says how and why.
//!
//! The path of an event, module by module:
//!
//! ```text
//! open, fields ─▶ event ─▶ join ─▶ host, guest ─▶ follow ─▶ segments ─▶ request ─▶ trial
//!                                  (what was lately) (checkpoints) (states)          │
//!                                                    findings ◀─ column ◀─ tally ◀┘
//! ```

mod call_times;
mod calls;
mod chain;
mod clocks;
mod column;
mod command;
mod critical_path;
mod decode;
mod distribution;
mod error;
mod event;
mod findings;
mod follow;
mod guest;
mod heat;
mod host;
mod join;
mod joined;
mod nested;
mod open;
mod passed;
mod qemu_log;
mod request;
mod request_path;
mod rwbs;
mod segments;
#[cfg(test)]
mod synthetic;
mod tally;
#[cfg(test)]
mod tests;
mod trace_reader;
mod trial;
mod waterfall;

pub use command::command;
pub use error::LayersError;
pub use findings::findings;
pub use open::join;
pub use request::{JoinedRequest, Segment, Who};
pub use trial::JoinedTrial;
