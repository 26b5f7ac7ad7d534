//! The event that samples, the system calls for it, and the memory through which the kernel hands its records over, which is read
//! here, and nowhere else.

use perf_event_open_sys::bindings::{
    PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_SW_CPU_CLOCK, PERF_FLAG_FD_CLOEXEC, PERF_SAMPLE_CALLCHAIN,
    PERF_SAMPLE_CPU, PERF_SAMPLE_IP, PERF_SAMPLE_RAW, PERF_SAMPLE_REGS_USER,
    PERF_SAMPLE_STACK_USER, PERF_SAMPLE_TID, PERF_SAMPLE_TIME, PERF_TYPE_HARDWARE,
    PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT, perf_event_attr, perf_event_mmap_page,
};
use perf_event_open_sys::{ioctls, perf_event_open};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Frame pointer, stack pointer and instruction pointer, as `asm/perf_regs.h` numbers them: what unwinding needs.
pub(super) const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;

/// Event that triggers the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// Cycles of the CPU, counted by itself.
    Cycles,
    /// The kernel's timer for a thread on a CPU.
    CpuClock,
}

/// Whom an event is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// The threads of one process.
    Process,
    /// Whatever runs on a CPU.
    Machine,
}

/// Rate and size of the samples.
#[derive(Debug, Clone, Copy)]
pub struct SampleSettings {
    /// Samples a second of each running thread.
    pub hz: u32,
    /// Bytes copied of the stack with each sample.
    pub stack: u32,
}

/// The event that samples, at the rate and size of `sampling`; the reader is woken once the ring holds `watermark` bytes.
pub(super) fn attr(
    trigger: Trigger,
    kernel: bool,
    sampling: SampleSettings,
    scope: Scope,
    watermark: u32,
) -> perf_event_attr {
    let mut attr = triggered(trigger, sampling.hz);
    let mut what = PERF_SAMPLE_IP
        | PERF_SAMPLE_TID
        | PERF_SAMPLE_TIME
        | PERF_SAMPLE_REGS_USER
        | PERF_SAMPLE_STACK_USER;
    if kernel {
        what |= PERF_SAMPLE_CALLCHAIN;
    }
    if scope == Scope::Machine {
        what |= PERF_SAMPLE_CPU;
        attr.set_exclude_idle(1);
        attr.set_task(1);
        attr.set_comm_exec(1);
        attr.set_sample_id_all(1); // processes begin and map on one CPU, and are sampled on another
    } else {
        attr.set_inherit(1); // threads that begin later
    }
    attr.sample_type = what.into();
    attr.sample_regs_user = REGISTERS;
    attr.sample_stack_user = sampling.stack & !7;
    attr.set_exclude_kernel(u64::from(!kernel));
    attr.set_exclude_hv(1);
    attr.set_exclude_callchain_user(1); // by frame pointers, which distributions' programs do not keep
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_comm(1);
    attr.set_watermark(1);
    attr.__bindgen_anon_2.wakeup_watermark = watermark;
    attr
}

/// An event that a trigger causes, so many times a second.
fn triggered(trigger: Trigger, hz: u32) -> perf_event_attr {
    let mut attr = begun();
    let hz = u64::from(hz.max(1));
    match trigger {
        Trigger::Cycles => {
            attr.type_ = PERF_TYPE_HARDWARE;
            attr.config = PERF_COUNT_HW_CPU_CYCLES.into();
            attr.set_freq(1);
            attr.__bindgen_anon_1.sample_freq = hz;
        }
        Trigger::CpuClock => {
            attr.type_ = PERF_TYPE_SOFTWARE;
            attr.config = PERF_COUNT_SW_CPU_CLOCK.into();
            attr.__bindgen_anon_1.sample_period = 1_000_000_000 / hz;
        }
    }
    attr
}

/// Each time a tracepoint is passed, which the kernel knows by a number: who, when and with what.
pub(crate) fn tracepoint(id: u64) -> perf_event_attr {
    let mut attr = begun();
    attr.type_ = PERF_TYPE_TRACEPOINT;
    attr.config = id;
    attr.__bindgen_anon_1.sample_period = 1;
    attr.sample_type = (PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_RAW).into();
    attr
}

/// An event that is off, in the time of the monotonic clock.
fn begun() -> perf_event_attr {
    let mut attr = perf_event_attr::default();
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.set_disabled(1);
    attr.set_use_clockid(1);
    attr.clockid = libc::CLOCK_MONOTONIC;
    attr
}

/// Opens the event for a thread on a CPU.
pub(crate) fn open(attr: &mut perf_event_attr, tid: i32, cpu: i32) -> io::Result<OwnedFd> {
    // SAFETY: `attr` is whole and says its size; the descriptor that comes back is ours alone.
    unsafe {
        let fd = perf_event_open(attr, tid, cpu, -1, PERF_FLAG_FD_CLOEXEC.into());
        if fd < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(OwnedFd::from_raw_fd(fd))
        }
    }
}

/// Lets an event write into another's ring, of the same CPU.
pub(crate) fn write_into(event: &OwnedFd, ring: &impl AsFd) -> io::Result<()> {
    // SAFETY: two descriptors of events, which stay open during the call.
    done(unsafe { ioctls::SET_OUTPUT(event.as_raw_fd(), ring.as_fd().as_raw_fd()) })
}

/// Starts or ends sampling by an event.
pub(crate) fn enable(event: &OwnedFd, on: bool) -> io::Result<()> {
    let fd = event.as_raw_fd();
    // SAFETY: the descriptor of an event, which stays open during the call.
    done(unsafe {
        if on {
            ioctls::ENABLE(fd, 0)
        } else {
            ioctls::DISABLE(fd, 0)
        }
    })
}

fn done(result: i32) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

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
