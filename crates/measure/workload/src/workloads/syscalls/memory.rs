//! Calls and faults that make memory.

use super::measure::{Attempt, Bench, Call, Lack, Sample};
use std::ptr;

const PAGE: usize = 4096;
/// Pages of a region: enough for a batch, little enough for a small guest.
const PAGES: u64 = 1024;

/// Fresh private anonymous memory, unmapped when dropped.
struct Region {
    start: *mut u8,
    bytes: usize,
}

impl Region {
    #[inline(always)]
    fn map(bytes: usize) -> Attempt<Region> {
        // SAFETY: a new mapping where the kernel likes takes nothing from anyone.
        let start = unsafe {
            libc::syscall(
                libc::SYS_mmap,
                ptr::null_mut::<u8>(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == -1 {
            Err(Lack::last("mmap"))
        } else {
            Ok(Region {
                start: start as *mut u8,
                bytes,
            })
        }
    }

    #[inline(always)]
    fn touch(&self, offset: usize) {
        debug_assert!(offset < self.bytes);
        // SAFETY: inside the mapping.
        unsafe { self.start.add(offset).write_volatile(1) };
    }
}

impl Drop for Region {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: our own mapping, of which no reference is left.
        unsafe { libc::syscall(libc::SYS_munmap, self.start, self.bytes) };
    }
}

/// An operation: `mmap(2)` of one anonymous page, a write to it (a page fault), and `munmap(2)`.
pub(super) fn mmap(bench: &Bench) -> Attempt<Sample> {
    bench.measure(|| {
        Region::map(PAGE)?.touch(0);
        Ok(())
    })
}

struct Faults {
    region: Option<Region>,
    next: usize,
}

impl Call for Faults {
    #[inline(always)]
    fn call(&mut self) -> Attempt {
        if let Some(region) = &self.region {
            region.touch(self.next * PAGE);
        }
        self.next += 1;
        Ok(())
    }

    fn reset(&mut self) -> Attempt {
        self.region = None;
        let region = Region::map(PAGES as usize * PAGE)?;
        // One fault for each page is what is measured, not one for a huge page. Kernels without huge pages refuse.
        // SAFETY: advice on our own mapping.
        unsafe {
            libc::syscall(
                libc::SYS_madvise,
                region.start,
                region.bytes,
                libc::MADV_NOHUGEPAGE,
            )
        };
        (self.region, self.next) = (Some(region), 0);
        Ok(())
    }

    fn room(&self) -> u64 {
        PAGES
    }
}

/// An operation: the first write to a page of anonymous memory.
pub(super) fn page_fault(bench: &Bench) -> Attempt<Sample> {
    bench.measure(Faults {
        region: None,
        next: 0,
    })
}
