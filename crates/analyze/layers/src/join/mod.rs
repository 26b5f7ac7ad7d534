//! From events to requests: each followed through its checkpoints. Here is what all of that works with: the parameters of
//! the search, a request's path, and the result.

pub(crate) mod deferred;
pub(crate) mod joiner;
pub(crate) mod segments;
pub(crate) mod sides;
pub(crate) mod window;

use crate::JoinedRequest;
use crate::disk::GuestRequest;
use vmtax_findings::{PacketCounts, RequestKind};
use vmtax_model::{Checkpoint, QemuThread, Stamped};
use vmtax_trace::Moment;

/// Extent to which the guest shows its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// A kernel that traces.
    Kernel,
    /// The micro-guest: its stamps are its driver's, right before the notification and when it sees the completion.
    Driver,
    /// A kernel that does not trace.
    Blind,
    /// Any guest: its requests are those that QEMU pops and pushes.
    Host,
}

/// An operation of the workload, in host ticks: as it stamped it, or as its system calls show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operation {
    /// From here on its requests are issued.
    pub begin: u64,
    /// From here on its time counts: no earlier than its begin.
    pub counted_from: u64,
    /// Time at which the workload has it back.
    pub end: u64,
    /// Byte offset on the disk, or key of a round trip.
    pub key: u64,
    /// Length on the disk, bytes.
    pub bytes: u64,
}

impl Operation {
    /// Returns the operation of a stamp, about `bytes` of the disk.
    pub fn of_stamp(stamp: &Stamped, bytes: u64) -> Operation {
        Operation {
            begin: stamp.begin,
            counted_from: stamp.begin,
            end: stamp.end,
            key: stamp.key,
            bytes,
        }
    }

    /// Returns the stamp with all of its time.
    pub fn stamp(&self) -> Stamped {
        Stamped {
            begin: self.begin,
            end: self.end,
            key: self.key,
        }
    }

    /// Returns the stamp with the time that counts.
    pub fn counted(&self) -> Stamped {
        Stamped {
            begin: self.counted_from,
            ..self.stamp()
        }
    }
}

/// Parameters of the match: the clocks' error, and conclusions from order alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatchParams {
    pub view: View,
    /// Guest and host ticks agree within this.
    pub bound: u64,
    /// As far as this, an event that identifies a request but lies outside of it shows that the clocks do not agree.
    pub slack: u64,
    /// Never two requests at once: the next event is the request's.
    pub alone: bool,
}

/// Who made a request pass a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PassedBy {
    Guest(Moment),
    /// A thread of QEMU.
    Thread(i32),
    /// The host's kernel, or its disk.
    Host,
    /// Nobody: it lay in a queue.
    Queue,
}

/// The checkpoints of a request, each with who made it pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestPath {
    marks: [Option<(u64, PassedBy)>; Checkpoint::ALL.len()],
    /// The checkpoint behind which it lay in the ring until it was taken from there, without a notification in between.
    pub in_ring: Option<Checkpoint>,
    /// True if the request's begin was observed in the guest's kernel: the interval from there to the next checkpoint
    /// is a part of the path.
    pub begins_in_kernel: bool,
    /// When the workload's last system call before its own stamp returned, if that was not the request's: it was busy
    /// with others when this one had come back.
    pub busy_until: Option<Moment>,
}

impl RequestPath {
    pub fn new() -> Self {
        RequestPath {
            marks: [None; Checkpoint::ALL.len()],
            in_ring: None,
            begins_in_kernel: false,
            busy_until: None,
        }
    }

    pub fn set(&mut self, checkpoint: Checkpoint, at: u64, by: PassedBy) {
        self.marks[checkpoint as usize] = Some((at, by));
    }

    /// Sets a checkpoint that the request passed in the guest at this moment.
    pub fn set_guest(&mut self, checkpoint: Checkpoint, moment: Moment) {
        self.set(checkpoint, moment.at, PassedBy::Guest(moment));
    }

    /// Sets a checkpoint that a thread of the host's made the request pass.
    pub fn set_thread(&mut self, checkpoint: Checkpoint, at: u64, tid: i32) {
        self.set(checkpoint, at, PassedBy::Thread(tid));
    }

    pub fn at(&self, checkpoint: Checkpoint) -> Option<u64> {
        self.marks[checkpoint as usize].map(|(at, _)| at)
    }

    /// When a thread of QEMU made the request pass a checkpoint, and which.
    pub fn thread(&self, checkpoint: Checkpoint) -> Option<(u64, i32)> {
        self.marks[checkpoint as usize].and_then(|(at, by)| match by {
            PassedBy::Thread(tid) => Some((at, tid)),
            PassedBy::Guest(_) | PassedBy::Host | PassedBy::Queue => None,
        })
    }

    /// Moves what was passed before `begin` there: the time before that does not count.
    pub fn not_before(&mut self, begin: u64) {
        for (at, _) in self.marks.iter_mut().flatten() {
            *at = begin.max(*at);
        }
    }

    /// The checkpoints passed, in the order of the path.
    pub fn marks(&self) -> impl DoubleEndedIterator<Item = (Checkpoint, u64, PassedBy)> + '_ {
        Checkpoint::ALL
            .into_iter()
            .filter_map(|s| self.marks[s as usize].map(|(at, by)| (s, at, by)))
    }

    /// Returns the path if the checkpoints follow each other, as well as clocks can tell that agree within `bound` ticks.
    ///
    /// # Errors
    /// [`Reason::Violation`] if they do not.
    pub fn in_order(self, bound: u64) -> Result<RequestPath, Reason> {
        let mut latest = 0;
        let is_in_order = self.marks().all(|(_, at, _)| {
            latest = latest.max(at);
            at.saturating_add(bound) >= latest
        });
        if is_in_order {
            Ok(self)
        } else {
            Err(Reason::Violation)
        }
    }

    /// The first and the last moment of it that is known.
    pub fn span(&self) -> (u64, u64) {
        let times = || self.marks().map(|(_, at, _)| at);
        (times().min().unwrap_or(0), times().max().unwrap_or(0))
    }

    /// The first of these that was passed.
    pub fn first_of(&self, checkpoints: &[Checkpoint]) -> Option<u64> {
        checkpoints.iter().find_map(|s| self.at(*s))
    }
}

/// Why an operation is no joined request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reason {
    /// Events were lost while it was in flight.
    Lost,
    /// Events of the request contradict cause and effect.
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
