//! From records of both kernels and of QEMU to events on one clock, independent of file formats and kernel versions.

pub(crate) mod calls;
pub(crate) mod clocks;
pub(crate) mod decode;
pub(crate) mod trace_reader;

use vmtax_model::{Checkpoint, EventKind, RequestKind};
use vmtax_trace::{Moment, Packet, Sched};

/// Both the kernel's block events and QEMU give places on a disk in sectors of this, whatever the disk's own are.
pub(crate) const SECTOR: u64 = 512;

/// Something that happened, on either side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Event<W> {
    /// When, host ticks.
    pub at: u64,
    /// On which CPU: of the guest for what the guest traced.
    pub cpu: u32,
    /// The task that was current, of the kernel that traced.
    pub tid: i32,
    /// In an interrupt, so that the current task has nothing to do with it.
    pub interrupt: bool,
    /// Mechanism by which the kernel recorded the event.
    pub kind: EventKind,
    /// Content of the event.
    pub what: W,
}

impl<W> Event<W> {
    pub fn moment(&self) -> Moment {
        Moment {
            at: self.at,
            cpu: self.cpu,
            tid: self.tid,
            interrupt: self.interrupt,
        }
    }
}

/// A moment of which nothing but the time is known.
pub(crate) fn moment_at(at: u64) -> Moment {
    Moment {
        at,
        cpu: 0,
        tid: 0,
        interrupt: false,
    }
}

/// Event that the guest's kernel traced. Block requests are those of the measured disk alone, system calls those of
/// the workload, interrupts the disk's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum GuestEvent {
    Sched(Sched),
    Enter,
    Exit,
    /// The block layer takes a request in that has to wait: where it is.
    Insert {
        offset: u64,
    },
    /// The block layer hands a request to the driver: bytes of the disk, or [`crate::disk::request::NOWHERE`].
    Issue {
        offset: u64,
        bytes: u64,
        kind: RequestKind,
    },
    Complete {
        offset: u64,
    },
    /// A request, or several, pass a checkpoint.
    Passes(Checkpoint),
    /// A packet passes a checkpoint.
    Packet(Checkpoint, Packet),
    /// Something that no request needs, but that took time to record.
    Other,
}

/// Event that the host's kernel traced. System calls and probes are those of QEMU's threads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum HostEvent {
    Sched(Sched),
    Enter {
        nr: u32,
        args: [u64; 4],
    },
    Exit,
    /// A wait for work returns: of an event loop, or of a vCPU's run in the guest.
    Woke,
    /// A request, or several, pass a checkpoint.
    Passes(Checkpoint, Mark),
    /// A packet passes a checkpoint.
    Packet(Checkpoint, Packet),
    /// A request, or several, pass a checkpoint in the host's block layer: bytes of the host's device.
    OnDevice(Checkpoint, Mark),
    /// Something that no request needs, but that took time to record.
    Other,
}

/// Data that an event has about its request; `None` where it has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// QEMU's address for it; no other has it from pop to push.
    pub address: Option<u64>,
    /// Kind of the request, if its header tells.
    pub kind: Option<RequestKind>,
    /// Where on the disk it is, if it is the disk's: other devices' requests have anything there.
    pub offset: Option<u64>,
    /// Length in bytes, perhaps of several requests that were merged; 1 if it is not known.
    pub bytes: u64,
    /// QEMU's address for its virtqueue.
    pub queue: Option<u64>,
    /// Beginning of a packet's payload: the key of a round trip over the network.
    pub round_trip: Option<u64>,
}

impl Mark {
    pub fn range(offset: u64, bytes: u64) -> Mark {
        Mark {
            offset: Some(offset),
            bytes,
            ..Mark::default()
        }
    }

    pub fn covers(&self, offset: u64) -> bool {
        self.offset
            .and_then(|from| offset.checked_sub(from))
            .is_some_and(|into| into < self.bytes)
    }

    pub fn overlaps(&self, offset: u64, bytes: u64) -> bool {
        self.offset.is_some_and(|from| {
            offset < from.saturating_add(self.bytes) && from < offset.saturating_add(bytes)
        })
    }
}
