//! What observes a process or a guest, and leaves samples, counts and traces; what they mean others say.
//!
//! - Tracepoints and uprobes, through tracefs instances of our own, on the host and in the guest: a [`ProbeSet`] says which,
//!   a [`Tracer`] traces and leaves nothing behind; [`sweep`] removes what a killed one left. A guest's first process calls
//!   [`mount_tracefs`] before. What observing costs, `examples/observer.rs` measures.
//! - Stacks: [`OnCpuSampler`], [`wall_clock`], in a guest [`GuestSampler`]. The scheduler's events: [`schedule`].
//! - VM exits: [`ExitTracer`], [`kvm_counters`]. What vCPUs execute: [`guest_code`]. System calls: [`CallCounter`].

mod calls;
mod clock;
mod error;
mod exits;
mod fiemap;
mod function_probes;
mod guest_code;
mod guest_disk;
mod held;
mod host_disk;
mod kvm_debugfs;
mod perf;
mod place;
#[cfg(test)]
mod place_tests;
mod probe_point;
mod process;
mod save;
mod schedule;
mod set;
mod stacks;
mod sweep;
mod thread_reader;
mod tracefs;
mod tracer;
mod uprobe;

pub use calls::CallCounter;
pub use error::ProbeError;
pub use exits::ExitTracer;
pub use function_probes::uprobes;
pub use guest_code::guest_code;
pub use guest_disk::guest_disk;
pub use host_disk::{host_disk, host_disk_in_use};
pub use kvm_debugfs::{kvm_counters, kvm_offset};
pub use perf::{Sampler, Sampling, Trigger};
pub use place::is_cheap;
pub use probe_point::{ProbeAt, ProbePoint, ProbeUse};
pub use process::{descendants, has_ended, is_ending, may_observe, own_tids, processes, thread_names};
pub use save::Sink;
pub use schedule::schedule;
pub use set::{Clock, Event, ProbeSet};
pub use stacks::{GuestSampler, OnCpuSampler, StackSampling, wall_clock};
pub use sweep::sweep;
pub use thread_reader::ThreadReader;
pub use tracefs::{mount_tracefs, tracefs};
pub use tracer::Tracer;
pub use uprobe::Uprobe;
