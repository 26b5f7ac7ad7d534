//! Observes a process or a guest, and leaves samples, counts and traces; other crates interpret them.
//!
//! - Tracepoints and uprobes, through tracefs instances of our own, on the host and in the guest: a [`ProbeSet`] says
//!   which, a [`Tracer`] traces and leaves nothing behind; [`remove_stale_traces`] removes what a killed one left. A
//!   guest's first process calls [`mount_tracefs`] before. [`event_costs`] measures the cost of an event,
//!   `examples/observer.rs` the cost of observing.
//! - Stacks: [`OnCpuSampler`], [`wall_clock`], in a guest [`GuestSampler`]. The scheduler's events: [`schedule`].
//! - Counters of a process, its control group, taps and block devices: [`counters`].
//! - VM exits: [`ExitTracer`], [`kvm_counters`]. Code that vCPUs execute: [`guest_code`].
//! - System calls: [`CallCounter`].

mod argument_registers;
mod calls;
mod clock;
pub mod counters;
mod error;
mod event_cost;
mod event_cost_partner;
mod exits;
mod fiemap;
mod function_probes;
mod guest_code;
mod guest_disk;
mod guest_nic;
mod host_disk;
mod kvm_debugfs;
mod perf;
mod probe_point;
mod probe_set;
mod process;
mod record;
mod schedule;
mod stacks;
mod stale_traces;
mod stop_time;
mod thread_reader;
mod trace_sink;
mod tracefs;
mod tracer;
mod uprobe;
mod uprobe_offset;
#[cfg(test)]
mod uprobe_offset_tests;

pub use calls::CallCounter;
pub use error::ProbeError;
pub use event_cost::{COST_OF_EVENTS, event_costs};
pub use exits::{ExitCounter, ExitTracer};
pub use function_probes::uprobes;
pub use guest_code::guest_code;
pub use guest_disk::{guest_disk, guest_disks};
pub use guest_nic::guest_nic;
pub use host_disk::{block_device_number, host_disk, host_disk_in_use, lowest_device};
pub use kvm_debugfs::{kvm_counters, kvm_exits, kvm_offset};
pub use perf::{SampleSettings, Sampler, Trigger};
pub use probe_point::{ProbeAt, ProbePoint, ProbeUse};
pub use probe_set::{HOST_DISK, HostDevice, ProbeSet, TraceClock, TracedEvent};
pub use process::{
    descendants, has_ended, is_ending, may_observe, own_tids, processes, thread_names,
};
pub use record::{Recorded, cpu_buffer_kib};
pub use schedule::schedule;
pub use stacks::{GuestSampler, OnCpuSampler, StackSampling, wall_clock};
pub use stale_traces::remove_stale_traces;
pub use stop_time::{StopTime, stop_time};
pub use thread_reader::ThreadReader;
pub use trace_sink::Sink;
pub use tracefs::{mount_tracefs, tracefs};
pub use tracer::{Tracer, VIRTQUEUE_KICKS};
pub use uprobe::Uprobe;
pub use uprobe_offset::is_cheap;
