//! Files of others: only regular ones are opened, and of one no more is read than it can honestly hold.

use object::{ReadCache, ReadRef};
use rustix::fs::{Mode, OFlags, open};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// No section of a program that exists is larger, bytes.
const MAX_SECTION: u64 = 256 << 20;
/// All that is read of one program, bytes.
const MAX_READ: u64 = 1 << 30;
/// A block of `st_blocks`, bytes.
const BLOCK: u64 = 512;
/// A file system that compresses stores a program in so much less than it holds. A sparse file holds far more.
const MAX_COMPRESSION: u64 = 16;

/// Opens a regular file. To open anything else can hang (a pipe) or act (a watchdog device), so it is not opened to find
/// out what it is.
///
/// # Errors
/// Where it is another kind of file, or the kernel refuses.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let found = File::from(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
    if !found.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    // What was examined, whatever is at its path by now.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(open(
        format!("/proc/self/fd/{}", found.as_raw_fd()),
        flags,
        Mode::empty(),
    )?
    .into())
}

/// Returns the number of bytes of a file that may be read at most.
pub(super) fn budget(file: &File) -> io::Result<u64> {
    let facts = file.metadata()?;
    // Some file systems count no blocks.
    let stored = if facts.blocks() == 0 {
        facts.size()
    } else {
        facts.blocks().saturating_mul(BLOCK)
    };
    Ok(stored.saturating_mul(MAX_COMPRESSION).min(MAX_READ))
}

/// A program's bytes, of which the parser may ask for so much and no more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounded<'a> {
    data: &'a ReadCache<File>,
    left: &'a Cell<u64>,
}

impl<'a> Bounded<'a> {
    /// `left`: how many bytes may be read.
    pub fn new(data: &'a ReadCache<File>, left: &'a Cell<u64>) -> Bounded<'a> {
        Bounded { data, left }
    }

    fn take(self, size: u64) -> Result<(), ()> {
        let left = self
            .left
            .get()
            .checked_sub(size)
            .filter(|_| size <= MAX_SECTION)
            .ok_or(())?;
        self.left.set(left);
        Ok(())
    }
}

impl<'a> ReadRef<'a> for Bounded<'a> {
    fn len(self) -> Result<u64, ()> {
        self.data.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.take(size)?;
        self.data.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let found = self.data.read_bytes_at_until(range, delimiter)?;
        self.take(found.len() as u64)?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::files::read;
    use std::fs;
    use std::os::unix::fs::FileExt;
    use std::time::{Duration, Instant};

    #[test]
    fn only_regular_files_are_opened_and_nothing_hangs() {
        let place = tempfile::tempdir().unwrap();
        let (pipe, link) = (place.path().join("pipe"), place.path().join("link"));
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            Mode::RUSR,
            0,
        )
        .unwrap();
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        let begin = Instant::now();
        for path in [&pipe, &link, Path::new("/dev/zero"), place.path()] {
            assert!(
                read(path).unwrap_err().contains("not a regular file"),
                "{}",
                path.display()
            );
        }
        assert!(begin.elapsed() < Duration::from_secs(5));
        assert!(read(&std::env::current_exe().unwrap()).is_ok_and(|elf| elf.unstripped));
    }

    #[test]
    fn a_section_of_a_sparse_file_is_not_read() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("sparse");
        // Its strings are said to be 200 MiB, of which none are stored: a string table's size is at 32 of its header.
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        let u64_at = |at: usize| u64::from_le_bytes(own[at..at + 8].try_into().unwrap());
        let (headers, size) = (
            u64_at(40) as usize,
            usize::from(u16::from_le_bytes([own[58], own[59]])),
        );
        let count = usize::from(u16::from_le_bytes([own[60], own[61]]));
        let is = |kind: u32, at: &usize| own[at + 4..at + 8] == kind.to_le_bytes();
        let symbols = (0..count)
            .map(|n| headers + n * size)
            .find(|at| is(2, at))
            .unwrap();
        let linked =
            u32::from_le_bytes(own[symbols + 40..symbols + 44].try_into().unwrap()) as usize;
        let strings = headers + linked * size;
        for (said, compressed) in [(200_u64 << 20, false), (2 << 30, true)] {
            // Only what the headers need is stored; in the second, all is, but no section is that large.
            let file = fs::File::create(&path).unwrap();
            let stored = if compressed { &own[..] } else { &own[..4096] };
            file.write_all_at(stored, 0).unwrap();
            file.write_all_at(&own[headers..headers + count * size], headers as u64)
                .unwrap();
            let end = own.len() as u64;
            file.write_all_at(&end.to_le_bytes(), (strings + 24) as u64)
                .unwrap();
            file.write_all_at(&said.to_le_bytes(), (strings + 32) as u64)
                .unwrap();
            file.set_len(end + said).unwrap();
            // It has none of the names that are said to be there.
            assert!(
                read(&path).map_or(true, |elf| !elf.unstripped),
                "{said} bytes were read"
            );
        }
    }
}
