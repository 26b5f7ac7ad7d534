//! One consistent reading of a virtqueue (virtio 1.2, 2.7 and 2.8): how far its driver and its device are.

use super::descriptor::{CHAIN_FLAGS, DESCRIPTOR, Descriptor, Format};
use super::memory::Memory;

/// A queue has at most so many descriptors.
pub(super) const MAX_SIZE: u32 = 1 << 15;
/// The queue may move on while it is read: number of tries.
const TRIES: usize = 8;
/// Bits of a descriptor of a packed queue: made available, used, by the lap of the one who did so.
const AVAILABLE: u16 = 1 << 7;
const USED: u16 = 1 << 15;
/// Bit of the driver's and the device's event area with its lap.
const LAP: u16 = 1 << 15;

/// A virtqueue by its areas' addresses in the VMM's process: descriptors; available ring or driver event area; used ring or device event
/// area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ring {
    pub format: Format,
    /// Number of its descriptors.
    pub size: u32,
    pub areas: [u64; 3],
}

/// Why a queue could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The queue's memory cannot be read now.
    NotReadable,
    /// It moved on each time that it was read.
    Busy,
    /// It is no virtqueue, or none of a known driver.
    Malformed,
}

/// Positions of a virtqueue at one moment. They count on and begin again at `modulus`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub modulus: u32,
    /// Requests that the driver has made available.
    pub available: u32,
    /// Requests that the device has used.
    pub used: u32,
    /// Position at which the device asked for a doorbell when it last found the queue empty; `None` where it does not say.
    pub doorbell_at: Option<u32>,
    /// Heads that were last made available and used, the newest last; of a split queue.
    pub heads: Vec<u16>,
    pub used_heads: Vec<u16>,
    /// The table of a split queue.
    pub table: Vec<Descriptor>,
    /// Slots of a packed queue whose requests are not used.
    pub slots: Vec<u16>,
}

impl Snapshot {
    /// Requests in the queue that are not used.
    pub fn in_flight(&self) -> u32 {
        self.distance(self.used, self.available)
    }

    /// The way from a position to a later one.
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        (to + self.modulus - from) % self.modulus
    }

    /// Requests that were made available since the device last found the queue empty; `None` where it does not say.
    pub fn since_empty(&self) -> Option<u32> {
        let since = self.distance(self.doorbell_at?, self.available);
        (since <= self.in_flight()).then_some(since)
    }
}

