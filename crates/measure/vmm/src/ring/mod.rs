//! Virtqueues of any running VM, read from outside, without its monitor: where they are by the addresses that the VMM keeps in its own
//! memory, and what they hold by the guest's memory. A guest can write anything there: all of it is bounded, and a queue that is not
//! confirmed is not returned.

mod block;
mod descriptor;
mod heads;
mod layout;
mod memory;
mod queue;
mod records;
mod snapshot;
#[cfg(test)]
mod tests;

pub use block::{BlockRequest, Operation};
pub use descriptor::Format;
pub use queue::Virtqueue;
pub use records::Searched;

use crate::kvm::holders::{guest_mappings, maps, own_mappings};
use descriptor::DESCRIPTOR;
use layout::Layout;
use memory::{Bytes, Memory, ProcessMemory, Range};
use queue::Followed;
use records::{Record, search};
use snapshot::{Fault, Ring};
use std::io;
use std::time::{Duration, Instant};

/// More queues of a VM are not followed.
const MAX_QUEUES: usize = 512;
/// A sample of all queues takes no longer, whatever a guest wrote.
const MAX_SAMPLE: Duration = Duration::from_millis(20);
/// Records that the search found are checked no longer than this.
const MAX_CHECKS: Duration = Duration::from_secs(1);
/// Numbers of descriptors that a packed queue may have here.
const SMALLEST: u32 = 8;
const LARGEST: u32 = 1024;

/// The virtqueues of a running VM.
#[derive(Debug)]
pub struct Virtqueues {
    memory: ProcessMemory,
    queues: Vec<Followed>,
    searched: Searched,
}

impl Virtqueues {
    /// Searches a VMM's memory for the virtqueues that it serves, and takes a first sample of them. The VM is not stopped, and no page is
    /// read that is not in memory.
    ///
    /// # Errors
    /// [`io::Error`] where the process's memory may not be read: that takes root.
    pub fn find(pid: i32) -> io::Result<Virtqueues> {
        let memory = ProcessMemory::open(pid)?;
        let maps = maps(pid);
        let ranges = |mappings: Vec<(u64, u64)>| -> Vec<Range> {
            let ranges = mappings.into_iter();
            ranges
                .map(|(start, length)| Range { start, length })
                .collect()
        };
        let guest = ranges(guest_mappings(&maps));
        let (queues, searched) = find(&memory, &ranges(own_mappings(&maps)), &guest);
        let mut found = Virtqueues {
            memory,
            queues,
            searched,
        };
        found.sample();
        Ok(found)
    }

    /// Reads all queues once more.
    pub fn sample(&mut self) {
        let now = Instant::now();
        let until = now + MAX_SAMPLE;
        for queue in &mut self.queues {
            match Instant::now() < until {
                true => queue.sample(&self.memory, now, until),
                false => queue.skip(),
            }
        }
    }

    /// The queues that are confirmed, as they were last sampled.
    pub fn confirmed(&self) -> Vec<Virtqueue> {
        confirmed(&self.queues)
    }

    /// Extent of the search.
    pub fn searched(&self) -> Searched {
        self.searched
    }
}

fn confirmed(queues: &[Followed]) -> Vec<Virtqueue> {
    let now = Instant::now();
    let queues = queues.iter();
    queues.filter_map(|queue| queue.confirmed(now)).collect()
}

/// The queues whose addresses are in the VMM's own memory and lead to what may be one in the guest's.
fn find(memory: &dyn Memory, own: &[Range], guest: &[Range]) -> (Vec<Followed>, Searched) {
    let (records, mut searched) = search(memory, own);
    let layouts = Layout::candidates(guest);
    let mut queues: Vec<Followed> = Vec::new();
    let until = Instant::now() + MAX_CHECKS;
    for record in records {
        if Instant::now() > until {
            searched.is_complete = false;
            break;
        }
        for (areas, layouts) in places(&record, &layouts, guest) {
            let Some(ring) = ring(memory, &record, areas) else {
                continue;
            };
            let is_known = queues.iter().any(|known| known.is_at(&ring));
            if !is_known && queues.len() < MAX_QUEUES {
                queues.push(Followed::new(ring, record.areas, layouts));
            }
        }
    }
    (queues, searched)
}

