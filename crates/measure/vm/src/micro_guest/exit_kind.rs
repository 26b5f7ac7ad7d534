/// Kind of an operation that makes the CPU leave the guest. Kinds "to user space" touch a port or an address at which
/// nothing answers, so QEMU only finds that out; those "in the kernel" touch the interrupt controllers, which KVM has
/// in the kernel unless QEMU is told otherwise (`kernel-irqchip=`). Under TCG all are QEMU's own code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ExitKind {
    /// None: what the stamps themselves cost.
    Empty,
    /// None, in kernel mode: what the stamps cost there. Where it is far above [`ExitKind::Empty`], this KVM emulates
    /// kernel mode.
    EmptyKernel,
    /// A write to a port, served in user space.
    PioUserWrite,
    /// A read from it.
    PioUserRead,
    /// A write to a port served in the kernel: a register of the PIC.
    PioKernelWrite,
    /// A read from it.
    PioKernelRead,
    /// A write to device memory, served in user space.
    MmioUserWrite,
    /// A read from it.
    MmioUserRead,
    /// A read of the local APIC's version. CPUs with APIC virtualisation do it without an exit.
    MmioKernelRead,
    /// The cpuid instruction.
    Cpuid,
    /// rdmsr of the local APIC's base address.
    Rdmsr,
    /// hlt, and waking up: from the moment for which the local APIC's timer was set, 1 ms ahead (longer than KVM polls
    /// before it sleeps), to the first instruction after. It counts from the earliest moment that may have been meant,
    /// so up to one [`ExitKind::MmioKernelRead`]'s worth of setting the timer is in it.
    Halt,
    /// An interrupt: from the write by which the CPU sends itself one, to its handler.
    Inject,
    /// The end of an interrupt, at the local APIC. CPUs with APIC virtualisation do it without an exit.
    Eoi,
}

impl ExitKind {
    /// All of them, in the order of a report.
    pub const ALL: [ExitKind; 14] = [
        ExitKind::Empty,
        ExitKind::EmptyKernel,
        ExitKind::PioUserWrite,
        ExitKind::PioUserRead,
        ExitKind::PioKernelWrite,
        ExitKind::PioKernelRead,
        ExitKind::MmioUserWrite,
        ExitKind::MmioUserRead,
        ExitKind::MmioKernelRead,
        ExitKind::Cpuid,
        ExitKind::Rdmsr,
        ExitKind::Halt,
        ExitKind::Inject,
        ExitKind::Eoi,
    ];

    /// Returns true if the timed code runs in kernel mode (CPL 0): a KVM that emulates kernel mode measures its
    /// emulator here. All other kinds run in user mode.
    pub const fn in_kernel_mode(self) -> bool {
        matches!(
            self,
            ExitKind::EmptyKernel | ExitKind::Rdmsr | ExitKind::Halt
        )
    }

    /// Returns the name of the kind in reports.
    pub const fn label(self) -> &'static str {
        match self {
            ExitKind::Empty => "no exit",
            ExitKind::EmptyKernel => "no exit, kernel mode",
            ExitKind::PioUserWrite => "port write, user space",
            ExitKind::PioUserRead => "port read, user space",
            ExitKind::PioKernelWrite => "port write, kernel",
            ExitKind::PioKernelRead => "port read, kernel",
            ExitKind::MmioUserWrite => "MMIO write, user space",
            ExitKind::MmioUserRead => "MMIO read, user space",
            ExitKind::MmioKernelRead => "MMIO read, kernel",
            ExitKind::Cpuid => "cpuid",
            ExitKind::Rdmsr => "rdmsr",
            ExitKind::Halt => "hlt and wake-up",
            ExitKind::Inject => "interrupt injection",
            ExitKind::Eoi => "end of interrupt",
        }
    }
}
