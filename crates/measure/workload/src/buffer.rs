//! Page-aligned buffers, as direct I/O wants them.

use crate::WorkloadError;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use vmtax_model::WorkloadName;

const PAGE: usize = 4096;

/// Bytes at a page boundary, filled with pseudorandom, non-zero data: storage may not treat it as a hole, compress it,
/// or fold it into one block.
pub(crate) struct Buffer {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the buffer owns its memory alone, like a Vec<u8>.
unsafe impl Send for Buffer {}

impl Buffer {
    /// So many bytes, which `option` of `workload` asks for.
    pub fn new(
        bytes: u64,
        workload: WorkloadName,
        option: &'static str,
    ) -> Result<Buffer, WorkloadError> {
        let layout = usize::try_from(bytes)
            .ok()
            .and_then(|bytes| Layout::from_size_align(bytes.max(1), PAGE).ok());
        // SAFETY: the layout's size is not zero.
        let memory = layout
            .and_then(|layout| Some((NonNull::new(unsafe { alloc_zeroed(layout) })?, layout)));
        let (start, layout) = memory.ok_or(WorkloadError::NoMemory {
            workload,
            bytes,
            option,
        })?;
        let mut buffer = Buffer { start, layout };
        let mut random = fastrand::Rng::with_seed(7);
        buffer.bytes().fill_with(|| random.u8(1..));
        Ok(buffer)
    }

    /// Returns the buffer's bytes, initialised.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `layout.size()` initialised bytes from `start`, borrowed as long as `self` is.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }

    /// Writes where a block belongs into its first bytes, so that no two blocks of a disk are the same.
    pub fn stamp(&mut self, position: u64) {
        if let Some(head) = self.bytes().first_chunk_mut::<8>() {
            // The top bit keeps block 0 from being all zeros.
            *head = (position | 1 << 63).to_ne_bytes();
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}
