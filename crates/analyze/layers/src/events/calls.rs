//! The kinds of QEMU's system calls that the join distinguishes.

use std::borrow::Cow;
use vmtax_trace::{SystemCall as S, system_call, system_call_name};

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
    pub fn of(nr: u32, args: &[u64; 4]) -> CallKind {
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

    /// Where in the file it reads or writes, for the calls that say so.
    pub fn position(self, args: &[u64; 4]) -> Option<u64> {
        let positioned = matches!(
            self.call(),
            Some(S::pread64 | S::pwrite64 | S::preadv | S::pwritev | S::preadv2 | S::pwritev2)
        );
        positioned.then_some(args[3])
    }
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
        let call_kind = |nr, args| CallKind::of(nr, &args);
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
