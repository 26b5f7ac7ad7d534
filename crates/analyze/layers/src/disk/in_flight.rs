//! The block requests of the guest from insertion to completion.

use super::request::GuestRequest;
use std::collections::HashMap;
use vmtax_model::RequestKind;
use vmtax_trace::Moment;

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
        self.issued.insert(
            offset,
            GuestRequest {
                offset,
                bytes,
                kind,
                inserted,
                issue: now,
                complete: now,
                alone: false,
            },
        );
    }

    /// The request that completes, if its issue was traced.
    pub fn complete(&mut self, offset: u64, now: Moment) -> Option<GuestRequest> {
        let request = self.issued.remove(&offset).map(|request| GuestRequest {
            complete: now,
            ..request
        })?;
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
