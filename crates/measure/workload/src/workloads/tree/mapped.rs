//! A file read through a mapping, page by page.

use crate::Clock;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;
use vmtax_model::Latency;

const PAGE: usize = 4096;
/// So much is mapped at a time: a file of any length fits.
const WINDOW: u64 = 256 << 20;

/// Touches each page of the first `part` bytes of a file of `length`. `false` when the file has another length by now.
///
/// # Errors
/// The system's, from opening or mapping.
pub(super) fn read(
    path: &Path,
    length: u64,
    part: u64,
    clock: &Clock,
    pages: &mut Latency,
) -> io::Result<bool> {
    let file = File::open(path)?;
    // A page beyond a file's end cannot be read: touching it would end this process.
    if file.metadata()?.len() != length {
        return Ok(false);
    }
    let mut position = 0;
    while position < part {
        let bytes = WINDOW.min(part - position) as usize;
        let window = Window::map(&file, position, bytes)?;
        for offset in (0..bytes).step_by(PAGE) {
            clock.time(pages, || window.touch(offset));
        }
        position += bytes as u64;
    }
    Ok(true)
}

/// A read-only private mapping, gone when dropped.
struct Window {
    start: *const u8,
    bytes: usize,
}

impl Window {
    fn map(file: &File, position: u64, bytes: usize) -> io::Result<Window> {
        let position = libc::off_t::try_from(position)
            .map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        // SAFETY: a new mapping where the kernel likes takes nothing from anyone.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                position,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Window {
            start: start.cast(),
            bytes,
        })
    }

    #[inline(always)]
    fn touch(&self, offset: usize) {
        debug_assert!(offset < self.bytes);
        // SAFETY: inside the mapping, whose file had these bytes when it was mapped.
        unsafe { self.start.add(offset).read_volatile() };
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of which no reference is left.
        unsafe { libc::munmap(self.start.cast_mut().cast(), self.bytes) };
    }
}
