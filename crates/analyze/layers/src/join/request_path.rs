//! The checkpoints that a request passed, and who made it.

use vmtax_model::Checkpoint;
use vmtax_trace::Moment;

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

    /// The checkpoints passed, in the order of the path.
    pub fn marks(&self) -> impl DoubleEndedIterator<Item = (Checkpoint, u64, PassedBy)> + '_ {
        Checkpoint::ALL
            .into_iter()
            .filter_map(|s| self.marks[s as usize].map(|(at, by)| (s, at, by)))
    }

    /// Returns true if the checkpoints follow each other, as well as clocks can tell that agree within `bound` ticks.
    pub fn in_order(&self, bound: u64) -> bool {
        let mut latest = 0;
        self.marks().all(|(_, at, _)| {
            latest = latest.max(at);
            at.saturating_add(bound) >= latest
        })
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
