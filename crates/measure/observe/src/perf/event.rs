//! The event that samples, and the system calls for it.

use perf_event_open_sys::bindings::{
    PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_SW_CPU_CLOCK, PERF_FLAG_FD_CLOEXEC, PERF_SAMPLE_CALLCHAIN,
    PERF_SAMPLE_CPU, PERF_SAMPLE_IP, PERF_SAMPLE_RAW, PERF_SAMPLE_REGS_USER,
    PERF_SAMPLE_STACK_USER, PERF_SAMPLE_TID, PERF_SAMPLE_TIME, PERF_TYPE_HARDWARE,
    PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT, perf_event_attr,
};
use perf_event_open_sys::{ioctls, perf_event_open};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

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

pub(super) fn attr(
    trigger: Trigger,
    kernel: bool,
    sampling: SampleSettings,
    scope: Scope,
    watermark: u32,
) -> perf_event_attr {
    let mut attr = begun();
    let hz = u64::from(sampling.hz.max(1));
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
