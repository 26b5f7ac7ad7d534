//! Many requests under way, from one thread, through io_uring. A request's time runs from just before it is put on the
//! ring until its completion is taken off. Each completion's place is filled again, and the kernel told, before the
//! next is sampled.

use super::open::OpenDisk;
use super::positions::Positions;
use super::work::BlockWork;
use crate::buffer::Buffer;
use crate::{Clock, WorkloadError};
use io_uring::{IoUring, opcode, types};
use std::io;
use std::os::fd::AsRawFd;

pub(super) fn run(
    work: &BlockWork,
    disk: &OpenDisk,
    clock: &Clock,
    mut note: impl FnMut(u64, u64, u64),
) -> Result<(u64, u64), WorkloadError> {
    let mut ring = Ring::new(work, disk)?;
    let mut positions = Positions::new(work, disk);
    let mut made = 0;
    let start = clock.start();
    let mut now = start;
    for slot in 0..ring.slots.len() {
        if work.goes_on(made, clock.ns(start, clock.start())) {
            ring.begin(slot, &mut positions, clock)?;
            ring.enter(0)?;
            made += 1;
        }
    }
    while ring.under_way > 0 {
        let (slot, moved) = ring.completed()?;
        now = clock.stop();
        let Slot {
            began, position, ..
        } = ring.slots[slot];
        note(began, now, position);
        disk.check(work, position, moved)?;
        if work.goes_on(made, clock.ns(start, now)) {
            ring.begin(slot, &mut positions, clock)?;
            made += 1;
        }
    }
    Ok((start, now))
}

/// A place for a request.
struct Slot {
    buffer: Buffer,
    /// True if a request is under way in this slot.
    busy: bool,
    position: u64,
    began: u64,
}

struct Ring<'a> {
    ring: IoUring,
    slots: Vec<Slot>,
    under_way: usize,
    disk: &'a OpenDisk,
    work: &'a BlockWork,
}

impl<'a> Ring<'a> {
    fn new(work: &'a BlockWork, disk: &'a OpenDisk) -> Result<Ring<'a>, WorkloadError> {
        let ring = IoUring::new(work.depth.next_power_of_two()).map_err(no_ring)?;
        let slot = |_| {
            Ok(Slot {
                buffer: work.buffer()?,
                busy: false,
                position: 0,
                began: 0,
            })
        };
        let slots = (0..work.depth)
            .map(slot)
            .collect::<Result<_, WorkloadError>>()?;
        Ok(Ring {
            ring,
            slots,
            under_way: 0,
            disk,
            work,
        })
    }

    /// Puts a request on the ring, to a block that no other under way has: so its offset tells it from those.
    fn begin(
        &mut self,
        slot: usize,
        positions: &mut Positions,
        clock: &Clock,
    ) -> Result<(), WorkloadError> {
        let position = positions.next_but(|p| self.slots.iter().any(|s| s.busy && s.position == p));
        let place = &mut self.slots[slot];
        if self.work.write {
            place.buffer.stamp(position);
        }
        let (fd, bytes) = (types::Fd(self.disk.file.as_raw_fd()), place.buffer.bytes());
        let (start, length) = (bytes.as_mut_ptr(), bytes.len() as u32);
        let entry = if self.work.write {
            opcode::Write::new(fd, start, length)
                .offset(position)
                .build()
        } else {
            opcode::Read::new(fd, start, length)
                .offset(position)
                .build()
        };
        let entry = entry.user_data(slot as u64);
        (place.busy, place.position) = (true, position);
        self.under_way += 1;
        place.began = clock.start();
        // SAFETY: file and buffer stay until the request is completed: the disk is borrowed for longer, a busy slot's
        // buffer is not touched, and dropping the ring waits for what is under way.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| no_ring(io::ErrorKind::StorageFull.into()))
    }

    /// Tells the kernel of new requests, and waits until at least `wanted` are completed.
    fn enter(&mut self, wanted: usize) -> Result<(), WorkloadError> {
        loop {
            match self.ring.submit_and_wait(wanted) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return done.map(drop).map_err(no_ring),
            }
        }
    }

    /// The next request that is completed, and how many bytes it moved; waits for one where there is none.
    fn completed(&mut self) -> Result<(usize, io::Result<usize>), WorkloadError> {
        let fresh = !self.ring.submission().is_empty();
        if fresh || self.ring.completion().is_empty() {
            self.enter(1)?;
        }
        let Some(entry) = self.ring.completion().next() else {
            return Err(no_ring(io::ErrorKind::UnexpectedEof.into()));
        };
        let slot = entry.user_data() as usize;
        self.under_way -= 1;
        self.slots[slot].busy = false;
        let moved = usize::try_from(entry.result())
            .map_err(|_| io::Error::from_raw_os_error(-entry.result()));
        Ok((slot, moved))
    }
}

impl Drop for Ring<'_> {
    /// After an error requests may still be under way, into buffers of ours.
    fn drop(&mut self) {
        while self.under_way > 0 {
            if self.completed().is_err() {
                // The kernel may still write to them: better lost than given to somebody else.
                std::mem::forget(std::mem::take(&mut self.slots));
                return;
            }
        }
    }
}

fn no_ring(source: io::Error) -> WorkloadError {
    WorkloadError::NoRing(source)
}
