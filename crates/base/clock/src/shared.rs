//! Memory that host and guest both see, as atomic words.

use crate::ClockError;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

const WORD: usize = size_of::<AtomicU64>();
/// Vendor and device of QEMU's ivshmem (docs/specs/ivshmem-spec): its BAR 2 is the memory.
const IVSHMEM: [&str; 2] = ["0x1af4", "0x1110"];
const DEVICES: &str = "/sys/bus/pci/devices";

/// Memory that another process or a guest sees too. Whatever they write into it, reading gives numbers.
#[derive(Debug)]
pub struct Shared {
    start: NonNull<AtomicU64>,
    words: usize,
    file: OwnedFd,
}

// SAFETY: it owns its mapping, and all access to that is through atomics.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Makes new memory of zeros. Its size is sealed, so that nobody who is given it can take pages away from under us.
    ///
    /// # Errors
    /// [`ClockError::System`] when the system gives none.
    pub fn create(bytes: usize) -> Result<Shared, ClockError> {
        let failed = |e| ClockError::system(format!("making shared memory of {bytes} bytes"), e);
        let file = memfd_create(
            "vmtax-shared",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )
        .map_err(failed)?;
        ftruncate(&file, bytes as u64).map_err(failed)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).map_err(failed)?;
        Shared::map(file, bytes, "shared memory")
    }

    /// Maps the first `bytes` of `file`, a file in memory or a device's; `what` names it in errors. Who else has it
    /// may not make it smaller.
    ///
    /// # Errors
    /// [`ClockError::Small`] when it is smaller, [`ClockError::System`] when it cannot be mapped.
    pub fn map(file: impl Into<OwnedFd>, bytes: usize, what: &str) -> Result<Shared, ClockError> {
        let file = file.into();
        let failed = |e| ClockError::system(format!("mapping {what}"), e);
        let size = u64::try_from(fstat(&file).map_err(failed)?.st_size).unwrap_or(0);
        if size < bytes as u64 {
            return Err(ClockError::Small {
                what: what.to_owned(),
                bytes: size,
                wanted: bytes as u64,
            });
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses where, so nothing that is in use is replaced.
        let start = unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, &file, 0) }
            .map_err(failed)?;
        let start = NonNull::new(start.cast()).ok_or_else(|| failed(rustix::io::Errno::NOMEM))?;
        Ok(Shared {
            start,
            words: bytes / WORD,
            file,
        })
    }

    /// Inside a guest: maps what QEMU was given with `-device ivshmem-plain`.
    ///
    /// # Errors
    /// [`ClockError::NoDevice`] without one, others when sysfs does not let it be used.
    pub fn guest() -> Result<Shared, ClockError> {
        let devices = fs::read_dir(DEVICES).into_iter().flatten().flatten();
        // The first: what a guest has besides is behind bridges.
        let device = devices
            .map(|d| d.path())
            .filter(|d| is_ivshmem(d))
            .min()
            .ok_or(ClockError::NoDevice)?;
        let (enable, memory) = (device.join("enable"), device.join("resource2"));
        // Without a driver nobody else does; before it is done, reads give all ones.
        fs::write(&enable, "1")
            .map_err(|e| ClockError::system(format!("writing {}", enable.display()), e))?;
        let path = memory.display().to_string();
        let open = |path: &Path| -> std::io::Result<(File, u64)> {
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            let bytes = file.metadata()?.len();
            Ok((file, bytes))
        };
        let (file, bytes) =
            open(&memory).map_err(|e| ClockError::system(format!("opening {path}"), e))?;
        Shared::map(file, usize::try_from(bytes).unwrap_or(usize::MAX), &path)
    }

    /// The memory's file once more, to hand on: it is closed on exec unless the receiver is given it by number.
    ///
    /// # Errors
    /// [`ClockError::System`] when this process has no descriptor left.
    pub fn descriptor(&self) -> Result<OwnedFd, ClockError> {
        let again = self.file.as_fd().try_clone_to_owned();
        again.map_err(|e| ClockError::system("duplicating the descriptor of shared memory", e))
    }

    /// All of it, as words of eight bytes.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words from `start`, which lies on a page, are mapped, readable and writable, as long as `self`
        // lives; their file keeps its size; any bits are an AtomicU64, and everyone in this process goes through those.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }

    /// The word at a byte offset.
    ///
    /// # Errors
    /// [`ClockError::NoCell`] unless it lies within, at a multiple of 8.
    pub fn cell(&self, offset: usize) -> Result<&AtomicU64, ClockError> {
        let cell = if offset % WORD == 0 {
            self.words().get(offset / WORD)
        } else {
            None
        };
        cell.ok_or(ClockError::NoCell {
            offset,
            bytes: self.words * WORD,
        })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length (the kernel rounds both to pages), and no borrow is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.words * WORD) };
    }
}

fn is_ivshmem(device: &Path) -> bool {
    let reads = |file: &str, wanted: &str| {
        fs::read_to_string(device.join(file)).is_ok_and(|id| id.trim() == wanted)
    };
    reads("vendor", IVSHMEM[0]) && reads("device", IVSHMEM[1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn both_sides_see_it_and_its_size_is_kept() {
        let ours = Shared::create(8192).unwrap();
        let theirs = Shared::map(ours.descriptor().unwrap(), 8192, "a copy").unwrap();
        ours.cell(4096).unwrap().store(7, Ordering::Relaxed);
        assert_eq!(theirs.cell(4096).unwrap().load(Ordering::Relaxed), 7);
        assert_eq!(theirs.words().len(), 1024);
        assert!(
            ftruncate(theirs.descriptor().unwrap(), 0).is_err(),
            "a page could be taken away"
        );
    }

    #[test]
    fn what_is_outside_is_refused() {
        let ours = Shared::create(4096).unwrap();
        assert!(ours.cell(4088).is_ok());
        for offset in [4096, 4, usize::MAX] {
            assert!(
                matches!(ours.cell(offset), Err(ClockError::NoCell { .. })),
                "{offset}"
            );
        }
        let larger = Shared::map(ours.descriptor().unwrap(), 4097, "it");
        assert!(
            matches!(
                larger,
                Err(ClockError::Small {
                    bytes: 4096,
                    wanted: 4097,
                    ..
                })
            ),
            "{larger:?}"
        );
    }
}
