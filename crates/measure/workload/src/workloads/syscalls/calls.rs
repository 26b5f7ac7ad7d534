//! Calls that need no partner.

use super::measure::{Attempt, Bench, Call, Lack, Sample, checked, succeeded};
use std::ffi::CString;
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// An operation: `getpid(2)`.
pub(super) fn getpid(bench: &Bench) -> Attempt<Sample> {
    bench.measure(|| {
        // SAFETY: getpid takes nothing and touches nothing.
        succeeded("getpid", unsafe { libc::syscall(libc::SYS_getpid) })
    })
}

fn open_null(flags: i32) -> Attempt<OwnedFd> {
    // SAFETY: the path is a C string; the descriptor is new and ours.
    unsafe {
        let fd = checked(
            "open /dev/null",
            libc::syscall(
                libc::SYS_open,
                c"/dev/null".as_ptr(),
                flags | libc::O_CLOEXEC,
            ),
        )?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// An operation: `read(2)` of one byte from `/dev/null`, which gives none.
pub(super) fn read_null(bench: &Bench) -> Attempt<Sample> {
    let null = open_null(libc::O_RDONLY)?;
    let mut byte = 0u8;
    bench.measure(|| {
        // SAFETY: `byte` has room for the one byte.
        succeeded("read /dev/null", unsafe {
            libc::syscall(libc::SYS_read, null.as_raw_fd(), &raw mut byte, 1usize)
        })
    })
}

/// An operation: `write(2)` of one byte to `/dev/null`.
pub(super) fn write_null(bench: &Bench) -> Attempt<Sample> {
    let null = open_null(libc::O_WRONLY)?;
    let byte = 0u8;
    bench.measure(|| {
        // SAFETY: `byte` has the one byte.
        succeeded("write /dev/null", unsafe {
            libc::syscall(libc::SYS_write, null.as_raw_fd(), &raw const byte, 1usize)
        })
    })
}

/// An empty file, removed when dropped.
struct TemporaryFile {
    path: PathBuf,
    c_path: CString,
}

impl TemporaryFile {
    fn new(bench: &Bench) -> Attempt<TemporaryFile> {
        let mut lack = Lack("no directory for a temporary file".to_owned());
        for directory in bench.directories {
            let path = directory.join(format!("vmtax-{}", std::process::id()));
            match OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .open(&path)
            {
                Ok(_) => {
                    let c_path = CString::new(path.as_os_str().as_bytes())
                        .map_err(|_| Lack(format!("a NUL byte in {}", path.display())))?;
                    return Ok(TemporaryFile { path, c_path });
                }
                Err(e) => {
                    lack = Lack::from_error(&format!("create {}", path.display()), &e);
                }
            }
        }
        Err(lack)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// An operation: `stat(2)` of an empty file by its absolute path.
pub(super) fn stat(bench: &Bench) -> Attempt<Sample> {
    let file = TemporaryFile::new(bench)?;
    let mut answer = std::mem::MaybeUninit::<libc::stat>::uninit();
    bench.measure(|| {
        // SAFETY: a C string, and room for the answer.
        succeeded("stat", unsafe {
            libc::syscall(libc::SYS_stat, file.c_path.as_ptr(), answer.as_mut_ptr())
        })
    })
}

/// An operation: `open(2)` for reading of an empty file, and `close(2)`.
pub(super) fn open_close(bench: &Bench) -> Attempt<Sample> {
    let file = TemporaryFile::new(bench)?;
    bench.measure(|| {
        // SAFETY: a C string; the descriptor closed is the one just opened.
        unsafe {
            let fd = checked(
                "open",
                libc::syscall(libc::SYS_open, file.c_path.as_ptr(), libc::O_RDONLY),
            )?;
            checked("close", libc::syscall(libc::SYS_close, fd))?;
        }
        Ok(())
    })
}

/// An operation: `clock_gettime(CLOCK_MONOTONIC)` through the C library, which uses the vDSO. A kernel whose clock
/// source the vDSO cannot read makes it a system call after all: that is its figure then.
pub(super) fn clock_gettime_vdso(bench: &Bench) -> Attempt<Sample> {
    // SAFETY: getauxval only looks its argument up.
    if unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } == 0 {
        return Err(Lack("the kernel provides no vDSO".to_owned()));
    }
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    bench.measure(|| {
        // SAFETY: `time` is valid for writing.
        let done = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
        succeeded("clock_gettime", libc::c_long::from(done))
    })
}

/// An operation: the system call `clock_gettime(CLOCK_MONOTONIC)`.
pub(super) fn clock_gettime_raw(bench: &Bench) -> Attempt<Sample> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    bench.measure(|| {
        // SAFETY: `time` is valid for writing.
        succeeded("clock_gettime", unsafe {
            libc::syscall(
                libc::SYS_clock_gettime,
                libc::CLOCK_MONOTONIC,
                &raw mut time,
            )
        })
    })
}

static CAUGHT: AtomicU64 = AtomicU64::new(0);

extern "C" fn catch(_: libc::c_int) {
    CAUGHT.fetch_add(1, Relaxed);
}

/// The handler of SIGUSR1 while it lives.
struct Handler {
    action: libc::sigaction,
    mask: libc::sigset_t,
}

impl Handler {
    fn set() -> Attempt<Handler> {
        // SAFETY: plain data for which zeros are valid; the handler only adds to an atomic.
        unsafe {
            let mut before = Handler {
                action: std::mem::zeroed(),
                mask: std::mem::zeroed(),
            };
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = catch as extern "C" fn(libc::c_int) as usize;
            checked(
                "sigaction",
                libc::c_long::from(libc::sigaction(libc::SIGUSR1, &action, &mut before.action)),
            )?;
            let mut usr1: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut usr1, libc::SIGUSR1);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &usr1, &mut before.mask);
            Ok(before)
        }
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        // SAFETY: both come from `set`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.mask, ptr::null_mut());
            libc::sigaction(libc::SIGUSR1, &self.action, ptr::null_mut());
        }
    }
}

/// An operation: `tgkill(2)` of SIGUSR1 to the calling thread, its handler, and the return from it. To the thread, not
/// to the process, where another thread might catch it.
pub(super) fn signal(bench: &Bench) -> Attempt<Sample> {
    let _handler = Handler::set()?;
    // SAFETY: neither takes or touches anything.
    let (process, thread) = unsafe {
        (
            libc::syscall(libc::SYS_getpid),
            libc::syscall(libc::SYS_gettid),
        )
    };
    bench.measure(|| {
        let before = CAUGHT.load(Relaxed);
        // SAFETY: the handler is set while `_handler` lives.
        checked("tgkill", unsafe {
            libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1)
        })?;
        if CAUGHT.load(Relaxed) == before {
            return Err(Lack("the signal's handler does not run".to_owned()));
        }
        Ok(())
    })
}

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
