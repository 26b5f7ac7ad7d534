//! The micro-guest's states, why an order failed, and errors of those who give orders.

use super::layout::{KEY, MAX_BLOCK, MAX_COUNT, MAX_FRAME, RAM_BYTES, SECTOR};

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
