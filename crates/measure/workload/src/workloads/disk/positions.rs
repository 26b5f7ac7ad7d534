//! Order of the blocks that requests read or write.

use super::open::OpenDisk;
use super::work::BlockWork;
use fastrand::Rng;

/// The draw is the same in every run and on every machine, as fio's is by default.
const SEED: u64 = 1;

/// Where requests go: byte offsets, multiples of the block.
pub(super) struct Positions {
    block: u64,
    /// Where the last block ends.
    end: u64,
    next: u64,
    random: Option<Rng>,
}

impl Positions {
    pub fn new(work: &BlockWork, disk: &OpenDisk) -> Positions {
        let random = work.random.then(|| Rng::with_seed(SEED));
        Positions {
            block: work.block,
            end: disk.end,
            next: 0,
            random,
        }
    }

    #[inline(always)]
    pub fn next(&mut self) -> u64 {
        if let Some(random) = &mut self.random {
            return random.u64(0..self.end / self.block) * self.block;
        }
        let position = self.next;
        self.next += self.block;
        if self.next == self.end {
            self.next = 0;
        }
        position
    }

    /// The next that is not `taken`, of which there must be one.
    pub fn next_but(&mut self, taken: impl Fn(u64) -> bool) -> u64 {
        loop {
            let position = self.next();
            if !taken(position) {
                return position;
            }
        }
    }
}
