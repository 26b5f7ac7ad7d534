//! A virtqueue that is followed: its positions, the requests in flight, and whether it is one at all.

use super::block::{BlockRequest, request};
use super::heads::Heads;
use super::layout::Layout;
use super::memory::Memory;
use super::snapshot::{Fault, Format, Ring, Snapshot};
use std::time::{Duration, Instant};

/// A queue that served fewer requests is not known to be one.
const MIN_REQUESTS: u64 = 100;
/// More of the requests in flight are not read.
const MAX_READ: usize = 64;

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
    /// True if a request in flight was read as one of a disk on virtio-blk, and none as something else.
    pub is_disk: bool,
    /// Requests in flight, of a disk; `None` where they could not be read as such, or not all are known.
    pub requests: Option<Vec<BlockRequest>>,
    /// Time for which requests were in flight and none was used, and their number at its begin.
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
    is_disk: Option<bool>,
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
            is_disk: None,
            is_contradicted: false,
            still: None,
        }
    }

    /// Returns true if this is a queue of the format at these addresses.
    pub fn is_at(&self, ring: &Ring) -> bool {
        (self.ring.format, self.ring.areas) == (ring.format, ring.areas)
    }

    /// Reads the queue once more.
    pub fn sample(&mut self, memory: &dyn Memory, now: Instant) {
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
                (self.still, self.snapshot) = (None, None);
                return;
            }
        };
        self.follow(&snapshot);
        let before = self.snapshot.as_ref().map(|before| before.used);
        let is_still = before == Some(snapshot.used) && snapshot.in_flight() > 0;
        if !is_still || self.still.is_none_or(|(_, lying)| lying == 0) {
            self.still = Some((now, snapshot.in_flight()));
        }
        if !self.is_contradicted {
            self.read_requests(memory, &snapshot);
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

    /// Reads the requests in flight, by the first layout that makes sense of all of them.
    fn read_requests(&mut self, memory: &dyn Memory, snapshot: &Snapshot) {
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
                .map(|slot| request(memory, layout, format, (table, size), *slot))
                .collect()
        };
        let found = self.layouts.iter().enumerate();
        let found = found
            .filter_map(|(n, layout)| Some((n, read(layout)?)))
            .next();
        // A request that was used meanwhile may be another one by now.
        let is_unchanged = self
            .ring
            .read(memory)
            .is_ok_and(|now| now.used == snapshot.used);
        if !is_unchanged {
            return;
        }
        match found {
            Some((n, requests)) => {
                self.layouts.swap(0, n);
                self.layouts.truncate(1);
                self.is_disk.get_or_insert(true);
                self.requests = Some(requests);
            }
            // A slot of a packed queue may be that of a request that is used already.
            None if format == Format::Split => self.is_disk = Some(false),
            None => {}
        }
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
            is_disk: self.is_disk == Some(true),
            requests: self.requests.clone().filter(|requests| {
                self.is_disk == Some(true) && requests.len() == snapshot.in_flight() as usize
            }),
            stall: stall.map(|(since, lying)| (now.saturating_duration_since(since), lying)),
        })
    }
}
