//! Orders to the micro-guest, as the words of its mailbox; the states that it reports, why an order failed, and errors of
//! those who give orders.

use crate::micro_guest::layout::{
    KEY, MAX_BLOCK, MAX_COUNT, MAX_FRAME, RAM_BYTES, SECTOR, command, completion, words,
};
use vmtax_model::Antipattern;

/// Time limit of the guest for one interrupt of its own: some 20 s, in ticks of any CPU of today.
const EXIT_TIMEOUT: u64 = 1 << 36;

/// An order to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Answer the host's stamps, until one is [`u64::MAX`]: as soon as [`crate::micro_guest::layout::words::HOST_STAMP`]
    /// has changed, the guest writes its own time stamp counter to [`crate::micro_guest::layout::words::GUEST_STAMP`].
    Ping,
    /// Requests to the disk.
    Run(Run),
    /// The cost of one kind of exit.
    Exits {
        /// The kind of exit.
        kind: ExitKind,
        /// Number of exits, 1 to [`MAX_COUNT`].
        count: u32,
    },
    /// An antipattern of guest kernels, or its fix.
    Antipattern {
        /// Antipattern to be measured.
        antipattern: Antipattern,
        /// True for the antipattern's fix.
        fixed: bool,
        /// Number of repetitions, 1 to [`MAX_COUNT`].
        count: u32,
    },
    /// Round trips over the network.
    RoundTrips(RoundTrips),
    /// Power off; QEMU ends with status [`crate::micro_guest::qemu::LEFT`].
    Leave,
}

/// Round trips over the network card, one at a time, of the request at [`crate::micro_guest::layout::FRAME`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTrips {
    /// Number of round trips, 1 to [`MAX_COUNT`].
    pub count: u32,
    /// Bytes of a request with the card's header, up to [`crate::micro_guest::layout::MAX_FRAME`].
    pub bytes: u32,
    /// Time limit for a response, ticks: after it the guest gives up.
    pub timeout: u64,
}

/// Requests to the disk, one at a time. Writes destroy what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Number of requests, 1 to [`MAX_COUNT`].
    pub count: u32,
    /// Bytes of each: a multiple of [`SECTOR`], up to [`MAX_BLOCK`].
    pub block: u32,
    /// Reads or writes.
    pub direction: Direction,
    /// Order in which blocks are accessed.
    pub pattern: Pattern,
    /// Only the first so many sectors of the disk are used; what does not fill a block at their end is not.
    pub sectors: u64,
    /// Method by which the guest detects completion.
    pub completion: Completion,
    /// Time limit for one completion, ticks: after it the guest gives up.
    pub timeout: u64,
}

/// Direction of the data transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the disk.
    Read,
    /// To the disk: [`crate::micro_guest::layout::WRITE_MARK`], the first word of each block its first sector.
    Write,
}

/// Order in which blocks are accessed, beginning again at the end of the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// One after the other.
    Sequential,
    /// Every so many blocks; less than the range has.
    Stride(u64),
    /// Random blocks, drawn uniformly.
    Random {
        /// Seed of the draw: equal seeds draw equal blocks.
        seed: u64,
    },
}

/// Method by which the guest detects that a request is done. It does not sleep meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// It polls the used ring, and asks for no interrupt.
    Polled,
    /// By MSI-X, straight to its local interrupt controller, as Linux has it.
    Msix,
    /// By a PCI interrupt line through the PIC, acknowledged by reading the device's interrupt status: what is left with
    /// `vectors=0`.
    Intx,
}

impl Order {
    /// The words that make the order, with their places; the command among them.
    pub(crate) fn words(&self) -> Result<Vec<(usize, u64)>, MicroError> {
        let (command, count, mut order) = match *self {
            Order::Ping => {
                let stamps = vec![(words::HOST_STAMP, 0), (words::GUEST_STAMP, 0)];
                (command::PING, None, stamps)
            }
            Order::Run(run) => (command::RUN, Some(run.count), run.words()?),
            Order::Exits { kind, count } => (command::EXITS, Some(count), of_kind(kind as u64)),
            Order::Antipattern {
                antipattern,
                fixed,
                count,
            } => {
                let kind = number(antipattern, fixed);
                (command::ANTIPATTERNS, Some(count), of_kind(kind))
            }
            Order::RoundTrips(order) => (command::ROUND_TRIPS, Some(order.count), order.words()?),
            Order::Leave => (command::LEAVE, None, Vec::new()),
        };
        order.push((words::COMMAND, command));
        match count {
            Some(count @ 1..=MAX_COUNT) => order.push((words::HOW_MANY, u64::from(count))),
            Some(count) => return Err(MicroError::BadCount { count }),
            None => {}
        }
        Ok(order)
    }
}

