//! Traces of kernels and of QEMU, decoded as they stream.
//!
//! A trace is one stream of [`Entry`]: events of all processors merged by time, and at their place the losses. Memory
//! does not grow with the trace, and no event allocates. Fields are found once, by name, in [`Formats`]; a [`Field`]
//! then reads its value from an event's record:
//!
//! ```no_run
//! # fn main() -> Result<(), vmtax_trace::TraceError> {
//! use vmtax_trace::{Entry, Folder};
//! let folder = Folder::open("host-trace".as_ref())?;
//! let switch = folder.formats().event("sched", "sched_switch");
//! let next = switch.and_then(|id| folder.formats().field(id, "next_pid"));
//! let mut events = folder.events()?;
//! while let Some(entry) = events.next()? {
//!     match entry {
//!         Entry::Event(event) if Some(event.id) == switch => {
//!             println!("{} cpu {} {:?}", event.ticks, event.cpu, next.and_then(|field| field.signed(event.data)));
//!         }
//!         Entry::Event(_) => {}
//!         Entry::Lost(lost) => println!("{} cpu {}: {:?} events lost", lost.ticks, lost.cpu, lost.events),
//!     }
//! }
//! println!("{:?}", events.counts());
//! # Ok(())
//! # }
//! ```
//!
//! Whatever a trace was, its events come as the same [`Events`], and the same [`Field`] reads them:
//!
//! | trace | read by | ticks are |
//! |---|---|---|
//! | raw pages of the kernel's ring buffer in a folder | [`Folder`] | of its clock |
//! | trace-cmd's `trace.dat`, versions 6 and 7, also with zstd or zlib | [`Dat`] | of its clock |
//! | tracepoints in `perf.data` | [`Perf`] | nanoseconds of its clock |
//! | QEMU's `simple` trace file | [`QemuEvents::simple`] | nanoseconds, `CLOCK_MONOTONIC` |
//! | QEMU's log with `-msg timestamp=on` | [`QemuEvents::log`] | nanoseconds since 1970 |
//!
//! The samples of stacks in a `perf.data` come as the kernel's records from [`PerfRecords`].
//!
//! Machines are little-endian. What in a trace makes no sense is either a [`TraceError`], when nothing could be read
//! after it, or left out and counted in [`Counts`].

mod dat;
mod error;
mod event;
mod events;
mod field;
mod file;
mod folder;
mod format;
mod formats;
mod merge;
mod page;
mod perf;
mod qemu;
mod stats;
mod stream;
mod symbols;
mod syscalls;

pub mod stacks;

#[cfg(test)]
mod format_tests;
#[cfg(test)]
mod merge_tests;
#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod testing;

pub use dat::Dat;
pub use error::TraceError;
pub use event::{Counts, Entry, Event, LEAP, Lost};
pub use events::Events;
pub use field::Field;
pub use folder::{Folder, RawFile};
pub use format::EventId;
pub use formats::{Format, Formats};
pub use merge::Input;
pub use page::PageLayout;
pub use perf::{Perf, PerfEvent, PerfRecords};
pub use qemu::QemuEvents;
pub use stats::{CpuStats, parse as cpu_stats};
pub use symbols::symbols;
pub use syscalls::{FUTEX, SystemCall, system_call, system_call_name};
