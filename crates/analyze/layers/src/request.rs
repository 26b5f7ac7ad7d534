//! A joined request, as exports write it.

use std::num::NonZeroU64;
use vmtax_findings::{RequestKind, State};
use vmtax_model::Checkpoint;

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