/// The words of an order of one kind, by its number.
fn of_kind(kind: u64) -> Vec<(usize, u64)> {
    vec![(words::KIND, kind), (words::TIMEOUT, EXIT_TIMEOUT)]
}

impl RoundTrips {
    fn words(&self) -> Result<Vec<(usize, u64)>, MicroError> {
        let bytes = self.bytes;
        if bytes as usize <= KEY + size_of::<u64>() || bytes > MAX_FRAME {
            return Err(MicroError::BadFrame { bytes });
        }
        Ok(vec![
            (words::BLOCK, u64::from(bytes)),
            (words::COMPLETION, completion::MSIX),
            (words::SEED, 0),
            (words::TIMEOUT, self.timeout),
        ])
    }
}

impl Run {
    /// Blocks in the range.
    pub(crate) fn blocks(&self) -> u64 {
        self.sectors / u64::from((self.block / SECTOR).max(1))
    }
    fn words(&self) -> Result<Vec<(usize, u64)>, MicroError> {
        let Run { block, sectors, .. } = *self;
        if block == 0 || block % SECTOR != 0 || block > MAX_BLOCK {
            return Err(MicroError::BadBlock { bytes: block });
        }
        let blocks = self.blocks();
        if blocks == 0 || blocks > 1 << 32 {
            return Err(MicroError::BadRange { sectors, block });
        }
        let (stride, seed) = match self.pattern {
            Pattern::Sequential => (1, 0),
            Pattern::Stride(stride) if stride == 0 || stride >= blocks => {
                return Err(MicroError::BadStride { stride, blocks });
            }
            Pattern::Stride(stride) => (stride, 0),
            Pattern::Random { seed } => (0, seed),
        };
        Ok(vec![
            (words::BLOCK, u64::from(block)),
            (
                words::DIRECTION,
                u64::from(self.direction == Direction::Write),
            ),
            (words::COMPLETION, self.completion.word()),
            (words::BLOCKS, blocks),
            (words::STRIDE, stride),
            (words::SEED, seed),
            (words::TIMEOUT, self.timeout),
        ])
    }
}

/// Returns the ROM's number of an antipattern, or of its fix.
pub(crate) const fn number(antipattern: Antipattern, fixed: bool) -> u64 {
    antipattern as u64 * 2 + fixed as u64
}

impl Completion {
    fn word(self) -> u64 {
        match self {
            Completion::Polled => completion::POLLED,
            Completion::Msix => completion::MSIX,
            Completion::Intx => completion::INTX,
        }
    }
}

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

/// The guest's state with regard to the last order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The guest is booting.
    Starting,
    /// Booted, before the first order.
    Ready,
    /// The order is queued or running.
    Running,
    /// The order is done.
    Done,
    /// The order failed. The guest accepts further orders, except after [`Failure::Trap`].
    Failed(Failure),
}

