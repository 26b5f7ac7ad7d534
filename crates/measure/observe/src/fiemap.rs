//! Where a file's bytes lie on its device, as the file system tells (`FS_IOC_FIEMAP`).

use std::fs::File;
use std::os::fd::AsRawFd;
use vmtax_model::Extent;

/// `_IOWR('f', 11, struct fiemap)`, linux/fs.h.
const FS_IOC_FIEMAP: libc::Ioctl = 0xc020_660b;
/// Flag to flush the file first, `FIEMAP_FLAG_SYNC`.
const SYNC: u32 = 1;
/// The file's last extent.
const LAST: u32 = 0x1;
/// Unknown, not yet placed, encoded, encrypted, not on block bounds, inside metadata: no place of raw bytes.
const ELSEWHERE: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200;
/// Extents a call.
const BATCH: usize = 256;
/// More extents than this are not collected.
const MAX_EXTENTS: usize = 1 << 20;

/// `struct fiemap` with room behind it.
#[repr(C)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Raw; BATCH],
}

/// One extent, `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Raw {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// The extents of the first `length` bytes, in order. `flush`: written bytes get their place first, and there are none when the
/// file system does not tell of all of them; else those without a place are left out.
pub(crate) fn extents(file: &File, length: u64, flush: bool) -> Vec<Extent> {
    collect(file, length, flush).unwrap_or_default()
}

fn collect(file: &File, length: u64, flush: bool) -> Option<Vec<Extent>> {
    let flags = if flush { SYNC } else { 0 };
    let none = Raw {
        logical: 0,
        physical: 0,
        length: 0,
        reserved64: [0; 2],
        flags: 0,
        reserved: [0; 3],
    };
    let (mut found, mut start) = (Vec::new(), 0);
    while start < length {
        let mut request = Box::new(Request {
            start,
            length: length - start,
            flags,
            mapped: 0,
            count: BATCH as u32,
            reserved: 0,
            extents: [none; BATCH],
        });
        // SAFETY: the request is laid out as the kernel's `struct fiemap`, says truly how many extents there is room for
        // behind it, and lives for the whole call; the descriptor is an open file's.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut *request) };
        let mapped = request.extents.get(..request.mapped as usize)?;
        if result != 0 || found.len() > MAX_EXTENTS {
            return None;
        }
        let Some(last) = mapped.last() else { break };
        for raw in mapped {
            if raw.flags & ELSEWHERE != 0 {
                if flush {
                    return None;
                }
                continue;
            }
            found.push(Extent {
                file: raw.logical,
                device: raw.physical,
                length: raw.length,
            });
        }
        if last.flags & LAST != 0 {
            break;
        }
        start = last
            .logical
            .checked_add(last.length)
            .filter(|next| *next > start)?;
    }
    Some(found)
}
