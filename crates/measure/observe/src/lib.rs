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

mod calls;
mod clock;
pub mod counters;
mod event_cost;
mod exits;
mod function_probes;
mod guest_code;
mod guest_devices;
mod host_disk;
mod kernel_symbols;
mod kvm_debugfs;
mod perf;
mod probe_set;
mod process;
mod schedule;
mod stacks;
mod thread_reader;
mod tracefs;
mod tracer;
mod uprobe;
mod uprobe_offset;

pub use calls::CallCounter;
pub use event_cost::{COST_OF_EVENTS, event_costs};
pub use exits::{ExitCounter, ExitTracer};
pub use function_probes::{ProbeAt, ProbePoint, ProbeUse, uprobes};
pub use guest_code::guest_code;
pub use guest_devices::{guest_disk, guest_disks, guest_nic};
pub use host_disk::{block_device_number, host_disk, host_disk_in_use, lowest_device};
pub use kernel_symbols::function_address;
pub use kvm_debugfs::{kvm_counters, kvm_features, kvm_offset, kvm_stats};
pub use perf::{SampleSettings, Sampler, Trigger};
pub use probe_set::{HOST_DISK, HostDevice, ProbeSet, TraceClock, TracedEvent};
pub use process::{
    descendants, has_ended, is_ending, may_observe, own_tids, proc_text, processes, thread_names,
};
pub use schedule::schedule;
pub use stacks::{GuestSampler, OnCpuSampler, StackSampling, wall_clock};
pub use thread_reader::{StopTime, ThreadReader, stop_time};
pub use tracefs::{Sink, mount_tracefs, tracefs};
pub use tracer::{Recorded, Tracer, VIRTQUEUE_KICKS, cpu_buffer_kib, remove_stale_traces};
pub use uprobe::Uprobe;
pub use uprobe_offset::is_cheap;

use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use vmtax_model::limit_remedy;
use vmtax_trace::stacks::StackError;

/// Nothing can be observed, or what was observed cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// tracefs is nowhere.
    #[error(
        "tracefs is not mounted: mount it with `sudo mount -t tracefs tracefs /sys/kernel/tracing`"
    )]
    NoTracefs,
    /// Threads that are traced have other numbers here.
    #[error(
        "vmtax runs in a PID namespace of its own, and the kernel's traces name threads by their numbers on the host: run it on the host, or in a container with the host's PIDs (`--pid=host`, `hostPID: true`)"
    )]
    OtherPidNamespace,
    /// The kernel's lockdown mode closes its traces to root, too.
    #[error(
        "the kernel is locked down (lockdown=confidentiality), which closes tracing to root, too: boot it with lockdown=integrity, where that is allowed"
    )]
    LockedDown,
    /// tracefs is there, but not for this user.
    #[error("no permission to use {file} ({source}): run vmtax as root", file = .file.display())]
    NotPermitted {
        /// File that could not be used.
        file: PathBuf,
        /// Error from the kernel.
        source: io::Error,
    },
    /// The kernel cannot stamp events with the counter that guest and host share.
    #[error(
        "this kernel has no trace clock x86-tsc, which is needed to join host and guest events"
    )]
    NoTsc,
    /// A file of tracefs, or of /proc or /sys.
    #[error("{what}: {source}{}", limit_remedy(.source))]
    System {
        /// Action that failed, with its object.
        what: String,
        /// Error from the kernel.
        source: io::Error,
    },
    /// The process is not there.
    #[error("no process {pid}: `pgrep -a qemu-system` lists the PIDs of QEMU")]
    NoProcess {
        /// ID of the process.
        pid: i32,
    },
    /// The process is another user's.
    #[error(
        "no permission to observe process {pid} of another user: run vmtax as root, or as that user"
    )]
    NotOurs {
        /// ID of the process.
        pid: i32,
    },
    /// The kernel lets ordinary users sample nothing.
    #[error(
        "kernel.perf_event_paranoid is {level}, so only root may sample: run vmtax as root, or `sudo sysctl kernel.perf_event_paranoid=2`"
    )]
    Paranoid {
        /// Value of the setting.
        level: String,
    },
    /// More threads on more CPUs than files may be open.
    #[error(
        "sampling needs an open file per thread and CPU, more than the limit: raise it with `ulimit -n`"
    )]
    TooManyEvents,
    /// No thread to observe with.
    #[error(
        "failed to start a thread ({0}): allow more with `ulimit -u`, or the cgroup's pids.max"
    )]
    Thread(io::Error),
    /// Neither BPF nor tracepoints of system calls, or not for this user.
    #[error(
        "failed to count system calls, by BPF ({source}) and by tracepoints ({trace}): use a distribution's kernel"
    )]
    NoCalls {
        /// Error from the kernel for BPF.
        source: io::Error,
        /// Why they cannot be traced, with what to do.
        trace: Box<ProbeError>,
    },
    /// An unstripped build that was given is of no use.
    #[error(transparent)]
    Stacks(#[from] StackError),
    /// The process was not once on a CPU, so there is nothing to show.
    #[error(
        "process {pid} was not on a CPU in {seconds:.1} s: give it work, or sample longer with --duration"
    )]
    Idle {
        /// ID of the process.
        pid: i32,
        /// For how long it was sampled.
        seconds: f64,
    },
    /// KVM's events are of a kernel that is not known here.
    #[error(
        "failed to decode KVM's events ({0}): report this as a bug of vmtax, with the kernel version"
    )]
    Trace(String),
    /// The disk is of another kind.
    #[error("{disk} is not a virtio-blk disk ({why}): give the guest a virtio-blk disk")]
    NotVirtio {
        /// Device or file of the disk.
        disk: PathBuf,
        /// Description of the disk, as far as it is known.
        why: String,
    },
    /// The network card is not there, or of another kind.
    #[error(
        "the network card {mac} cannot be traced ({why}): use a guest kernel with the driver virtio_net"
    )]
    NoNic {
        /// Hardware address of the card.
        mac: String,
        /// Description of what is wrong with the card.
        why: String,
    },
}

impl ProbeError {
    /// Returns the error for a file that could not be used.
    pub(crate) fn file(doing: &str, file: &Path, source: io::Error) -> ProbeError {
        if matches!(source.raw_os_error(), Some(libc::EACCES | libc::EPERM)) {
            return ProbeError::NotPermitted {
                file: file.into(),
                source,
            };
        }
        ProbeError::system(format!("{doing} {}", file.display()), source)
    }

    /// Returns the error for an action that failed; `what` names its object.
    fn system(what: impl Into<String>, source: io::Error) -> ProbeError {
        let what = what.into();
        ProbeError::System { what, source }
    }
}

/// Lists a folder: nothing where it cannot be read.
fn entries(folder: impl AsRef<Path>) -> impl Iterator<Item = DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

/// The text of a file of the kernel's, without the space around it; `None` where it cannot be read.
fn read_text(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The number that a file of the kernel's holds.
fn read_number<N: std::str::FromStr>(path: impl AsRef<Path>) -> Option<N> {
    read_text(path)?.parse().ok()
}
