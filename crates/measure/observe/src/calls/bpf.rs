//! bpf(2): maps, programs and where they are attached. Its structures are those of `linux/bpf.h`, whose order and sizes are
//! kept for ever; each is as long as the last field that is used.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const MAP_GET_NEXT_KEY: libc::c_int = 4;
const PROG_LOAD: libc::c_int = 5;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
/// Program type for raw tracepoints, `BPF_PROG_TYPE_RAW_TRACEPOINT`.
const RAW_TRACEPOINT: u32 = 17;

/// One instruction, as the kernel takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Instruction {
    pub code: u8,
    /// Destination in the low half, source in the high one.
    pub registers: u8,
    pub offset: i16,
    pub immediate: i32,
}

/// Type of a map, by the kernel's number.
#[derive(Debug, Clone, Copy)]
pub(super) enum MapKind {
    Hash = 1,
    Array = 2,
    PerCpuHash = 5,
}

#[repr(C)]
struct Create {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

#[repr(C)]
struct Element {
    map: u32,
    _pad: u32,
    key: u64,
    /// The value, or the next key.
    value: u64,
    flags: u64,
}

#[repr(C)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
}

#[repr(C)]
struct Open {
    name: u64,
    program: u32,
    _pad: u32,
}

/// A call of bpf(2) whose structure is `attr`.
fn bpf<T>(command: libc::c_int, attr: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: the structure is whole and its size is told; what it points to is borrowed by the callers below, and as
    // large as the map or the count in it says.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attr),
            size_of::<T>(),
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Tells whether the key that a call asked for is there.
fn is_found(result: io::Result<libc::c_long>) -> io::Result<bool> {
    match result {
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        result => result.map(|_| true),
    }
}

fn owned(fd: libc::c_long) -> OwnedFd {
    // SAFETY: the kernel just made this descriptor, and nobody else has it.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}

/// A map that programs and this process share.
#[derive(Debug)]
pub(super) struct Map {
    fd: OwnedFd,
    key_size: usize,
    /// Number of words of 8 bytes in a value as it is read: of all CPUs where each has one.
    words: usize,
}

impl Map {
    /// `cpus`: how many the kernel keeps a value for, in a map where each has one.
    pub(super) fn create(
        kind: MapKind,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        cpus: usize,
    ) -> io::Result<Map> {
        let fd = bpf(
            MAP_CREATE,
            &mut Create {
                kind: kind as u32,
                key_size,
                value_size,
                max_entries,
            },
        )?;
        let each = (value_size as usize).div_ceil(8);
        let words = if matches!(kind, MapKind::PerCpuHash) {
            each * cpus
        } else {
            each
        };
        Ok(Map {
            fd: owned(fd),
            key_size: key_size as usize,
            words,
        })
    }

    pub(super) fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// The value of a key, of all CPUs where each has one; `None` when there is no such key.
    pub(super) fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u64>>> {
        if key.len() != self.key_size {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut value = vec![0; self.words];
        let mut attr = self.element(key.as_ptr(), value.as_mut_ptr().cast());
        Ok(is_found(bpf(MAP_LOOKUP_ELEM, &mut attr))?.then_some(value))
    }

    /// The key after this one, or the first.
    pub(super) fn next_key(&self, key: Option<[u8; 8]>) -> io::Result<Option<[u8; 8]>> {
        let mut next = [0; 8];
        if self.key_size != next.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let from = key.as_ref().map_or(std::ptr::null(), |key| key.as_ptr());
        let mut attr = self.element(from, next.as_mut_ptr());
        Ok(is_found(bpf(MAP_GET_NEXT_KEY, &mut attr))?.then_some(next))
    }

    fn element(&self, key: *const u8, value: *mut u8) -> Element {
        Element {
            map: self.fd() as u32,
            _pad: 0,
            key: key as u64,
            value: value as u64,
            flags: 0,
        }
    }
}

/// A program at a tracepoint, until it is dropped.
#[derive(Debug)]
pub(super) struct Attached {
    _program: OwnedFd,
    _link: OwnedFd,
}

impl Attached {
    pub(super) fn at(tracepoint: &CStr, program: &[Instruction]) -> io::Result<Attached> {
        // The helper that tells the time is for programs under licences that go with the GPL.
        let license = c"Dual MIT/GPL";
        let mut load = Load {
            kind: RAW_TRACEPOINT,
            count: program.len() as u32,
            instructions: program.as_ptr() as u64,
            license: license.as_ptr() as u64,
        };
        let program = owned(bpf(PROG_LOAD, &mut load)?);
        let mut open = Open {
            name: tracepoint.as_ptr() as u64,
            program: program.as_raw_fd() as u32,
            _pad: 0,
        };
        let link = owned(bpf(RAW_TRACEPOINT_OPEN, &mut open)?);
        Ok(Attached {
            _program: program,
            _link: link,
        })
    }
}