impl Ring {
    /// Reads the queue.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn read(&self, memory: &dyn Memory) -> Result<Snapshot, Fault> {
        match self.format {
            Format::Split => self.read_split(memory),
            Format::Packed => self.read_packed(memory),
        }
    }

    fn read_split(&self, memory: &dyn Memory) -> Result<Snapshot, Fault> {
        let [table, available, used] = self.areas;
        let size = u64::from(self.size);
        let number = |address: u64| memory.u16(address).ok_or(Fault::NotReadable);
        let indices = || Ok([number(available + 2)?, number(used + 2)?]);
        if number(available)? > 1 || number(used)? > 1 {
            return Err(Fault::Malformed);
        }
        for _ in 0..TRIES {
            let before = number(used + 2)?;
            let [made, done] = indices()?;
            if before != done {
                continue;
            }
            let mut heads = vec![0; 2 * self.size as usize];
            let mut used_heads = vec![0; 8 * self.size as usize];
            let doorbell_at = number(used + 4 + 8 * size)?;
            let mut descriptors = vec![0; (DESCRIPTOR * size) as usize];
            let is_read = memory.read(table, &mut descriptors)
                && memory.read(available + 4, &mut heads)
                && memory.read(used + 4, &mut used_heads);
            if !is_read {
                return Err(Fault::NotReadable);
            }
            let [made_later, done_later] = indices()?;
            let in_flight = u32::from(made.wrapping_sub(done));
            let newest = |at: u16, later: u16, entry: &dyn Fn(usize) -> Option<u32>| {
                // Entries that were written before, and not again since.
                let overwritten = u32::from(later.wrapping_sub(at));
                let kept = self.size.saturating_sub(overwritten).min(u32::from(at));
                let positions = (1..=kept as u16).rev().map(|back| at.wrapping_sub(back));
                positions
                    .map(|position| entry(usize::from(position) % self.size as usize))
                    .map(|id| u16::try_from(id.filter(|id| *id < self.size)?).ok())
                    .collect::<Option<Vec<u16>>>()
                    .ok_or(Fault::Malformed)
            };
            let half = |bytes: &[u8], at: usize| {
                Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
            };
            let head = |slot: usize| half(&heads, 2 * slot).map(u32::from);
            let used_head = |slot: usize| {
                let bytes = used_heads.get(8 * slot..8 * slot + 4)?;
                Some(u32::from_le_bytes(bytes.try_into().ok()?))
            };
            if in_flight > self.size {
                return Err(Fault::Malformed);
            }
            return Ok(Snapshot {
                modulus: 1 << 16,
                available: u32::from(made),
                used: u32::from(done),
                // A device that does not use the index leaves it 0.
                doorbell_at: Some(u32::from(doorbell_at)).filter(|at| *at != 0),
                heads: newest(made, made_later, &head)?,
                used_heads: newest(done, done_later, &used_head)?,
                table: descriptors
                    .chunks_exact(DESCRIPTOR as usize)
                    .filter_map(|bytes| bytes.try_into().ok())
                    .map(|bytes| Descriptor::of(bytes, Format::Split))
                    .collect(),
                slots: Vec::new(),
            });
        }
        Err(Fault::Busy)
    }

    fn read_packed(&self, memory: &dyn Memory) -> Result<Snapshot, Fault> {
        let [ring, _, device] = self.areas;
        let size = self.size as usize;
        let read = || {
            let mut bytes = vec![0; size * DESCRIPTOR as usize];
            let is_read = memory.read(ring, &mut bytes);
            is_read.then_some(bytes).ok_or(Fault::NotReadable)
        };
        let flags = |bytes: &[u8]| -> Vec<u16> {
            let slots = bytes.chunks_exact(DESCRIPTOR as usize);
            slots
                .map(|slot| u16::from_le_bytes([slot[14], slot[15]]))
                .collect()
        };
        let mut before = flags(&read()?);
        for _ in 0..TRIES {
            let now = flags(&read()?);
            if now != before {
                before = now;
                continue;
            }
            let is_malformed = |flags: &u16| flags & !(AVAILABLE | USED | CHAIN_FLAGS) != 0;
            if now.iter().any(is_malformed) {
                return Err(Fault::Malformed);
            }
            let available = lap_position(&now, AVAILABLE).ok_or(Fault::Malformed)?;
            let used = lap_position(&now, USED).ok_or(Fault::Malformed)?;
            let modulus = 2 * self.size;
            let in_flight = (available + modulus - used) % modulus;
            if in_flight > self.size {
                return Err(Fault::Malformed);
            }
            let event = [memory.u16(device), memory.u16(device + 2)];
            let [Some(position), Some(kind)] = event else {
                return Err(Fault::NotReadable);
            };
            let at = u32::from(position & !LAP);
            let lap = if position & LAP == 0 { self.size } else { 0 };
            let doorbell_at = match kind {
                2 if at < self.size => Some(at + lap),
                0..=2 => None,
                _ => return Err(Fault::Malformed),
            };
            let slots = (0..in_flight).map(|n| ((used + n) % self.size) as u16);
            return Ok(Snapshot {
                modulus,
                available,
                used,
                doorbell_at,
                heads: Vec::new(),
                used_heads: Vec::new(),
                table: Vec::new(),
                slots: slots.collect(),
            });
        }
        Err(Fault::Busy)
    }
}

/// Position of the one who writes a bit of the slots in order, the other way round in each lap: modulo two laps, the first of which
/// writes 1. `None` where the bits are in no such order: of requests with several descriptors each.
fn lap_position(flags: &[u16], bit: u16) -> Option<u32> {
    let first = flags.first()? & bit;
    let end = flags.iter().position(|flags| flags & bit != first);
    let end = end.unwrap_or(flags.len());
    let is_one_lap = flags[end..].iter().all(|flags| flags & bit != first);
    // A full lap is the begin of the next one.
    let size = flags.len();
    let position = if first != 0 { end } else { size + end };
    is_one_lap.then_some((position % (2 * size)) as u32)
}
