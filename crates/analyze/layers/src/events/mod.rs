//! From records of both kernels and of QEMU to events on one clock, independent of file formats and kernel versions. Here are
//! the events, and the kinds of QEMU's system calls that the join distinguishes.

pub(crate) mod clocks;
pub(crate) mod decode;

use std::borrow::Cow;
use vmtax_findings::RequestKind;
use vmtax_model::{Checkpoint, EventKind};
use vmtax_trace::{Moment, Packet, Sched, SystemCall as S, system_call, system_call_name};

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
    Enter {
        nr: u32,
        args: [u64; 4],
    },
    Exit,
    /// The block layer takes a request in that has to wait: where it is.
    Insert {
        offset: u64,
    },
    /// The block layer hands a request to the driver: bytes of the disk, or [`crate::disk::NOWHERE`].
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
    /// An interrupt is left to a worker of the kernel: the work's address.
    InterruptQueued(u64),
    /// A worker of the kernel delivers an interrupt that a thread, not only of this VM, had left to it.
    InterruptBegun(u64),
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

/// Request numbers of `ioctl`, from `linux/kvm.h`.
const KVM_RUN: u64 = 0xae80;
const KVM_IRQ_LINE: u64 = 0x4008_ae61;
const KVM_IRQ_LINE_STATUS: u64 = 0xc008_ae67;
const KVM_SIGNAL_MSI: u64 = 0x4020_aea5;

/// A kind of system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum CallKind {
    Run,
    IrqLine,
    Msi,
    Lock,
    Other(u32),
}

impl CallKind {
    pub fn from_call(nr: u32, args: &[u64; 4]) -> CallKind {
        // The upper half of an ioctl's request is not the kernel's to read.
        match (system_call(nr.into()), args[1] & 0xffff_ffff) {
            (Some(S::ioctl), KVM_RUN) => CallKind::Run,
            (Some(S::ioctl), KVM_IRQ_LINE | KVM_IRQ_LINE_STATUS) => CallKind::IrqLine,
            (Some(S::ioctl), KVM_SIGNAL_MSI) => CallKind::Msi,
            // FUTEX_WAIT is how glibc waits for a mutex; for a condition it uses FUTEX_WAIT_BITSET.
            (Some(S::futex), op) if op & 0x7f == 0 => CallKind::Lock,
            _ => CallKind::Other(nr),
        }
    }

    /// Returns the name of the call: "ppoll", "ioctl(KVM_RUN)".
    pub fn name(self) -> Cow<'static, str> {
        match self {
            CallKind::Run => "ioctl(KVM_RUN)".into(),
            CallKind::IrqLine => "ioctl(KVM_IRQ_LINE)".into(),
            CallKind::Msi => "ioctl(KVM_SIGNAL_MSI)".into(),
            CallKind::Lock => "futex(FUTEX_WAIT)".into(),
            CallKind::Other(nr) => system_call_name(nr.into()),
        }
    }

    /// The system call, of those that are no special form of one.
    fn call(self) -> Option<S> {
        match self {
            CallKind::Other(nr) => system_call(nr.into()),
            CallKind::Run | CallKind::IrqLine | CallKind::Msi | CallKind::Lock => None,
        }
    }

    /// Returns true if the call's return tells a thread that there is work: an event loop's wait, or a vCPU's run in
    /// the guest.
    pub fn waits(self, args: &[u64; 4]) -> bool {
        match self.call() {
            Some(S::io_uring_enter) => args[2] > 0,
            Some(call) if is_wait(call) => true,
            _ => self == CallKind::Run,
        }
    }

    /// Returns true if the call hands prepared requests to the kernel, which works on them while the caller goes on.
    pub fn submits(self, args: &[u64; 4]) -> bool {
        match self.call() {
            Some(S::io_submit) => true,
            Some(S::io_uring_enter) => args[1] > 0,
            _ => false,
        }
    }

    /// Returns true if the call makes written data durable, and returns when that is done.
    pub fn flushes(self) -> bool {
        matches!(self.call(), Some(S::fsync | S::fdatasync))
    }

    /// Returns the kind of request that the call makes of a file, and completes before it returns; `None` for other calls.
    pub fn transfers(self) -> Option<RequestKind> {
        match self.call()? {
            S::pread64 | S::preadv | S::preadv2 => Some(RequestKind::Read),
            S::pwrite64 | S::pwritev | S::pwritev2 => Some(RequestKind::Write),
            S::fsync | S::fdatasync => Some(RequestKind::Flush),
            _ => None,
        }
    }

    /// Returns true if the call writes to a file where that is, as to a tap.
    pub fn writes(self) -> bool {
        matches!(self.call(), Some(S::write | S::writev))
    }

    /// Where in the file it reads or writes, for the calls that say so.
    pub fn position(self, args: &[u64; 4]) -> Option<u64> {
        let positioned = matches!(
            self.call(),
            Some(S::pread64 | S::pwrite64 | S::preadv | S::pwritev | S::preadv2 | S::pwritev2)
        );
        positioned.then_some(args[3])
    }
}

/// Returns true if an argument of a system call is one of these descriptors.
pub(crate) fn is_one_of(descriptors: &[i32], argument: u64) -> bool {
    let mut all = descriptors.iter();
    all.any(|descriptor| u64::try_from(*descriptor) == Ok(argument))
}

/// Returns true if a system call is an event loop's wait for work.
pub(crate) fn is_wait(call: S) -> bool {
    matches!(
        call,
        S::poll
            | S::ppoll
            | S::select
            | S::pselect6
            | S::epoll_wait
            | S::epoll_pwait
            | S::epoll_pwait2
            | S::io_getevents
            | S::io_pgetevents
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_calls_are() {
        let call_kind = |nr, args| CallKind::from_call(nr, &args);
        assert_eq!(call_kind(16, [3, 0xae80, 0, 0]), CallKind::Run);
        assert_eq!(call_kind(202, [0, 0x80, 2, 0]), CallKind::Lock);
        assert_eq!(call_kind(202, [0, 0x89, 2, 0]).name(), "futex");
        assert_eq!(call_kind(9999, [0; 4]).name(), "syscall 9999");
        assert!(
            call_kind(426, [3, 0, 1, 0]).waits(&[3, 0, 1, 0])
                && !call_kind(426, [3, 1, 0, 0]).waits(&[3, 1, 0, 0])
        );
        assert_eq!(
            call_kind(295, [3, 0, 1, 8192]).position(&[3, 0, 1, 8192]),
            Some(8192)
        );
    }
}
