//! Order of the requests: the file and block of each, and when files are synced.

use crate::sysbench::Random;
use std::sync::{Mutex, PoisonError};

/// Number and size of the files, and the size of their blocks, in bytes.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub files: usize,
    pub file_bytes: u64,
    pub block_bytes: usize,
}

impl Layout {
    /// Bytes of the block at a position of a file.
    pub fn bytes_at(&self, position: u64) -> usize {
        (self.file_bytes - position).min(self.block_bytes as u64) as usize
    }
}

/// Request of one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    Read {
        file: usize,
        position: u64,
        bytes: usize,
    },
    Write {
        file: usize,
        position: u64,
        bytes: usize,
    },
    Fsync {
        file: usize,
    },
}

/// Kinds of requests that a test mode makes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kinds {
    SequentialWrites,
    SequentialReads,
    RandomReads,
    RandomWrites,
    RandomBoth,
}

impl Kinds {
    /// Returns true if the mode writes at all.
    pub fn writes(self) -> bool {
        !matches!(self, Kinds::SequentialReads | Kinds::RandomReads)
    }
}

/// Progress of all threads together.
#[derive(Default)]
struct Progress {
    requests: u64,
    dirty: bool,
    next_synced: usize,
    file: usize,
    position: u64,
}

/// The order of requests, shared by the threads.
pub(super) struct Plan {
    layout: Layout,
    kinds: Kinds,
    fsync_every: u64,
    reads_per_write: f64,
    progress: Mutex<Progress>,
}

impl Plan {
    pub fn new(layout: Layout, kinds: Kinds, fsync_every: u64, reads_per_write: f64) -> Plan {
        Plan {
            layout,
            kinds,
            fsync_every,
            reads_per_write,
            progress: Mutex::default(),
        }
    }

    /// The sync that is due before any other request, if one is.
    fn fsync_due(&self, progress: &mut Progress) -> Option<Request> {
        let due =
            self.fsync_every > 0 && progress.dirty && progress.requests % self.fsync_every == 0;
        due.then(|| {
            let file = progress.next_synced;
            progress.next_synced = (file + 1) % self.layout.files;
            // All synced: the next round waits for another write.
            progress.dirty = progress.next_synced != 0;
            Request::Fsync { file }
        })
    }
}

/// One thread's view of the plan.
pub(super) struct Requests<'a> {
    plan: &'a Plan,
    random: Random,
    reads: u64,
    writes: u64,
}

impl Requests<'_> {
    pub fn of_thread(plan: &Plan, thread: u32) -> Requests<'_> {
        Requests {
            plan,
            random: Random::of_thread(thread),
            reads: 0,
            writes: 0,
        }
    }

    /// The next request; each thread keeps the ratio of reads to writes by itself.
    pub fn next(&mut self) -> Request {
        let plan = self.plan;
        let mut progress = plan.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let write = match plan.kinds {
            Kinds::RandomBoth => {
                (self.reads + 1) as f64 / (self.writes + 1) as f64 >= plan.reads_per_write
            }
            kinds => kinds.writes(),
        };
        // Sequential reads never find anything dirty, so the order of these two does not matter to them.
        if let Some(fsync) = plan.fsync_due(&mut progress) {
            return fsync;
        }
        progress.requests += 1;
        progress.dirty |= write;
        let (file, position) = match plan.kinds {
            Kinds::SequentialReads | Kinds::SequentialWrites => plan.advance(&mut progress),
            _ => {
                drop(progress);
                self.draw()
            }
        };
        let bytes = plan.layout.bytes_at(position);
        if write {
            self.writes += 1;
            Request::Write {
                file,
                position,
                bytes,
            }
        } else {
            self.reads += 1;
            Request::Read {
                file,
                position,
                bytes,
            }
        }
    }

    /// A block boundary drawn uniformly from all files laid end to end.
    fn draw(&mut self) -> (usize, u64) {
        let layout = self.plan.layout;
        let anywhere = self.random.below(layout.file_bytes * layout.files as u64);
        let block = anywhere - anywhere % layout.block_bytes as u64;
        (
            (block / layout.file_bytes) as usize,
            block % layout.file_bytes,
        )
    }
}

