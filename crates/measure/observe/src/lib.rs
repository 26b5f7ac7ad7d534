//! What observes a trial: tracepoints and uprobes, through tracefs instances of our own, on the host and in the guest.
//!
//! A [`ProbeSet`] says what; a [`Tracer`] does it and leaves nothing behind; [`sweep`] removes what a killed one left.
//! A guest's first process calls [`mount_tracefs`] before. What observing costs, `examples/observer.rs` measures.

mod calls;
mod error;
mod fiemap;
mod guest_disk;
mod held;
mod host_disk;
mod kvm_counters;
mod look;
mod perf;
mod place;
#[cfg(test)]
mod place_tests;
mod points;
mod qemu;
#[cfg(test)]
mod qemu_tests;
mod save;
mod set;
mod sweep;
mod threads;
mod tracefs;
mod tracer;
mod uprobe;

pub use calls::CallCounter;
pub use error::ProbeError;
pub use guest_disk::guest_disk;
pub use host_disk::host_disk;
pub use kvm_counters::kvm_counters;
pub use look::{Look, Looker, State};
pub use perf::{Sampler, Sampling, Trigger};
pub use qemu::uprobes;
pub use save::Sink;
pub use set::{Clock, Event, ProbeSet};
pub use sweep::sweep;
pub use threads::{kvm_offset, threads};
pub use tracefs::{mount_tracefs, tracefs};
pub use tracer::Tracer;
pub use uprobe::Uprobe;
