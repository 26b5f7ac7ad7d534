//! The result of joining a trial's events.

use crate::disk::request::GuestRequest;
use crate::request::JoinedRequest;
use vmtax_model::{Checkpoint, PacketCounts, QemuThread, RequestKind};

/// Why an operation is no joined request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reason {
    /// Events were lost while it was in flight.
    Lost,
    /// Events of the request violate causality.
    Violation,
    /// The guest's block layer shows no request for it.
    NoRequest,
    /// A stack of the guest shows no packet of it.
    NoPacket,
    /// Several packets could be its own.
    Ambiguous,
    /// It lacks a checkpoint that the others have.
    Missing(Checkpoint),
}

/// An operation that was not joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rejected {
    pub begin: u64,
    pub end: u64,
    pub kind: RequestKind,
    pub reason: Reason,
}

/// The joined requests of a trial, and the rejected operations.
#[derive(Clone, Default)]
pub(crate) struct Joined {
    pub requests: Vec<JoinedRequest>,
    pub rejected: Vec<Rejected>,
    pub threads: Vec<QemuThread>,
    /// Of round trips over the network.
    pub packets: Option<PacketCounts>,
    /// Checkpoints that a request may lack although most have them.
    pub may_lack: &'static [Checkpoint],
    /// Where each request is an operation: all that the guest completed.
    pub parts: Vec<GuestRequest>,
}
