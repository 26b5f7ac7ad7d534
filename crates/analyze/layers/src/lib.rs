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
mod trial;

#[cfg(test)]
mod synthetic;
#[cfg(test)]
mod tests;

pub use findings::command::command;
pub use findings::plan::findings;
pub use findings::vm::vm;
pub use trial::joined_trial::JoinedTrial;
pub use trial::open::join;
pub use trial::vm::{VmTrial, join_vm};

use std::io;
use std::num::NonZeroU64;
use std::path::PathBuf;
use vmtax_clock::ClockError;
use vmtax_findings::{RequestKind, State};
use vmtax_model::{Checkpoint, DamagedError, limit_remedy};
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
"{} uses the trace clock '{clock}', but requests are matched by the TSC: set trace_clock to x86-tsc",
        path.display()
    )]
    Clock { path: PathBuf, clock: String },
    /// The offset between guest and host clock cannot be bounded.
    #[error(transparent)]
    Offset(#[from] ClockError),
    /// The trace of a running VM's guest cannot be joined with that of its host.
    #[error(
        "the guest's trace cannot be matched: {0}. Start `vmtax agent observe --duration 60s` in the guest, and `vmtax layers --vm` on the host meanwhile"
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

/// Who works for a request, or is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Who {
    /// The guest, on one of its CPUs.
    Guest,
    /// The host's kernel, or its disk.
    Host,
    /// A thread of QEMU: the position in [`crate::JoinedTrial::threads`].
    Thread(u16),
}

/// Recorded events that lie in a part of a request's path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordedEvents {
    /// Number of the events.
    pub count: u16,
    /// Calibrated cost of the events, in host ticks; no longer than the part.
    pub ticks: u32,
}

impl RecordedEvents {
    /// Returns the sum of both.
    pub fn and(self, other: RecordedEvents) -> RecordedEvents {
        RecordedEvents {
            count: self.count.saturating_add(other.count),
            ticks: self.ticks.saturating_add(other.ticks),
        }
    }

    /// No longer than this.
    pub(crate) fn within(self, ticks: u64) -> RecordedEvents {
        RecordedEvents {
            ticks: self.ticks.min(u32::try_from(ticks).unwrap_or(u32::MAX)),
            ..self
        }
    }
}

/// A part of an interval in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The checkpoint to which the interval leads that this is a segment of.
    pub to: Checkpoint,
    /// State of the request in this segment.
    pub state: State,
    /// Who worked, or should have.
    pub who: Who,
    /// Length of the segment, in host ticks.
    pub ticks: u64,
    /// The events that lie in it; none where their cost is not known.
    pub recorded: RecordedEvents,
}

/// One operation of the workload, or one request of a command's, followed through the layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedRequest {
    times: [Option<NonZeroU64>; Checkpoint::COUNT],
    who: [Who; Checkpoint::COUNT],
    /// Key of the operation, as the workload stamped it: for a disk, the byte offset, 0 for a request about no bytes.
    pub key: u64,
    /// Kind of the request: read, write, transmit and others.
    pub kind: RequestKind,
    /// The path without a gap from [`JoinedRequest::first`] to [`JoinedRequest::last`], in order; none has length 0. Those
    /// that lead to [`Checkpoint::End`] are what the workload did for other requests when this one had come back.
    pub segments: Box<[Segment]>,
    /// The events before and behind the segments.
    pub recorded_outside: RecordedEvents,
}

impl JoinedRequest {
    pub(crate) fn new(key: u64, kind: RequestKind) -> Self {
        JoinedRequest {
            times: [None; Checkpoint::COUNT],
            who: [Who::Host; Checkpoint::COUNT],
            key,
            kind,
            segments: Box::default(),
            recorded_outside: RecordedEvents::default(),
        }
    }

    pub(crate) fn set(&mut self, checkpoint: Checkpoint, at: u64, who: Who) {
        self.times[checkpoint as usize] = NonZeroU64::new(at);
        self.who[checkpoint as usize] = who;
    }

    /// When the request passed a checkpoint, host ticks; `None` where it did not, or was not traced.
    pub fn at(&self, checkpoint: Checkpoint) -> Option<u64> {
        self.times[checkpoint as usize].map(NonZeroU64::get)
    }

    /// The thread or side that passed the checkpoint.
    pub fn who(&self, checkpoint: Checkpoint) -> Who {
        self.who[checkpoint as usize]
    }

    /// The checkpoints that it passed, in order, the workload's own among them.
    pub fn checkpoints(&self) -> impl Iterator<Item = (Checkpoint, u64)> + '_ {
        Checkpoint::ALL
            .into_iter()
            .filter_map(|s| Some((s, self.at(s)?)))
    }

    /// When it began, host ticks, by the workload's own stamp; of a command's, when the guest's block layer took it in.
    pub fn begin(&self) -> u64 {
        self.at(Checkpoint::Begin).unwrap_or(0)
    }

    /// When it had ended, host ticks, likewise; of a command's, when the block layer completed it.
    pub fn end(&self) -> u64 {
        self.at(Checkpoint::End).unwrap_or(0)
    }

    /// Returns the duration by the workload's own stamps, in ticks.
    pub fn total(&self) -> u64 {
        self.end().saturating_sub(self.begin())
    }

    /// Where its segments begin, host ticks: the first moment that a tracer saw.
    pub fn first(&self) -> u64 {
        let Some((checkpoint, at)) = self.checkpoints().find(|(s, _)| *s != Checkpoint::Begin)
        else {
            return 0;
        };
        // Of a command's request a tracer saw the begin, too, and a segment leads from there.
        let from_begin = self
            .segments
            .first()
            .is_some_and(|segment| segment.to == checkpoint && checkpoint != Checkpoint::End);
        if from_begin { self.begin() } else { at }
    }

    /// Where its segments end, host ticks: the last of it that a tracer saw.
    pub fn last(&self) -> u64 {
        self.first() + self.segments.iter().map(|p| p.ticks).sum::<u64>()
    }
}
