//! A virtqueue that is followed: its positions, the requests in flight, and whether it is one at all.

use super::block::{BlockRequest, request};
use super::descriptor::Format;
use super::heads::Heads;
use super::layout::Layout;
use super::memory::Memory;
use super::snapshot::{Fault, Ring, Snapshot};
use std::time::{Duration, Instant};

/// A queue that served fewer requests is not known to be one.
const MIN_REQUESTS: u64 = 100;
/// More of the requests in flight are not read.
const MAX_READ: usize = 64;
/// Samples in which no layout made sense of the requests in flight, after which those of the queue are no longer read: it is no disk's.
const MAX_MISSES: u32 = 16;

/// A virtqueue, as its memory shows it: what the guest's driver and the VMM wrote there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Virtqueue {
    /// Format of the queue.
    pub format: Format,
    /// Number of its descriptors.
    pub size: u32,
    /// Addresses of its three areas as the VMM keeps them, of the guest's memory, or of the VMM's process where it keeps only those.
    pub areas: [u64; 3],
    /// Positions of the driver and of the device, which count the requests modulo 65536, or modulo two laps of a packed queue.
    pub available: u32,
    /// Position of the device.
    pub used: u32,
    /// Requests that the driver made available and that are not used.
    pub in_flight: u32,
    /// Requests of them that came after the VMM last found the queue empty; `None` where the device does not say.
    pub since_empty: Option<u32>,
    /// Requests that the rings and the samples of them show to be served.
    pub served: u64,
    /// True if requests in flight were read as those of a disk on virtio-blk.
    pub is_disk: bool,
    /// Requests in flight, of a disk; `None` where they could not be read as such, or not all are known: those of a packed queue never
    /// are, as a request that is used late leaves its slot to others.
    pub requests: Option<Vec<BlockRequest>>,
    /// Time for which requests were in flight and none was used, and their number at its start.
    pub stall: Option<(Duration, u32)>,
}

/// A queue with what is known from earlier samples.
#[derive(Debug, Clone)]
pub(super) struct Followed {
    ring: Ring,
    areas: [u64; 3],
    /// The layouts by which the VMM's addresses lead to this ring, or all of them where the addresses are the process's.
    layouts: Vec<Layout>,
    heads: Option<Heads>,
    snapshot: Option<Snapshot>,
    requests: Option<Vec<BlockRequest>>,
    served: u64,
    is_disk: bool,
    misses: u32,
    is_contradicted: bool,
    /// Since when no request was used, and the number in flight then.
    still: Option<(Instant, u32)>,
}

impl Followed {
    /// Begins with a queue whose first reading was well-formed.
    pub fn new(ring: Ring, areas: [u64; 3], layouts: Vec<Layout>) -> Followed {
        Followed {
            ring,
            areas,
            layouts,
            heads: None,
            snapshot: None,
            requests: None,
            served: 0,
            is_disk: false,
            misses: 0,
            is_contradicted: false,
            still: None,
        }
    }

    /// Returns true if this is a queue of the format at these addresses.
    pub fn is_at(&self, ring: &Ring) -> bool {
        (self.ring.format, self.ring.areas) == (ring.format, ring.areas)
    }

    /// Forgets what the last sample showed: what happens from now on is not seen.
    pub fn skip(&mut self) {
        (self.still, self.snapshot, self.requests) = (None, None, None);
    }

    /// Reads the queue once more, and its requests unless that is after `until`.
    pub fn sample(&mut self, memory: &dyn Memory, now: Instant, until: Instant) {
        if self.is_contradicted {
            return;
        }
        self.requests = None;
        let snapshot = match self.ring.read(memory) {
            Ok(snapshot) => snapshot,
            Err(Fault::Malformed) => {
                self.is_contradicted = true;
                return;
            }
            Err(Fault::Busy | Fault::NotReadable) => {
                self.skip();
                return;
            }
        };
        self.follow(&snapshot);
        let before = self.snapshot.as_ref().map(|before| before.used);
        let is_still = before == Some(snapshot.used) && snapshot.in_flight() > 0;
        if !is_still || self.still.is_none_or(|(_, lying)| lying == 0) {
            self.still = Some((now, snapshot.in_flight()));
        }
        if !self.is_contradicted && (self.is_disk || self.misses < MAX_MISSES) {
            self.read_requests(memory, &snapshot, until);
        }
        self.snapshot = Some(snapshot);
    }

