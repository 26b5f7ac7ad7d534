use crate::micro_guest::layout::{MAX_BLOCK, MAX_COUNT, RAM_BYTES, SECTOR};
use crate::micro_guest::{Failure, State};

/// What can go wrong with the micro-guest. Each message ends with the next step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MicroError {
    /// The memory that was handed in is not the guest's.
    #[error("the micro-guest's memory has {bytes} bytes, not {RAM_BYTES}: map the whole file that QEMU has as memory")]
    WrongMemory {
        /// Its length.
        bytes: usize,
    },
    /// The order asks for too many, or for nothing.
    #[error("{count} are asked of the micro-guest: ask for 1 to {MAX_COUNT}")]
    BadCount {
        /// As given.
        count: u32,
    },
    /// A block that virtio-blk or the guest's buffer cannot have.
    #[error("a block of {bytes} bytes: give a multiple of {SECTOR}, up to {MAX_BLOCK}")]
    BadBlock {
        /// As given.
        bytes: u32,
    },
    /// The range is smaller than one block, or larger than a draw reaches.
    #[error("blocks of {block} bytes in {sectors} sectors: give room for at least one block, and for at most 2^32")]
    BadRange {
        /// As given.
        sectors: u64,
        /// Bytes of a block.
        block: u32,
    },
    /// The stride leaves the range, or stands still.
    #[error("a stride of {stride} blocks in a range of {blocks}: give 1 or more, less than the range")]
    BadStride {
        /// As given.
        stride: u64,
        /// Blocks in the range.
        blocks: u64,
    },
    /// An order was given before the guest was ready for one.
    #[error("the micro-guest is {state:?}: wait until it is ready or done before the next order")]
    Busy {
        /// How it is.
        state: State,
    },
    /// Results were asked for that are not there.
    #[error("the micro-guest is {state:?}, not done with {wanted}: give that order and wait for its end")]
    NotDone {
        /// What was asked for.
        wanted: &'static str,
        /// How it is.
        state: State,
    },
    /// The guest gave the order up.
    #[error("the micro-guest gave up: {0}")]
    Failed(#[from] Failure),
    /// What the guest wrote cannot be: it may have crashed, or something else wrote to its memory.
    #[error("the micro-guest's {what} cannot be true: start it again, with a new memory file")]
    InvalidMemory {
        /// What is wrong.
        what: String,
    },
}