impl Plan {
    fn advance(&self, progress: &mut Progress) -> (usize, u64) {
        let here = (progress.file, progress.position);
        progress.position += self.layout.bytes_at(here.1) as u64;
        if progress.position == self.layout.file_bytes {
            progress.position = 0;
            progress.file = (progress.file + 1) % self.layout.files;
        }
        here
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout {
        files: 4,
        file_bytes: 10_000,
        block_bytes: 4096,
    };

    fn first(n: usize, kinds: Kinds, fsync_every: u64, ratio: f64) -> Vec<Request> {
        first_of(LAYOUT, n, kinds, fsync_every, ratio)
    }

    fn first_of(
        layout: Layout,
        n: usize,
        kinds: Kinds,
        fsync_every: u64,
        ratio: f64,
    ) -> Vec<Request> {
        let plan = Plan::new(layout, kinds, fsync_every, ratio);
        let mut requests = Requests::of_thread(&plan, 0);
        (0..n).map(|_| requests.next()).collect()
    }

    fn counts(requests: &[Request]) -> (usize, usize, usize) {
        requests
            .iter()
            .fold((0, 0, 0), |(r, w, f), request| match request {
                Request::Read { .. } => (r + 1, w, f),
                Request::Write { .. } => (r, w + 1, f),
                Request::Fsync { .. } => (r, w, f + 1),
            })
    }

    #[test]
    fn syncs_come_as_in_sysbench() {
        // Observed with sysbench 1.0.20: 4 files, rndwr and seqwr, 1000 events: 964 writes and 36 periodic syncs.
        for kinds in [Kinds::RandomWrites, Kinds::SequentialWrites] {
            assert_eq!(counts(&first(1000, kinds, 100, 1.5)), (0, 964, 36));
        }
        let writes = first(1000, Kinds::RandomWrites, 100, 1.5);
        assert!(
            writes[..100]
                .iter()
                .all(|r| matches!(r, Request::Write { .. }))
        );
        let synced: Vec<_> = writes[100..104].to_vec();
        assert_eq!(
            synced,
            (0..4)
                .map(|file| Request::Fsync { file })
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn reads_alone_and_frequency_zero_never_sync() {
        assert_eq!(counts(&first(1000, Kinds::RandomReads, 100, 1.5)).2, 0);
        assert_eq!(counts(&first(1000, Kinds::SequentialReads, 1, 1.5)).2, 0);
        assert_eq!(
            counts(&first(1000, Kinds::RandomWrites, 0, 1.5)),
            (0, 1000, 0)
        );
    }

    #[test]
    fn the_ratio_of_reads_to_writes_holds() {
        for ratio in [0.0, 0.5, 1.0, 1.5, 9.0] {
            let (reads, writes, _) = counts(&first(10_000, Kinds::RandomBoth, 0, ratio));
            let expected = 10_000.0 * ratio / (1.0 + ratio);
            assert!(
                (reads as f64 - expected).abs() < 10.0,
                "{ratio}: {reads} reads, {writes} writes"
            );
        }
    }

    #[test]
    fn sequences_cover_every_byte_in_order_and_start_again() {
        let round: Vec<_> = (0..4)
            .flat_map(|file| [(0, 4096), (4096, 4096), (8192, 1808)].map(|(at, n)| (file, at, n)))
            .collect();
        let seen: Vec<_> = first(24, Kinds::SequentialReads, 0, 0.0)
            .into_iter()
            .map(|r| match r {
                Request::Read {
                    file,
                    position,
                    bytes,
                } => (file, position, bytes),
                other => unreachable!("{other:?}"),
            })
            .collect();
        assert_eq!(seen, [round.clone(), round].concat());
    }

    #[test]
    fn random_requests_stay_inside_and_reach_every_file() {
        for file_bytes in [10_000, 4096, 1 << 20] {
            let layout = Layout {
                file_bytes,
                ..LAYOUT
            };
            let mut files = [0u32; 4];
            for request in first_of(layout, 4000, Kinds::RandomReads, 0, 0.0) {
                let Request::Read {
                    file,
                    position,
                    bytes,
                } = request
                else {
                    unreachable!("{request:?}")
                };
                assert!(bytes > 0 && position + bytes as u64 <= file_bytes);
                files[file] += 1;
            }
            // Files that are no multiple of a block share blocks unevenly, as in sysbench.
            let tolerance = if file_bytes % 4096 == 0 { 120 } else { 350 };
            assert!(
                files.iter().all(|n| n.abs_diff(1000) < tolerance),
                "{file_bytes}: {files:?}"
            );
        }
    }
}
