//! Addresses of virtqueues in a VMM's own memory. A VMM keeps the three addresses that the guest's driver gave it beside each other, in the
//! order of the registers they were written to, and forgets them when the device is reset. So no queue of a firmware, or of a
//! kernel that no longer runs, is taken for one that is served.

use super::descriptor::{DESCRIPTOR, Format};
use super::memory::{Memory, PAGE, Range};
use super::snapshot::MAX_SIZE;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Bytes that are read at a time.
const CHUNK: u64 = 1 << 20;
/// Bytes of a record without its last word.
const OVERLAP: u64 = 16;
/// More memory than this is not searched.
const MAX_BYTES: u64 = 1 << 30;
/// The search ends after this.
const MAX_TIME: Duration = Duration::from_secs(2);
/// More of a format are not followed.
const MAX_RECORDS: usize = 1 << 12;
/// Alignments that drivers give the used ring of a split queue: what the standard demands, a cache line, a page.
const ALIGNMENTS: [u64; 3] = [4, 64, PAGE];

/// Three addresses that may be a queue's, of the guest or of the process, with the number of its descriptors, where they tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Record {
    pub format: Format,
    pub size: Option<u32>,
    pub areas: [u64; 3],
}

/// Extent of a search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Searched {
    /// Memory of the VMM that was read, bytes.
    pub bytes: u64,
    /// Time that it took.
    pub time: Duration,
    /// False if a limit ended the search before its end.
    pub is_complete: bool,
}

/// Searches these mappings for records.
pub(super) fn search(memory: &dyn Memory, mappings: &[Range]) -> (BTreeSet<Record>, Searched) {
    let begun = Instant::now();
    let mut found = BTreeSet::new();
    let (mut splits, mut packed) = (0, 0);
    let mut searched = Searched {
        is_complete: true,
        ..Searched::default()
    };
    let chunks = mappings.iter().flat_map(present_chunks(memory));
    for chunk in chunks {
        if begun.elapsed() > MAX_TIME || searched.bytes >= MAX_BYTES {
            searched.is_complete = false;
            break;
        }
        let mut bytes = vec![0; chunk.length as usize];
        if memory.read(chunk.start, &mut bytes) {
            searched.bytes += chunk.length;
            for record in records(&bytes) {
                // Other words are taken for addresses of packed queues by the thousand, and must not hide split ones.
                let of_format = match record.format {
                    Format::Split => &mut splits,
                    Format::Packed => &mut packed,
                };
                if *of_format < MAX_RECORDS {
                    *of_format += usize::from(found.insert(record));
                } else {
                    searched.is_complete = false;
                }
            }
        }
    }
    searched.time = begun.elapsed();
    (found, searched)
}

/// The runs of pages of a mapping that are in memory, in pieces.
fn present_chunks(memory: &dyn Memory) -> impl Fn(&Range) -> Vec<Range> {
    |mapping| {
        let pieces = (0..mapping.length.min(MAX_BYTES).div_ceil(CHUNK)).map(|n| Range {
            start: mapping.start.saturating_add(n * CHUNK),
            length: CHUNK.min(mapping.length - n * CHUNK),
        });
        let mut runs: Vec<Range> = Vec::new();
        for piece in pieces {
            let mut address = piece.start;
            for present in memory.present(piece) {
                let length = PAGE.min(piece.start + piece.length - address);
                let is_next = |run: &&mut Range| {
                    run.start + run.length == address && run.length + length <= CHUNK
                };
                match runs.last_mut().filter(is_next).filter(|_| present) {
                    Some(run) => run.length += length,
                    None if present => {
                        let is_behind = |run: &Range| run.start + run.length == address;
                        // A record may begin in the run before.
                        let overlap = if runs.last().is_some_and(is_behind) {
                            OVERLAP
                        } else {
                            0
                        };
                        runs.push(Range {
                            start: address - overlap,
                            length: length + overlap,
                        });
                    }
                    None => {}
                }
                address += length;
            }
        }
        runs
    }
}

/// The records among these bytes.
fn records(bytes: &[u8]) -> Vec<Record> {
    let (mut first, mut second) = (0, 0);
    let mut found = Vec::new();
    for word in bytes.chunks_exact(8) {
        let third = word.try_into().map_or(0, u64::from_le_bytes);
        // Most words are no address of a table.
        if first != 0 && first % DESCRIPTOR == 0 {
            let areas = [first, second, third];
            found.extend([split(areas), packed(areas)].into_iter().flatten());
        }
        (first, second) = (second, third);
    }
    found
}

/// The split queue that has its areas at these addresses, one behind the other as drivers lay them out.
fn split(areas: [u64; 3]) -> Option<Record> {
    let [descriptors, driver, device] = areas;
    let table = driver.wrapping_sub(descriptors);
    let entries = table / DESCRIPTOR;
    let is_table = table % DESCRIPTOR == 0
        && entries.is_power_of_two()
        && (2..=u64::from(MAX_SIZE)).contains(&entries);
    if !is_table {
        return None;
    }
    let end = driver.checked_add(6 + 2 * entries)?;
    let mut alignments = ALIGNMENTS.iter();
    let is_split = alignments.any(|align| end.checked_next_multiple_of(*align) == Some(device));
    is_split.then_some(Record {
        format: Format::Split,
        size: Some(entries as u32),
        areas,
    })
}

/// The packed queue that has its areas in these pages.
fn packed(areas: [u64; 3]) -> Option<Record> {
    let [first, second, third] = areas;
    let are_pages = areas.iter().all(|area| *area != 0 && area % PAGE == 0);
    let is_packed = are_pages && first != second && first != third && second != third;
    is_packed.then_some(Record {
        format: Format::Packed,
        size: None,
        areas,
    })
}

impl Record {
    /// Bytes of the three areas; of a packed queue's descriptors those of the least number.
    pub fn lengths(&self) -> [u64; 3] {
        match self.size.map(u64::from) {
            Some(size) => [DESCRIPTOR * size, 6 + 2 * size, 6 + 8 * size],
            None => [2 * DESCRIPTOR, 4, 4],
        }
    }
}
