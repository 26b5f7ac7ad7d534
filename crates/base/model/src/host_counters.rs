//! Counters of the host's kernel for all its processes, at one moment.

/// One sample. Counters grow from the host's boot; what could not be read is `None`.
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
