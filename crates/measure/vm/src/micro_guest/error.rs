use crate::micro_guest::layout::{KEY, MAX_BLOCK, MAX_COUNT, MAX_FRAME, RAM_BYTES, SECTOR};
use crate::micro_guest::{Failure, State};

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
