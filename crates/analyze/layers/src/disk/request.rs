//! A request of the guest's block layer.

use vmtax_model::{Checkpoint, RequestKind, Stamped};
use vmtax_trace::Moment;

/// The offset of a request without bytes, as a flush.
pub(crate) const NOWHERE: u64 = u64::MAX;

/// A request of the guest's block layer: one for an operation as a rule, but large ones are split and neighbours merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GuestRequest {
    /// [`NOWHERE`] where it is about no bytes.
    pub offset: u64,
    pub bytes: u64,
    pub kind: RequestKind,
    /// When the block layer took it in, if it then had to wait.
    pub inserted: Option<u64>,
    pub issue: Moment,
    pub complete: Moment,
    /// No other was in flight with it, as far as its guest is known.
    pub alone: bool,
}

/// A request that is over, of a guest that the host alone shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Completed request: its end was observed.
    Done(GuestRequest),
    /// Request whose address another request has by now; this last checkpoint of it was not observed.
    Unseen(GuestRequest, Checkpoint),
}

impl GuestRequest {
    /// Of an operation whose block request was not traced: the operation itself.
    pub fn of_operation(operation: &Stamped, bytes: u64) -> GuestRequest {
        let moment = |at| Moment {
            at,
            cpu: 0,
            tid: 0,
            interrupt: false,
        };
        GuestRequest {
            offset: operation.key,
            bytes,
            kind: RequestKind::Other,
            inserted: None,
            issue: moment(operation.begin),
            complete: moment(operation.end),
            alone: false,
        }
    }

    /// Returns true if the request transfers any of an operation's bytes, and was issued after the operation began.
    pub fn serves(&self, operation: &Stamped, bytes: u64) -> bool {
        self.issue.at >= operation.begin && self.overlaps(operation.key, bytes)
    }

    /// When the block layer first had it, as far as that is known.
    pub fn begin(&self) -> u64 {
        self.inserted.unwrap_or(self.issue.at)
    }

    /// Returns the offset as QEMU reports it, in bytes: 0 for a request without bytes.
    pub fn at_device(&self) -> u64 {
        if self.offset == NOWHERE {
            0
        } else {
            self.offset
        }
    }

    /// Returns true if the request is about any of these bytes.
    pub fn overlaps(&self, offset: u64, bytes: u64) -> bool {
        offset < self.offset.saturating_add(self.bytes)
            && self.offset < offset.saturating_add(bytes)
    }
}
