//! The requests that are asked for.

use crate::buffer::Buffer;
use crate::error::WorkloadError;
use crate::options::{self, count};
use vmtax_model::{WorkloadName, WorkloadSpec};

/// Less than this and a disk's own cache would hold all of it.
pub(super) const SMALLEST: u64 = 1 << 20;

pub(super) const COUNT: options::OptionInfo = count(
    "count",
    "0",
    0..=u64::MAX,
    "requests after which none starts; 0: no limit",
);

/// Requests that `disk` makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockWork {
    /// Bytes of a request.
    pub block: u64,
    /// Any block, rather than one after the other.
    pub random: bool,
    /// Writes, rather than reads.
    pub write: bool,
    /// Requests under way at a time.
    pub depth: u32,
    /// Nanoseconds after which none starts; 0: no limit.
    pub time_ns: u64,
    /// Requests after which none starts; 0: no limit.
    pub count: u64,
}

impl BlockWork {
    /// The operation's name, for people and in results.
    pub fn operation(&self) -> &'static str {
        if self.write { "write" } else { "read" }
    }

    /// Returns true if another request starts, after `made` requests and `ns` nanoseconds.
    #[inline(always)]
    pub(super) fn goes_on(&self, made: u64, ns: u64) -> bool {
        (self.time_ns == 0 || ns < self.time_ns) && (self.count == 0 || made < self.count)
    }

    pub(super) fn buffer(&self) -> Result<Buffer, WorkloadError> {
        Buffer::new(self.block, WorkloadName::Disk, WorkloadSpec::BLOCK_SIZE)
    }
}
