//! Code for disks alone: a disk's events, and how its requests are followed. Here are the requests while they are in flight: in
//! the guest's block layer, from insertion to completion; in QEMU's device, from pop to push, which is all that a host
//! knows of a guest that does not trace.

pub(crate) mod by_calls;
pub(crate) mod decode;
pub(crate) mod follow;
pub(crate) mod operations;

use crate::events::{Event, HostEvent, Mark, moment_at};
use std::collections::HashMap;
use vmtax_findings::RequestKind;
use vmtax_model::{Checkpoint, Stamped};
use vmtax_trace::Moment;

/// The offset of a request without bytes, as a flush.
pub(crate) const NOWHERE: u64 = u64::MAX;

/// A request of the guest's block layer: one for an operation as a rule, but large ones are split and neighbors merged.
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
    /// A request about no bytes; `complete` is the issue, as long as it is not over.
    pub fn new(kind: RequestKind, issue: Moment) -> GuestRequest {
        GuestRequest {
            offset: NOWHERE,
            bytes: 0,
            kind,
            inserted: None,
            issue,
            complete: issue,
            alone: false,
        }
    }

    /// Of an operation whose block request was not traced: the operation itself.
    pub fn of_operation(operation: &Stamped, bytes: u64) -> GuestRequest {
        let request = GuestRequest {
            offset: operation.key,
            bytes,
            ..GuestRequest::new(RequestKind::Other, moment_at(operation.begin))
        };
        request.completed(moment_at(operation.end))
    }

    /// The request with its end.
    pub fn completed(self, complete: Moment) -> GuestRequest {
        GuestRequest { complete, ..self }
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

/// Requests that QEMU has popped and not pushed, by its address for each. `complete` is not valid yet.
#[derive(Debug, Default)]
pub(crate) struct InDevice(HashMap<u64, GuestRequest>);

impl InDevice {
    /// Takes an event; gives the request that it ends.
    pub fn take(&mut self, event: &Event<HostEvent>) -> Option<Ended> {
        let now = event.moment();
        match event.what {
            HostEvent::Passes(Checkpoint::QemuPop, mark) => {
                let address = mark.address?;
                let alone = self.0.keys().all(|other| *other == address);
                if !alone {
                    self.0.values_mut().for_each(|other| other.alone = false);
                }
                let request = GuestRequest {
                    alone,
                    ..popped(mark, now)
                };
                let unseen = self.0.insert(address, request)?;
                Some(Ended::Unseen(unseen.completed(now), Checkpoint::QemuPush))
            }
            HostEvent::Passes(Checkpoint::QemuPush, mark) => {
                let pushed = self.0.remove(&mark.address?)?;
                Some(Ended::Done(pushed.completed(now)))
            }
            _ => None,
        }
    }

    /// When the oldest was popped.
    pub fn oldest(&self) -> Option<u64> {
        self.0.values().map(|request| request.issue.at).min()
    }
}

/// Makes a request from the mark of its pop. `bytes` is 1: the length is not known before the submission.
fn popped(mark: Mark, now: Moment) -> GuestRequest {
    let kind = mark.kind.unwrap_or(RequestKind::Other);
    // The header of others has any sector.
    let is_somewhere = matches!(kind, RequestKind::Read | RequestKind::Write);
    let offset = mark.offset.filter(|_| is_somewhere).unwrap_or(NOWHERE);
    GuestRequest {
        offset,
        bytes: 1,
        ..GuestRequest::new(kind, now)
    }
}

/// Block requests of the guest that have not completed, by offset.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// Inserted and not issued. A request that was merged with another is never issued.
    inserted: HashMap<u64, u64>,
    /// Issued and not complete; `complete` is not valid yet.
    issued: HashMap<u64, GuestRequest>,
}

impl InFlight {
    pub fn insert(&mut self, offset: u64, at: u64) {
        self.inserted.insert(offset, at);
    }

    /// A driver whose ring is full requeues the request, and it is issued again: the last issue counts, but the request
    /// began when it was first inserted.
    pub fn issue(&mut self, offset: u64, bytes: u64, kind: RequestKind, now: Moment) {
        let first = self.issued.get(&offset).map(GuestRequest::begin);
        let inserted = self.inserted.remove(&offset).or(first);
        let request = GuestRequest {
            offset,
            bytes,
            inserted,
            ..GuestRequest::new(kind, now)
        };
        self.issued.insert(offset, request);
    }

    /// The request that completes, if its issue was traced.
    pub fn complete(&mut self, offset: u64, now: Moment) -> Option<GuestRequest> {
        let request = self.issued.remove(&offset)?.completed(now);
        // What was merged with it has completed, too.
        self.inserted
            .retain(|offset, _| !request.overlaps(*offset, 1));
        Some(request)
    }

    /// When the oldest request in flight began; of those not issued, the ones inserted since `since` count.
    pub fn oldest(&self, since: u64) -> Option<u64> {
        let waiting = self.inserted.values().copied().filter(|at| *at >= since);
        self.issued
            .values()
            .map(GuestRequest::begin)
            .chain(waiting)
            .min()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.issued.len()
    }

    /// Drops requests that were inserted or issued before `at`.
    pub fn forget(&mut self, at: u64) {
        self.inserted.retain(|_, inserted| *inserted >= at);
        self.issued.retain(|_, request| request.issue.at >= at);
    }
}
