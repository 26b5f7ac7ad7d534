//! Counters at one moment: of a running VM, by the host's kernel and its monitor where that was asked, and of the host for all its
//! processes.

use crate::{
    BlockedThread, CounterMap, KernelFailure, Missing, ProcessStop, Role, RunState, VmFacts,
    VmSettings,
};
use serde::{Deserialize, Serialize};

/// One sample of a VM. Counters grow from the start of their process, group or device; what could not be read is null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct VmCounters {
    /// PID of the VMM's process.
    pub pid: i32,
    /// When the process started, clock ticks since boot: a PID is used again.
    pub started: u64,
    /// When it was sampled: the host's monotonic clock, ns.
    pub at_ns: u64,
    /// State of the guest; null where nobody was asked.
    pub state: Option<RunState>,
    /// Signal or tracer that stopped its process; null while its threads may run.
    pub process_stop: Option<ProcessStop>,
    /// Time without an answer of QEMU's monitor, s; null where it answered, was not asked, or serves another client.
    pub monitor_timeout_s: Option<f64>,
    /// Threads in uninterruptible sleep; the main loop, too, where the monitor did not answer.
    #[serde(default)]
    pub blocked: Vec<BlockedThread>,
    /// Failure of the guest's kernel at the end of a console that QEMU writes to a file; null without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_failure: Option<KernelFailure>,
    /// Threads of its process, with the kernel's threads that serve it.
    pub threads: Vec<ThreadCounters>,
    /// Counters that are one number each.
    #[serde(default)]
    pub counters: CounterMap<u64>,
    /// Counters of the guest's disks.
    pub disks: Vec<DiskCounters>,
    /// Virtqueues of disks in which requests stayed; read by `vmtax diagnose` alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stalled_queues: Vec<StalledQueue>,
    /// Counters of the VM's tap devices.
    pub nics: Vec<NicCounters>,
    /// Counters of the guest itself; null without an agent in it that answers.
    pub guest: Option<GuestCounters>,
    /// Time that the monitor took over its answers, ns.
    pub monitor_ns: Option<u64>,
    /// Programs that serve its vhost-user devices.
    #[serde(default)]
    pub daemons: Vec<DaemonCounters>,
    /// Settings of the VM, as they were last read.
    #[serde(default)]
    pub settings: VmSettings,
}

/// `vm-counters.json`: a running VM at the begin and the end of an interval in which nothing else observed it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VmSamples {
    /// [`crate::SCHEMA`] of the writer.
    pub schema: u32,
    /// Facts about the VM at the end.
    pub vm: VmFacts,
    /// At the begin.
    pub before: VmCounters,
    /// At the end.
    pub after: VmCounters,
    /// Activity of the host meanwhile.
    #[serde(default)]
    pub host: HostActivity,
    /// Data that the counters lack.
    pub missing: Vec<Missing>,
}

/// Activity of the host between two samples of a VM, besides the VM's own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostActivity {
    /// Work of the kernel's NUMA balancing; null where it does none.
    pub numa: Option<NumaBalancing>,
    /// Other processes that read or wrote a device beneath the VM's disks, those with most bytes first.
    pub device_users: Vec<DeviceUser>,
}

/// Work of the kernel's NUMA balancing for all processes of the host: `numa_hint_faults`, `numa_pages_migrated` of /proc/vmstat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct NumaBalancing {
    /// Page faults in memory that it unmapped, per second.
    pub hint_faults_per_s: f64,
    /// Pages that it moved to another node, per second.
    pub migrated_per_s: f64,
}

/// A process that has files open on a block device and does I/O on block devices.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceUser {
    /// PID of the process.
    pub pid: i32,
    /// Name of the process, as the kernel keeps it.
    pub name: String,
    /// Name of the device on which it has files open: `sda`.
    pub device: String,
    /// Bytes that it reads from block devices per second.
    pub read_per_s: f64,
    /// Bytes that it writes to block devices per second.
    pub written_per_s: f64,
}

/// Data that an observer of a diagnosis could not observe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotObserved {
    /// [`crate::SCHEMA`] of the writer.
    pub schema: u32,
    /// Missing data, with the reason.
    pub missing: Missing,
}

/// Counters of the guest itself, as QEMU's guest agent reports them: `guest-get-cpustats`, `guest-get-diskstats`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestCounters {
    /// Time of all its CPUs, idle or not, ms.
    pub cpu_ms: u64,
    /// Of it, stolen: waiting for a host CPU.
    pub steal_ms: u64,
    /// Counters of the guest's disks.
    pub disks: Vec<GuestDiskCounters>,
}

/// A disk, as the guest's kernel counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestDiskCounters {
    /// The guest's name of it.
    pub name: String,
    /// Completed requests of all kinds.
    pub requests: u64,
    /// Sum of their times, ms.
    pub total_ms: u64,
}

/// A thread of a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadCounters {
    /// TID on the host.
    pub tid: i32,
    /// Role of the thread.
    pub role: Role,
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Time runnable without a CPU, ns: field 2 of `/proc/PID/task/TID/schedstat`.
    pub wait_ns: u64,
    /// Number of times that the thread got a CPU: field 3 there.
    #[serde(default)]
    pub turns: u64,
    /// Time that the CPU quota of its control group was used up, ns; null unless the group has no other thread, as libvirt's of vCPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_ns: Option<u64>,
}