/// Addresses in the process that a record may mean, each with the layouts by which it does.
fn places(record: &Record, layouts: &[Layout], guest: &[Range]) -> Vec<([u64; 3], Vec<Layout>)> {
    let lengths = record.lengths();
    let is_host = |mapping: &Range| {
        let mut areas = record.areas.iter().zip(lengths);
        areas.all(|(area, length)| mapping.has(*area, length))
    };
    if guest.iter().any(is_host) {
        return vec![(record.areas, layouts.to_vec())];
    }
    let mut places: Vec<([u64; 3], Vec<Layout>)> = Vec::new();
    for layout in layouts {
        let [first, second, third] = [0, 1, 2].map(|n| layout.host(record.areas[n], lengths[n]));
        let (Some(first), Some(second), Some(third)) = (first, second, third) else {
            continue;
        };
        let areas = [first, second, third];
        match places.iter_mut().find(|(known, _)| *known == areas) {
            Some((_, known)) => known.push(layout.clone()),
            None => places.push((areas, vec![layout.clone()])),
        }
    }
    places
}

/// The ring at these addresses, if what is there may be one. A packed queue has the largest number of descriptors of which all were
/// written: nothing else shows its end.
fn ring(memory: &dyn Memory, record: &Record, areas: [u64; 3]) -> Option<Ring> {
    let ring = |size: u32| Ring {
        format: record.format,
        size,
        areas,
    };
    if let Some(size) = record.size {
        // One that was never used tells nothing.
        let is_used = memory.u16(areas[1] + 2).is_some_and(|index| index != 0);
        let is_one = || {
            !matches!(
                ring(size).read(memory),
                Err(Fault::Malformed | Fault::NotReadable)
            )
        };
        return (is_used && is_one()).then(|| ring(size));
    }
    let is_written = |slot: &[u8]| slot.iter().any(|byte| *byte != 0);
    let mut slots = [0; (SMALLEST * DESCRIPTOR as u32) as usize];
    // Most records are none.
    let may_be_one = memory.read(areas[0], &mut slots)
        && slots.chunks(DESCRIPTOR as usize).all(is_written)
        && ring(SMALLEST).read(memory).is_ok();
    if !may_be_one {
        return None;
    }
    let mut table = vec![0; LARGEST as usize * DESCRIPTOR as usize];
    let mut found = None;
    let sizes = (0..).map(|shift| SMALLEST << shift);
    for size in sizes.take_while(|size| *size <= LARGEST) {
        let bytes = table.get_mut(..(size * DESCRIPTOR as u32) as usize)?;
        if !memory.read(areas[0], bytes) || !bytes.chunks(DESCRIPTOR as usize).all(is_written) {
            break;
        }
        if !matches!(
            ring(size).read(memory),
            Err(Fault::Malformed | Fault::NotReadable)
        ) {
            found = Some(ring(size));
        }
    }
    found
}

/// Finds and samples virtqueues in bytes, for fuzzing: the memory of a VMM, with the guest's memory from 1 MiB on, before and after
/// it went on. Returns those that are confirmed.
pub fn read_bytes(own: &[u8], before: &[u8], after: &[u8]) -> Vec<Virtqueue> {
    const GUEST: u64 = 1 << 20;
    const OWN: u64 = 1 << 40;
    let range = |start: u64, bytes: &[u8]| Range {
        start,
        length: bytes.len() as u64,
    };
    let memory = |guest: &[u8]| Bytes(vec![(OWN, own.to_vec()), (GUEST, guest.to_vec())]);
    let first = memory(before);
    let (mut queues, _) = find(&first, &[range(OWN, own)], &[range(GUEST, before)]);
    for memory in [first, memory(after)] {
        let now = Instant::now();
        queues
            .iter_mut()
            .for_each(|queue| queue.sample(&memory, now, now + MAX_SAMPLE));
    }
    confirmed(&queues)
}
