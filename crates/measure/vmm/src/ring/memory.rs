//! Memory of a process: its mappings, the pages of it that exist, and reading them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Size of a page, bytes.
pub(super) const PAGE: u64 = 4096;
/// Bytes of an entry of `/proc/PID/pagemap`, and its bit of a page that is in memory.
const ENTRY: u64 = 8;
const PRESENT: u64 = 1 << 63;

/// Memory that a ring is read from: a process's, or bytes of a test.
pub(super) trait Memory {
    /// Fills `into` with the bytes from an address of the process on; false where one of them cannot be read.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;

    /// Returns the little-endian number at an address.
    fn u16(&self, address: u64) -> Option<u16> {
        let mut bytes = [0; 2];
        self.read(address, &mut bytes)
            .then(|| u16::from_le_bytes(bytes))
    }

    /// Returns true for each page of a range that is in memory.
    fn present(&self, range: Range) -> Vec<bool>;
}

/// Addresses of a process: from the first on, so many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub start: u64,
    pub length: u64,
}

impl Range {
    /// Returns true if these bytes are all in the range.
    pub fn has(&self, address: u64, length: u64) -> bool {
        let offset = address.checked_sub(self.start);
        offset.is_some_and(|offset| {
            offset <= self.length && length <= self.length - offset && length > 0
        })
    }
}

/// Memory of a running process. Only pages that are in memory are read: reading another would swap it in, or allocate it.
#[derive(Debug)]
pub(super) struct ProcessMemory {
    memory: File,
    pagemap: File,
}

impl ProcessMemory {
    /// Opens the memory of a process; it stays that of this process, also where another one has its PID later.
    pub fn open(pid: i32) -> io::Result<ProcessMemory> {
        Ok(ProcessMemory {
            memory: File::open(format!("/proc/{pid}/mem"))?,
            pagemap: File::open(format!("/proc/{pid}/pagemap"))?,
        })
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let length = into.len() as u64;
        let range = Range {
            start: address,
            length,
        };
        address.checked_add(length).is_some()
            && self.present(range).iter().all(|present| *present)
            && self.memory.read_exact_at(into, address).is_ok()
    }

    fn present(&self, range: Range) -> Vec<bool> {
        let first = range.start / PAGE;
        let last = range.start.saturating_add(range.length).div_ceil(PAGE);
        let pages = last.saturating_sub(first);
        let mut entries = vec![0; (pages * ENTRY) as usize];
        // An entry that cannot be read is that of no page.
        let read = self.pagemap.read_at(&mut entries, first * ENTRY);
        entries.truncate(read.unwrap_or(0));
        let mut present: Vec<bool> = entries
            .chunks_exact(ENTRY as usize)
            .filter_map(|entry| entry.try_into().ok())
            .map(|entry| u64::from_ne_bytes(entry) & PRESENT != 0)
            .collect();
        present.resize(pages as usize, false);
        present
    }
}

/// Bytes as the memory of a process: for tests, and for fuzzing.
#[derive(Debug, Clone, Default)]
pub(super) struct Bytes(pub Vec<(u64, Vec<u8>)>);

impl Memory for Bytes {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let found = self.0.iter().find_map(|(start, bytes)| {
            let from = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(from..from.checked_add(into.len())?)
        });
        found.map(|bytes| into.copy_from_slice(bytes)).is_some()
    }

    fn present(&self, range: Range) -> Vec<bool> {
        vec![true; range.length.div_ceil(PAGE) as usize]
    }
}
