//! The names of the system calls that QEMU makes, and what each means to a request.

/// x86-64's numbers (`arch/x86/entry/syscalls/syscall_64.tbl`) of those that QEMU's threads are seen to make.
const NAMES: &[(u32, &str)] = &[
    (0, "read"),
    (1, "write"),
    (3, "close"),
    (7, "poll"),
    (8, "lseek"),
    (9, "mmap"),
    (10, "mprotect"),
    (11, "munmap"),
    (14, "rt_sigprocmask"),
    (16, "ioctl"),
    (17, "pread64"),
    (18, "pwrite64"),
    (19, "readv"),
    (20, "writev"),
    (23, "select"),
    (24, "sched_yield"),
    (28, "madvise"),
    (35, "nanosleep"),
    (44, "sendto"),
    (45, "recvfrom"),
    (46, "sendmsg"),
    (47, "recvmsg"),
    (56, "clone"),
    (60, "exit"),
    (72, "fcntl"),
    (74, "fsync"),
    (75, "fdatasync"),
    (128, "rt_sigtimedwait"),
    (202, "futex"),
    (208, "io_getevents"),
    (209, "io_submit"),
    (228, "clock_gettime"),
    (230, "clock_nanosleep"),
    (232, "epoll_wait"),
    (233, "epoll_ctl"),
    (234, "tgkill"),
    (270, "pselect6"),
    (271, "ppoll"),
    (277, "sync_file_range"),
    (281, "epoll_pwait"),
    (285, "fallocate"),
    (286, "timerfd_settime"),
    (288, "accept4"),
    (295, "preadv"),
    (296, "pwritev"),
    (327, "preadv2"),
    (328, "pwritev2"),
    (333, "io_pgetevents"),
    (426, "io_uring_enter"),
    (435, "clone3"),
    (441, "epoll_pwait2"),
];

const IOCTL: u32 = 16;
const FUTEX: u32 = 202;
const IO_SUBMIT: u32 = 209;
const IO_URING_ENTER: u32 = 426;
/// `linux/kvm.h`.
const KVM_RUN: u64 = 0xae80;
const KVM_IRQ_LINE: u64 = 0x4008_ae61;
const KVM_IRQ_LINE_STATUS: u64 = 0xc008_ae67;
const KVM_SIGNAL_MSI: u64 = 0x4020_aea5;

/// A kind of system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Run,
    IrqLine,
    Msi,
    Lock,
    Other(u32),
}

impl Kind {
    pub fn of(nr: u32, args: &[u64; 4]) -> Kind {
        // The upper half of an ioctl's request is not the kernel's to read.
        match (nr, args[1] & 0xffff_ffff) {
            (IOCTL, KVM_RUN) => Kind::Run,
            (IOCTL, KVM_IRQ_LINE | KVM_IRQ_LINE_STATUS) => Kind::IrqLine,
            (IOCTL, KVM_SIGNAL_MSI) => Kind::Msi,
            // FUTEX_WAIT is how glibc waits for a mutex; for a condition it uses FUTEX_WAIT_BITSET.
            (FUTEX, op) if op & 0x7f == 0 => Kind::Lock,
            _ => Kind::Other(nr),
        }
    }

    /// For people: "ppoll", "ioctl(KVM_RUN)".
    pub fn name(self) -> String {
        match self {
            Kind::Run => "ioctl(KVM_RUN)".to_owned(),
            Kind::IrqLine => "ioctl(KVM_IRQ_LINE)".to_owned(),
            Kind::Msi => "ioctl(KVM_SIGNAL_MSI)".to_owned(),
            Kind::Lock => "futex(FUTEX_WAIT)".to_owned(),
            Kind::Other(nr) => NAMES
                .binary_search_by_key(&nr, |(nr, _)| *nr)
                .map_or_else(|_| format!("system call {nr}"), |i| NAMES[i].1.to_owned()),
        }
    }

    /// Whether a thread learns from its return that there is something to do: an event loop's wait, or a processor's
    /// run in the guest.
    pub fn waits(self, args: &[u64; 4]) -> bool {
        match self {
            Kind::Run => true,
            Kind::Other(IO_URING_ENTER) => args[2] > 0,
            Kind::Other(nr) => matches!(nr, 7 | 23 | 208 | 232 | 270 | 271 | 281 | 333 | 441),
            Kind::IrqLine | Kind::Msi | Kind::Lock => false,
        }
    }

    /// Whether it hands what was prepared to the kernel, which works on it behind the caller's back.
    pub fn submits(self, args: &[u64; 4]) -> bool {
        match self {
            Kind::Other(IO_SUBMIT) => true,
            Kind::Other(IO_URING_ENTER) => args[1] > 0,
            _ => false,
        }
    }

    /// Whether it has what was written kept, and returns when it is.
    pub fn flushes(self) -> bool {
        matches!(self, Kind::Other(74 | 75))
    }

    /// Where in the file it reads or writes, for the calls that say so.
    pub fn position(self, args: &[u64; 4]) -> Option<u64> {
        matches!(self, Kind::Other(17 | 18 | 295 | 296 | 327 | 328)).then_some(args[3])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_by_number() {
        assert!(NAMES.windows(2).all(|w| w[0].0 < w[1].0));
        assert_eq!(Kind::Other(271).name(), "ppoll");
        assert_eq!(Kind::Other(9999).name(), "system call 9999");
    }

    #[test]
    fn what_calls_are() {
        let of = |nr, args| Kind::of(nr, &args);
        assert_eq!(of(16, [3, 0xae80, 0, 0]), Kind::Run);
        assert_eq!(of(202, [0, 0x80, 2, 0]), Kind::Lock);
        assert_eq!(of(202, [0, 0x89, 2, 0]).name(), "futex");
        assert!(of(426, [3, 0, 1, 0]).waits(&[3, 0, 1, 0]) && !of(426, [3, 1, 0, 0]).waits(&[3, 1, 0, 0]));
        assert_eq!(of(295, [3, 0, 1, 8192]).position(&[3, 0, 1, 8192]), Some(8192));
    }
}
