//! The layers of a disk's requests as published tables nest them.

use crate::request::JoinedRequest;
use vmtax_model::Checkpoint;

/// A layer's entry and exit: the first of each that a request has.
pub(crate) struct Level {
    pub label: &'static str,
    enter: &'static [Checkpoint],
    leave: &'static [Checkpoint],
}

/// From the outermost to the innermost, after the KVM wiki's page on virtio-blk latency (2010).
pub(crate) const LEVELS: [Level; 5] = {
    use Checkpoint as S;
    [
        Level {
            label: "guest benchmark",
            enter: &[S::Begin],
            leave: &[S::End],
        },
        Level {
            label: "guest virtio",
            enter: &[S::GuestNotify, S::GuestIssue],
            leave: &[S::GuestInterrupt, S::GuestComplete],
        },
        Level {
            label: "KVM",
            enter: &[S::KvmNotify],
            leave: &[S::Inject],
        },
        Level {
            label: "QEMU virtio",
            enter: &[S::QemuWake, S::QemuPop],
            leave: &[S::QemuNotify, S::QemuPush],
        },
        Level {
            label: "QEMU AIO",
            enter: &[S::HostCall],
            leave: &[S::QemuReap, S::HostComplete, S::QemuPush],
        },
    ]
};

impl Level {
    /// Returns the time that a request was in the layer and below, in ticks; `None` if the request lacks the entry or
    /// the exit.
    pub fn ticks(&self, request: &JoinedRequest) -> Option<u64> {
        let first = |checkpoints: &[Checkpoint]| checkpoints.iter().find_map(|s| request.at(*s));
        first(self.leave)?.checked_sub(first(self.enter)?)
    }
}
