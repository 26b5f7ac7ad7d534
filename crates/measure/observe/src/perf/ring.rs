//! The memory through which the kernel hands records over: read here, and nowhere else.

use perf_event_open_sys::bindings::perf_event_mmap_page;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes: what is taken where it is granted, and what everybody is granted.
pub(crate) const SIZES: [usize; 2] = [4 << 20, 512 << 10];

/// A ring of records of one CPU.
#[derive(Debug)]
pub(crate) struct Ring {
    /// Where the kernel's page begins; the records follow it.
    base: *mut u8,
    page: usize,
    /// Bytes of the records' part, a power of two.
    size: usize,
}

// SAFETY: the memory belongs to this value alone, wherever it is moved.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the largest ring that the kernel grants.
    pub(crate) fn largest(event: BorrowedFd<'_>) -> io::Result<Ring> {
        Ring::map(event, SIZES[0]).or_else(|_| Ring::map(event, SIZES[1]))
    }

    /// Maps the ring of an event. `size` is a power of two of pages, bytes.
    fn map(event: BorrowedFd<'_>, size: usize) -> io::Result<Ring> {
        let page = rustix::param::page_size();
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                page + size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                event,
                0,
            )?
        };
        Ok(Ring {
            base: base.cast(),
            page,
            size,
        })
    }

    /// Copies out what came since the last time, whole records in their order.
    pub(crate) fn take(&mut self, into: &mut Vec<u8>) {
        let head = self
            .position(std::mem::offset_of!(perf_event_mmap_page, data_head))
            .load(Ordering::Acquire);
        let tail_at = self.position(std::mem::offset_of!(perf_event_mmap_page, data_tail));
        let tail = tail_at.load(Ordering::Relaxed);
        let length = usize::try_from(head.wrapping_sub(tail))
            .unwrap_or(0)
            .min(self.size);
        let from = usize::try_from(tail).unwrap_or(0) & (self.size - 1);
        let first = length.min(self.size - from);
        for (offset, part) in [(from, first), (0, length - first)] {
            // SAFETY: both parts lie in the records' part, which is mapped, and the kernel does not write between tail
            // and head.
            into.extend_from_slice(unsafe {
                std::slice::from_raw_parts(self.base.add(self.page + offset), part)
            });
        }
        tail_at.store(head, Ordering::Release);
    }

    /// One of the two positions that kernel and reader tell each other.
    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the field is aligned, inside the kernel's page, mapped as long as this value lives, and both sides use
        // it atomically only.
        unsafe { AtomicU64::from_ptr(self.base.add(offset).cast()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `map` in this length, and nothing borrows from it any more.
        let _ = unsafe { munmap(self.base.cast(), self.page + self.size) };
    }
}
