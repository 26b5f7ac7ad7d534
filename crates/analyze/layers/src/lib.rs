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
//! decode                    joiner ─▶ guest, host ─▶ follow      joined_trial      column_sums ─▶ plan
//! (one clock, one form)     (event windows)  (checkpoints)       (rows)
//!                           ─▶ segments (states) ─▶ request
//! ```
//!
//! Code for disks alone is in the folder `disk`: events that are requests, their identity, and how they are followed.

mod disk;
mod events;
mod findings;
mod join;
mod net;
mod request;
mod trial;

#[cfg(test)]
mod synthetic;
#[cfg(test)]
mod tests;

pub use findings::command::command;
pub use findings::plan::findings;
pub use findings::vm::vm;
pub use request::{JoinedRequest, Segment, Who};
pub use trial::joined_trial::JoinedTrial;
pub use trial::open::join;
pub use trial::vm::{VmTrial, join_vm};

use std::io;
use std::path::PathBuf;
use vmtax_clock::ClockError;
use vmtax_model::{DamagedError, limit_remedy};
use vmtax_trace::TraceError;

/// Errors of joining a trial's requests.
#[derive(Debug, thiserror::Error)]
pub enum LayersError {
    /// A file cannot be read.
    #[error("failed to read {}: {source}{}", path.display(), limit_remedy(.source))]
    Read { path: PathBuf, source: io::Error },
    /// `trace.json` or `vm-trace.json` is invalid.
    #[error("{} is invalid ({reason}): record the trial again", path.display())]
    Facts { path: PathBuf, reason: String },
    /// The workload's stamps are invalid.
    #[error("{}: {source}", path.display())]
    Series { path: PathBuf, source: DamagedError },
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A trace uses another trace clock than the TSC.
    #[error(
"{} uses the trace clock '{clock}', but requests are joined by the TSC: set trace_clock to x86-tsc",
        path.display()
    )]
    Clock { path: PathBuf, clock: String },
    /// The offset between guest and host clock cannot be bounded.
    #[error(transparent)]
    Offset(#[from] ClockError),
    /// The trace of a running VM's guest cannot be joined with that of its host.
    #[error(
        "the guest's trace cannot be joined: {0}. Start `vmtax agent observe --duration 60s` in the guest, and `vmtax layers --vm` on the host meanwhile"
    )]
    GuestTrace(&'static str),
    /// No traced trial could be read; the first one's error.
    #[error("no traced trial can be read; the first error: {0}")]
    Nothing(Box<LayersError>),
    /// No traced trial came to its end; why the first one of all trials did not.
    #[error("no traced trial has a result; the first failure: {0}")]
    Failed(String),
    /// The recording has no traced trial.
    #[error("the recording has no traced trial: record one with `vmtax layers`")]
    Unobserved,
    /// A command's requests can only be traced by the guest's kernel.
    #[error("the guest's requests were not traced{0}")]
    Unseen(String),
}

impl LayersError {
    /// The error that facts have no trace beside them.
    pub(crate) fn no_trace(path: PathBuf) -> LayersError {
        LayersError::Facts {
            path,
            reason: "there is no trace beside it".to_owned(),
        }
    }
}