/// Why an order failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// There is no disk.
    #[error(
        "no legacy virtio-blk disk on PCI bus 0: give QEMU `-device virtio-blk-pci,disable-modern=on,…`"
    )]
    NoDisk,
    /// The device has no MSI-X.
    #[error("the device has no MSI-X: leave out `vectors=0`, or choose INTx or polling for a disk")]
    NoMsix,
    /// A queue is too large for the ROM, or there is none.
    #[error(
        "the device's queue has {size} entries: give the device `queue-size=256`, at most 1024"
    )]
    BadQueue {
        /// Number of entries of the queue.
        size: u64,
    },
    /// The disk is smaller than the run's range.
    #[error(
        "the disk has only {sectors} sectors, fewer than the range: use a larger disk or a smaller range"
    )]
    SmallDisk {
        /// Sectors of the disk.
        sectors: u64,
    },
    /// The disk answered a request with an error.
    #[error(
        "request {request} ended with virtio-blk status {status}: see QEMU's log, and check that the disk is writable"
    )]
    Io {
        /// Number of the request, counted from 0.
        request: u64,
        /// 1: error; 2: not supported.
        status: u64,
    },
    /// No completion or interrupt within the timeout.
    #[error(
        "no completion or interrupt {number} within the timeout: check the host's disk or network, or allow more ticks"
    )]
    Timeout {
        /// Number of the completion or interrupt, counted from 0.
        number: u64,
    },
    /// The ROM crashed, or the machine does not support it.
    #[error(
        "exception {vector} at {address:#x}: this machine cannot run the ROM, try `-accel tcg`"
    )]
    Trap {
        /// The exception's number.
        vector: u8,
        /// Address of the exception.
        address: u64,
    },
    /// The local APIC's timer does not run.
    #[error("the local APIC's timer does not run: do not remove the local APIC (`-cpu …,-apic`)")]
    NoTimer,
    /// The local APIC has no x2APIC mode.
    #[error(
        "the local APIC has no x2APIC mode: TCG supports it since QEMU 9.0, KVM with `-cpu …,+x2apic`"
    )]
    NoX2apic,
    /// There is no HPET.
    #[error("the machine has no HPET: give QEMU `-machine hpet=on`")]
    NoHpet,
    /// There is no network card.
    #[error(
        "no legacy virtio-net card on PCI bus 0: give QEMU `-device virtio-net-pci,disable-modern=on,…`"
    )]
    NoCard,
    /// The ROM does not know the order.
    #[error("unknown order: the ROM is of another version")]
    UnknownOrder,
}

/// Errors of the micro-guest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MicroError {
    /// The memory does not have the size of the guest's RAM.
    #[error(
        "the micro-guest's memory has {bytes} bytes instead of {RAM_BYTES}: map the whole file of QEMU's memory backend"
    )]
    WrongMemory {
        /// Length of the memory, bytes.
        bytes: usize,
    },
    /// The order asks for too many, or for nothing.
    #[error("invalid count {count} for the micro-guest: use 1 to {MAX_COUNT}")]
    BadCount {
        /// Count that was ordered.
        count: u32,
    },
    /// A block size that virtio-blk or the guest's buffer does not support.
    #[error("invalid block size of {bytes} bytes: use a multiple of {SECTOR}, up to {MAX_BLOCK}")]
    BadBlock {
        /// Block size that was ordered, bytes.
        bytes: u32,
    },
    /// A request of a round trip without room for its key, or larger than the guest's buffers.
    #[error("invalid frame of {bytes} bytes with its header: use {} to {MAX_FRAME}", KEY + 9)]
    BadFrame {
        /// Size of the frame with its header, bytes.
        bytes: u32,
    },
    /// The range is smaller than one block, or has more than 2^32 blocks.
    #[error(
        "invalid range of {sectors} sectors for blocks of {block} bytes: it must hold 1 to 2^32 blocks"
    )]
    BadRange {
        /// Sectors in the range.
        sectors: u64,
        /// Bytes of a block.
        block: u32,
    },
    /// The stride is 0 or as long as the range.
    #[error(
        "invalid stride of {stride} in a range of {blocks} blocks: use at least 1 and less than the range"
    )]
    BadStride {
        /// Stride that was ordered, in blocks.
        stride: u64,
        /// Blocks in the range.
        blocks: u64,
    },
    /// An order was given before the guest was ready for one.
    #[error("the micro-guest is {state:?}: wait until it is ready or done before the next order")]
    Busy {
        /// State of the guest.
        state: State,
    },
    /// There are no results of this kind.
    #[error(
        "the micro-guest is {state:?} and has no results of {wanted}: give that order and wait until it is done"
    )]
    NotDone {
        /// The kind of result.
        wanted: &'static str,
        /// State of the guest.
        state: State,
    },
    /// The order failed.
    #[error("the micro-guest failed: {0}")]
    Failed(#[from] Failure),
    /// The guest's memory holds values that the ROM never writes: it crashed, or another process wrote to it.
    #[error("the micro-guest's memory is invalid ({what}): start it again with a new memory file")]
    InvalidMemory {
        /// Name and value of the invalid data.
        what: String,
    },
}
