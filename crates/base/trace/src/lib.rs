//! Traces of kernels and of QEMU, decoded as they stream.
//!
//! A trace is one stream of [`Entry`]: events of all CPUs merged by time, and at their place the losses. Memory
//! does not grow with the trace, and no event allocates. Fields are found once, by name, in [`Formats`]; a [`Field`]
//! then reads its value from an event's record. `examples/decode.rs` does so for one field of any trace.
//!
//! Whatever a trace was, its events come as the same [`Events`], and the same [`Field`] reads them:
//!
//! | trace | read by | ticks are |
//! |---|---|---|
//! | raw pages of the kernel's ring buffer in a folder | [`Folder`] | of its clock |
//! | trace-cmd's `trace.dat`, versions 6 and 7, also with zstd or zlib | [`Dat`] | of its clock |
//! | tracepoints in `perf.data` | [`Perf`] | nanoseconds of its clock |
//! | text of tracefs's `trace`, `trace-cmd report`, `perf script` | [`TraceText`] | nanoseconds, or of its clock |
//! | QEMU's `simple` trace file | [`QemuEvents::simple`] | nanoseconds, `CLOCK_MONOTONIC` |
//! | QEMU's log with `-msg timestamp=on` | [`QemuEvents::log`] | nanoseconds since 1970 |
//!
//! The samples of stacks in a `perf.data` come as the kernel's records from [`PerfRecords`].
//!
//! [`KernelDecoder`] gives the kernel's tracepoints as typed events, [`SchedTimeline`] what threads did when,
//! [`CallTimes`] how long their system calls took.
//!
//! Machines are little-endian. What in a trace is invalid is either a [`TraceError`], when nothing could be read
//! after it, or left out and counted in [`Counts`].

mod event;
mod events;
mod file;
mod format;
mod import;
mod kernel;
mod packet;
mod ring;
pub mod stacks;
#[cfg(test)]
mod testing;

pub use event::{Counts, Entry, Event, EventId, LEAP, Lost};
pub use events::Events;
pub use file::TraceError;
pub use format::{Field, Format, Formats, Symbols, SymbolsCondition, symbols};
pub use import::dat::{Dat, TimeOffset, TimeShift, TracedGuest, TscScale};
pub use import::ftrace::TraceText;
pub use import::perf::{Perf, PerfEvent, PerfRecords};
pub use import::qemu::QemuEvents;
pub use import::{MAX_THREADS, TracedThread, TracedThreads};
pub use kernel::{
    BlockRequest, CallPhase, CallTimes, EventWindow, ExitReasons, FUTEX, KernelDecoder,
    KernelEvent, KvmAccess, KvmSpace, Leaves, Moment, Moments, Packet, SVM, Sched, SchedTimeline,
    SystemCall, ThreadState, VMX, Waker, call_rows, foreign_kvm, system_call, system_call_name,
};
pub use packet::{Payload, frame_length, payload, payload_word};
pub use ring::{
    CpuStats, Folder, FolderWriter, Input, Keep, PageLayout, RawFile, cpu_of_raw_file, cpu_stats,
};