    /// Counts what was served since the last sample.
    fn follow(&mut self, snapshot: &Snapshot) {
        let size = self.ring.size;
        match (self.ring.format, &mut self.heads) {
            (Format::Split, None) => {
                let heads = Heads::new(size, snapshot);
                self.served = self.served.max(snapshot.used_heads.len() as u64);
                self.is_contradicted = heads.is_err();
                self.heads = heads.ok();
            }
            (Format::Split, Some(heads)) => match heads.advance(snapshot) {
                Ok(served) => self.served += u64::from(served.unwrap_or(0)),
                Err(_) => self.is_contradicted = true,
            },
            (Format::Packed, _) => match &self.snapshot {
                // All its slots were written.
                None => self.served = self.served.max(u64::from(size)),
                Some(before) => {
                    self.served += u64::from(snapshot.distance(before.used, snapshot.used));
                }
            },
        }
    }

    /// Reads the requests in flight, by the layouts that make sense of all of them.
    fn read_requests(&mut self, memory: &dyn Memory, snapshot: &Snapshot, until: Instant) {
        let slots = match (&self.ring.format, &self.heads) {
            (Format::Packed, _) => Some(snapshot.slots.clone()),
            (_, heads) => heads.as_ref().and_then(|heads| heads.in_flight(snapshot)),
        };
        let Some(slots) = slots.filter(|slots| !slots.is_empty()) else {
            return;
        };
        let Ring {
            format,
            size,
            areas: [table, ..],
        } = self.ring;
        let read = |layout: &Layout| -> Option<Vec<BlockRequest>> {
            let slots = slots.iter().take(MAX_READ);
            slots
                .map(|slot| {
                    let is_in_time = Instant::now() < until;
                    let one = || request(memory, layout, format, (table, size), *slot);
                    is_in_time.then(one)?
                })
                .collect()
        };
        let found = self.layouts.iter();
        let found: Vec<(Layout, Vec<BlockRequest>)> = found
            .filter_map(|layout| Some((layout.clone(), read(layout)?)))
            .collect();
        // A request that was used meanwhile may be another one by now.
        let is_unchanged = self
            .ring
            .read(memory)
            .is_ok_and(|now| now.used == snapshot.used);
        if !is_unchanged {
            return;
        }
        let (layouts, mut requests): (Vec<Layout>, Vec<_>) = found.into_iter().unzip();
        if layouts.is_empty() {
            // A page may be out of memory, and a slot of a packed queue that of a request that is used already.
            self.misses = self.misses.saturating_add(1);
            return;
        }
        self.layouts = layouts;
        self.is_disk = true;
        let is_one = requests.windows(2).all(|pair| pair[0] == pair[1]);
        self.requests = requests.pop().filter(|_| is_one && format == Format::Split);
    }

    /// The queue as it was last read; `None` unless that was a queue that has served [`MIN_REQUESTS`] requests, without a contradiction.
    pub fn confirmed(&self, now: Instant) -> Option<Virtqueue> {
        let snapshot = self.snapshot.as_ref().filter(|_| !self.is_contradicted)?;
        let stall = self.still.filter(|(_, lying)| *lying > 0);
        (self.served >= MIN_REQUESTS).then(|| Virtqueue {
            format: self.ring.format,
            size: self.ring.size,
            areas: self.areas,
            available: snapshot.available,
            used: snapshot.used,
            in_flight: snapshot.in_flight(),
            since_empty: snapshot.since_empty(),
            served: self.served,
            is_disk: self.is_disk,
            requests: self
                .requests
                .clone()
                .filter(|requests| requests.len() == snapshot.in_flight() as usize),
            stall: stall.map(|(since, lying)| (now.saturating_duration_since(since), lying)),
        })
    }
}