/// A program that serves a device of the VM from a process of its own: virtiofsd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonCounters {
    /// PID of the daemon.
    pub pid: i32,
    /// The tag of the tree that it serves.
    pub tag: String,
    /// True if a signal stopped the daemon; now.
    pub is_stopped: bool,
    /// Threads of the daemon.
    pub threads: Vec<ThreadCounters>,
    /// Time in which its threads had used up their CPU quota, summed over CPUs, µs.
    pub throttled_us: Option<u64>,
    /// The folder of its control group with a CPU quota and no other process; null where there is none.
    pub cgroup: Option<String>,
}

/// A disk of a guest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskCounters {
    /// The name of its device, else the file behind it.
    pub name: String,
    /// Reads, writes, flushes as QEMU counts them from taking a request off the queue until its completion; null without a monitor.
    pub qemu: Option<[RequestCounters; 3]>,
    /// Requests of the host's block device beneath, of all its users.
    pub device: Option<BlockDevice>,
    /// Requests of the block device that is the disk itself; null where the disk is a file, or QEMU uses the host's page cache.
    pub own_device: Option<BlockDevice>,
    /// Requests in a virtqueue that the device has taken and not yet returned; now.
    pub in_flight: Option<u64>,
    /// Latencies since QEMU's histograms were set, of reads, writes, flushes; null where they are not set.
    pub histograms: Option<Vec<LatencyHistogram>>,
}

/// A virtqueue of a disk in which requests stayed without one being completed, as the guest's memory shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StalledQueue {
    /// Requests that were in the queue for the whole time.
    pub requests: u32,
    /// Time in which none of the queue's requests was completed, s; at least, as it began before the first sample.
    pub seconds: f64,
    /// Requests in the queue that came after the VMM last found it empty; 0: the VMM has taken all. Null where the device does not say.
    pub since_empty: Option<u32>,
    /// Reads, writes, flushes and others among these requests; null where they could not be read, or others came later.
    pub operations: Option<[u32; 4]>,
}

/// Requests of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCounters {
    /// Number of completed requests.
    pub count: u64,
    /// Bytes of these requests.
    pub bytes: u64,
    /// Sum of their times, ns.
    pub total_ns: u64,
}

/// A block device of the host, as its `stat` file has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockDevice {
    /// Name of the device.
    pub name: String,
    /// Completed requests of all kinds.
    pub requests: u64,
    /// Sum of their times, ms.
    pub total_ms: u64,
    /// Length of a tick of the kernel's clock, ns, where the kernel counts the time of each request in ticks, as it does
    /// of a device without a request queue; else 0.
    #[serde(default)]
    pub tick_ns: u64,
}

/// QEMU's histogram of one kind of request: `block-latency-histogram-set`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyHistogram {
    /// Where its bins end, ns, without the last, which has no end.
    pub boundaries: Vec<u64>,
    /// Requests in each bin: one more than boundaries.
    pub bins: Vec<u64>,
}

/// A tap device, as the host sees it: what the guest sends it receives. Here it is the guest's view.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicCounters {
    /// The interface on the host.
    pub tap: String,
    /// Packets that the guest received.
    pub rx_packets: u64,
    /// Bytes of these packets.
    pub rx_bytes: u64,
    /// Packets to the guest that were dropped: its receive queue was full.
    pub rx_dropped: u64,
    /// Packets that the guest sent.
    pub tx_packets: u64,
    /// Bytes of these packets.
    pub tx_bytes: u64,
    /// Packets of the guest that were dropped.
    pub tx_dropped: u64,
}
/// One sample of the host. Counters grow from its boot; what could not be read is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostCounters {
    /// Time of the sample: the host's monotonic clock, ns.
    pub at_ns: u64,
    /// CPUs that are online.
    pub cpus: usize,
    /// Time that all CPUs ran tasks or interrupts, ms.
    pub busy_ms: u64,
    /// Tasks that run or wait for a CPU: `procs_running` of `/proc/stat`.
    pub runnable: Option<u64>,
    /// Load average of one minute.
    pub load: Option<f64>,
    /// Memory of the host, bytes.
    pub memory: Option<u64>,
    /// Memory of it that new programs can have without swapping, bytes: `MemAvailable`.
    pub available: Option<u64>,
    /// Bytes read from swap: `pswpin` of `/proc/vmstat`.
    pub swapped_in: Option<u64>,
    /// Bytes written to swap: `pswpout` there.
    pub swapped_out: Option<u64>,
    /// CPU time of each process; empty where it was not read.
    pub processes: Vec<ProcessCpu>,
}

/// CPU time of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessCpu {
    /// PID of the process.
    pub pid: i32,
    /// Start of the process, clock ticks since boot: a PID is used again.
    pub started: u64,
    /// Name of the process, as the kernel keeps it.
    pub name: String,
    /// CPU time of all its threads, also of those that ended, ms.
    pub cpu_ms: u64,
}
