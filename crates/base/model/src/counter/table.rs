//! The table of counters: what an entry says, where a number can be read, in which unit it is written, and the entries in the
//! order of columns, fields of CSV and OpenMetrics. Columns have esxtop's names where it has one.

use crate::number::{NONE, bytes, nanoseconds, significant};
use CounterSource::{
    Balloon, CpuStat, Figure, GuestTime, HugePages, Kvm, MajorFaults, MemoryEvents, MemoryPressure,
    ProcIo, ProcStatus,
};
use CounterUnit::{Bytes, BytesPerSecond, Count, PerSecond, Ratio, Time, VcpuRatio};

/// A number that the host's kernel, KVM or QEMU has of a VM, or a figure that the analysis makes of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// Name in a sample; with the unit behind it, in CSV.
    pub name: &'static str,
    /// File or answer that has it.
    pub source: CounterSource,
    /// Unit of its figure in an interval.
    pub unit: CounterUnit,
    /// Object and field of its figure in JSON (`memory_use.resident`); empty for one that has a field of `VmRates`.
    pub json: &'static str,
    /// Head of its column; empty for one without.
    pub column: &'static str,
    /// Description, a noun phrase; empty for a number that is only a part of other figures.
    pub what: &'static str,
    /// Source of the value, limits of it, and the value that is much; empty without a column.
    pub explanation: &'static str,
    /// Name in esxtop, or of the nearest there.
    pub esxtop: &'static str,
    /// Condition for a value that not every VM meets.
    pub needs: &'static str,
    /// The step from which on its column is left out where there is little room; 0: never.
    pub spare: u8,
    /// Metric for Prometheus with the sum of which the figure is a rate, a part or a mean, without the `_total` of a
    /// counter; empty where another entry has it.
    pub metric: &'static str,
    /// Description of the metric, a sentence.
    pub help: &'static str,
}

/// Where a counter is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterSource {
    /// Major page faults of the process in `/proc/PID/stat`.
    MajorFaults,
    /// Time of the process's threads in guest mode in `/proc/PID/stat`, clock ticks there; unknown where it is 0, as under
    /// TCG and on a kernel that does not count it.
    GuestTime,
    /// A line of `/proc/PID/status`, in kB there; 0 where a kernel has no such line.
    ProcStatus(&'static str),
    /// Huge pages of the process, of hugetlbfs in `/proc/PID/status`; from level 1 on also transparent ones, in
    /// `/proc/PID/smaps_rollup`.
    HugePages,
    /// A line of `/proc/PID/io`.
    ProcIo(&'static str),
    /// A time in `cpu.stat`, µs there, added up over the groups that limit the VM's threads.
    CpuStat(&'static str),
    /// A key of `memory.events` of the VM's group.
    MemoryEvents(&'static str),
    /// The total of a line of `memory.pressure` of the VM's group, µs there.
    MemoryPressure(&'static str),
    /// Statistics of KVM by its names, added up, over vCPUs, too.
    Kvm(&'static [&'static str]),
    /// The size of the guest's memory by QMP `query-balloon` or `virsh domstats`.
    Balloon,
    /// Not a number of a sample: code makes the figure.
    Figure,
}

/// A figure that the analysis makes of several numbers, without a column and a metric.
const fn figure(name: &'static str, unit: CounterUnit) -> Counter {
    Counter {
        name,
        source: Figure,
        unit,
        json: "",
        column: "",
        what: "",
        explanation: "",
        esxtop: "",
        needs: "",
        spare: 0,
        metric: "",
        help: "",
    }
}

/// A number that is read, of which no output has a figure.
const fn number(name: &'static str, source: CounterSource, unit: CounterUnit) -> Counter {
    Counter {
        source,
        ..figure(name, unit)
    }
}

pub(super) const TABLE: &[Counter] = &[
    Counter {
        what: "guest running (1) or stopped (0)",
        metric: "vmtax_vm_running",
        help: "1 where the guest runs, 0 where its vCPUs are stopped.",
        ..figure("running", Count)
    },
    Counter {
        column: "vCPU",
        what: "vCPUs of the guest",
        explanation: "The vCPUs with which QEMU was started (-smp).",
        metric: "vmtax_vm_vcpus",
        help: "vCPUs of the guest.",
        ..figure("vcpus", Count)
    },
    Counter {
        column: "%RUN",
        what: "vCPU threads on a host CPU, mean of the vCPUs",
        explanation: "esxtop sums the vCPUs up. Field 1 of /proc/PID/task/TID/schedstat. Under TCG it holds QEMU's translation of the guest's code.",
        esxtop: "%RUN (there the sum)",
        metric: "vmtax_vm_thread_cpu_seconds",
        help: "CPU time of QEMU's threads by role.",
        ..figure("run", Ratio)
    },
    Counter {
        json: "vcpu_use.guest_mode",
        what: "vCPU threads in guest mode, mean of the vCPUs",
        needs: "KVM",
        metric: "vmtax_vm_guest_mode_seconds",
        help: "CPU time of QEMU's threads in guest mode.",
        ..number("guest_mode", GuestTime, VcpuRatio)
    },
    Counter {
        column: "%RDY",
        what: "vCPU threads waiting for a host CPU (run-queue wait)",
        explanation: "Run-queue wait; the guest sees it as steal. Mean of the vCPUs, field 2 of /proc/PID/task/TID/schedstat. 10 % is the usual esxtop limit; vmtax uses the same. Kernels before 6.18 count throttling (%THR) in it.",
        esxtop: "%RDY",
        metric: "vmtax_vm_thread_run_queue_wait_seconds",
        help: "Time that QEMU's threads were runnable without a CPU, by role.",
        ..figure("ready", Ratio)
    },
    Counter {
        column: "%THR",
        what: "throttled by the CPU quota (cpu.max)",
        explanation: "Part of the vCPUs' time; esxtop: %MLMTD. throttled_usec of the control groups of the vCPU threads and of all groups above them. A group that several VMs share counts for each of them.",
        esxtop: "%MLMTD",
        metric: "vmtax_vm_throttled_seconds",
        help: "Time that the VM's control groups were throttled by a CPU quota.",
        ..number("throttled", CpuStat("throttled_usec"), VcpuRatio)
    },
    Counter {
        column: "%ST",
        what: "steal as the guest counts it (level 1)",
        explanation: "Part of the guest's CPU time, by QEMU's guest agent in the guest (guest-get-cpustats), which is asked from --level 1 on. Only KVM tells guests of steal; %RDY is the host's own figure.",
        needs: "level 1, guest agent",
        spare: 4,
        ..figure("guest_steal", Ratio)
    },
    Counter {
        column: "EXIT/s",
        what: "VM exits",
        explanation: "All vCPUs: KVM's counters in /sys/kernel/debug/kvm (root), or by QMP query-stats (QEMU 7.1 and newer). TCG has none. What they cost: --level 2, or `vmtax profile --vm`.",
        needs: "KVM; root (debugfs), or QMP and QEMU 7.1",
        spare: 4,
        metric: "vmtax_vm_exits",
        help: "VM exits of all vCPUs.",
        ..number("exits", Kvm(&["exits"]), PerSecond)
    },
    Counter {
        what: "vCPUs halted, mean of the vCPUs",
        ..number(
            "halted",
            Kvm(&["halt_wait_ns", "halt_poll_success_ns", "halt_poll_fail_ns"]),
            VcpuRatio,
        )
    },
    number("halt_exits", Kvm(&["halt_exits"]), PerSecond),
    Counter {
        column: "IOPS",
        what: "reads, writes and flushes of all disks",
        explanation: "As QEMU completes them (QMP query-blockstats; of libvirt's domains virsh domstats). Not known without a monitor.",
        esxtop: "CMDS/s",
        needs: "QMP or libvirt",
        metric: "vmtax_vm_disk_requests",
        help: "Completed requests of a disk.",
        ..figure("requests", PerSecond)
    },
    Counter {
        what: "reads of all disks",
        ..figure("reads", PerSecond)
    },
    Counter {
        what: "writes of all disks",
        ..figure("writes", PerSecond)
    },
    Counter {
        what: "flushes of all disks",
        ..figure("flushes", PerSecond)
    },
    Counter {
        what: "bytes read from all disks",
        metric: "vmtax_vm_disk_request_bytes",
        help: "Bytes of completed requests of a disk.",
        ..figure("read", BytesPerSecond)
    },
    Counter {
        what: "bytes written to all disks",
        ..figure("written", BytesPerSecond)
    },
    Counter {
        column: "BLKAVG",
        what: "mean time of a request in QEMU's block layer and below",
        explanation: "From QEMU taking it off the virtqueue until its completion (QMP query-blockstats). esxtop's GAVG is longer by the virtqueue kick and the interrupt: `vmtax layers --vm VM` traces it; the guest's own figure (AWAIT, iostat in the guest) is longer still by its queue. esxtop's QAVG is another time: that in the kernel's queue.",
        esxtop: "GAVG without virtqueue kick and interrupt; QAVG is the wait in the kernel's queue",
        needs: "QMP or libvirt",
        metric: "vmtax_vm_disk_request_seconds",
        help: "Sum of the times of completed requests of a disk, in QEMU and below.",
        ..figure("blkavg", Time)
    },
    Counter {
        column: "AWAIT",
        what: "guest await: mean time of a request as the guest's block layer counts it (level 1)",
        explanation: "iostat's await: from the guest's own disk statistics, by QEMU's guest agent (guest-get-diskstats, QEMU 7.1 and newer) in the guest, which is asked from --level 1 on. Longer than BLKAVG by the guest's queue, the virtqueue kick and the interrupt.",
        esxtop: "GAVG with the guest's own queue",
        needs: "level 1, guest agent",
        spare: 3,
        ..figure("gavg", Time)
    },
    Counter {
        column: "KAVG",
        what: "BLKAVG − DAVG of the slowest disk on a host block device: in QEMU and the host's kernel",
        explanation: "BLKAVG − DAVG of the disk with the largest, where DAVG is known. Where the kernel splits requests at the device, a lower bound. `vmtax layers --vm VM` has it of each request to a raw image or block device; of other formats (qcow2) it has GAVG and the layers above the device.",
        esxtop: "KAVG",
        needs: "as DAVG",
        spare: 3,
        ..figure("kavg", Time)
    },
    Counter {
        column: "DAVG",
        what: "mean time of requests at the host's device, of the slowest disk on a host block device",
        explanation: "Only of a disk that is itself a block device of the host (a logical volume, a partition, a whole disk) and is opened with O_DIRECT (cache=none): /sys/dev/block/MAJOR:MINOR/stat then counts this VM's requests, with times in ms; of volumes (LVM, RAID) in ticks of the kernel's clock, so that the figure needs many requests. Of several disks the largest. A file's device counts the requests of all processes: they are in the line of the host's disks. `vmtax layers --vm VM` traces those of the VM to a raw image or block device; of other formats (qcow2) the device's time is part of the host kernel's.",
        esxtop: "DAVG",
        needs: "QMP or libvirt, own VM or root; a disk on a host block device with `cache=none`",
        spare: 3,
        ..figure("davg", Time)
    },
    Counter {
        column: "p99",
        what: "99 of 100 requests take no longer (level 1)",
        explanation: "In QEMU and below: the end of the bin of QEMU's latency histogram, 25 % wide. --level 1 sets these histograms and removes them at the end.",
        needs: "level 1",
        spare: 2,
        ..figure("p99", Time)
    },
    Counter {
        column: "QD",
        what: "requests in flight in virtio disks (level 1)",
        explanation: "Taken by QEMU and not yet returned, at the interval's end (x-query-virtio-queue-status, QEMU 7.2 and newer, --level 1). esxtop: ACTV.",
        esxtop: "ACTV",
        needs: "level 1, QEMU 7.2",
        spare: 2,
        metric: "vmtax_vm_disk_requests_in_flight",
        help: "Requests of a disk that QEMU has taken and not yet returned.",
        ..figure("requests_in_flight", Count)
    },
    Counter {
        column: "PKT/s",
        what: "packets through the tap devices",
        explanation: "Both directions (/proc/PID/net/dev).",
        esxtop: "PKTTX/s + PKTRX/s",
        needs: "a tap",
        spare: 5,
        metric: "vmtax_vm_network_packets",
        help: "Packets that the guest received (rx) and sent (tx) through a tap device.",
        ..figure("packets", PerSecond)
    },
    Counter {
        what: "bytes through the tap devices, both directions",
        metric: "vmtax_vm_network_bytes",
        help: "Bytes that the guest received (rx) and sent (tx) through a tap device.",
        ..figure("network", BytesPerSecond)
    },
    Counter {
        column: "DROP/s",
        what: "packets that the tap devices dropped",
        explanation: "Those to the guest for a full receive queue, mostly.",
        esxtop: "%DRPRX",
        needs: "a tap",
        spare: 1,
        metric: "vmtax_vm_network_dropped_packets",
        help: "Packets to (rx) and from (tx) the guest that a tap device dropped.",
        ..figure("dropped_packets", PerSecond)
    },
    Counter {
        json: "memory_use.resident",
        column: "RES",
        what: "QEMU's memory in the host's RAM",
        explanation: "VmRSS of /proc/PID/status.",
        spare: 5,
        metric: "vmtax_vm_resident_bytes",
        help: "Memory of QEMU's process in the host's RAM.",
        ..number("resident", ProcStatus("VmRSS"), Bytes)
    },
    Counter {
        json: "memory_use.swapped",
        column: "SWAP",
        what: "QEMU's memory that is swapped out",
        explanation: "VmSwap of /proc/PID/status.",
        esxtop: "SWCUR",
        spare: 1,
        metric: "vmtax_vm_swapped_bytes",
        help: "Memory of QEMU's process that is swapped out.",
        ..number("swapped", ProcStatus("VmSwap"), Bytes)
    },
    Counter {
        json: "memory_use.huge",
        what: "QEMU's memory in huge pages",
        ..number("huge_page", HugePages, Bytes)
    },
    Counter {
        json: "memory_use.balloon",
        what: "the guest's memory without what the balloon holds",
        metric: "vmtax_vm_balloon_bytes",
        help: "The guest's memory without what the balloon holds.",
        ..number("balloon", Balloon, Bytes)
    },
    Counter {
        json: "memory_use.major_faults_per_s",
        column: "MFLT/s",
        what: "major page faults of QEMU",
        explanation: "The guest's memory is read from a disk. esxtop's %SWPWT is the wait for it.",
        esxtop: "%SWPWT is the wait",
        spare: 1,
        metric: "vmtax_vm_major_faults",
        help: "Page faults of QEMU's process that needed I/O.",
        ..number("major_faults", MajorFaults, PerSecond)
    },
    Counter {
        json: "memory_use.pressure_some",
        what: "some tasks of its control group waited for memory",
        metric: "vmtax_vm_memory_pressure_seconds",
        help: "Time that some or all (full) tasks of the VM's control group waited for memory.",
        ..number("memory_pressure_some", MemoryPressure("some"), Ratio)
    },
    Counter {
        json: "memory_use.pressure_full",
        what: "all tasks of its control group waited for memory",
        ..number("memory_pressure_full", MemoryPressure("full"), Ratio)
    },
    Counter {
        json: "memory_use.memory_high_per_s",
        ..number("memory_high", MemoryEvents("high"), PerSecond)
    },
    Counter {
        what: "QEMU's process reads from block devices",
        ..number("process_read", ProcIo("read_bytes"), BytesPerSecond)
    },
    Counter {
        what: "QEMU's process writes to block devices",
        ..number("process_written", ProcIo("write_bytes"), BytesPerSecond)
    },
    number("process_rchar", ProcIo("rchar"), BytesPerSecond),
];

/// The unit of the figure of a VM's counter in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterUnit {
    /// A number of something, at the interval's end.
    Count,
    /// A part of the interval, 0 to 1: in percent in a table, whose head has the sign. Its number is a time.
    Ratio,
    /// A part of the interval of each vCPU, whose times its number adds up.
    VcpuRatio,
    /// Events per second.
    PerSecond,
    /// Nanoseconds; seconds in CSV. Code makes such figures.
    Time,
    /// Number of bytes, at the interval's end.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
}

impl CounterUnit {
    /// Returns true for a number that does not only grow.
    pub fn is_gauge(self) -> bool {
        matches!(self, CounterUnit::Count | CounterUnit::Bytes)
    }

    /// Returns a number in the unit of Prometheus: a time in seconds.
    pub fn in_base_unit(self, number: u64) -> f64 {
        match self {
            CounterUnit::Ratio | CounterUnit::VcpuRatio => number as f64 / 1e9,
            _ => number as f64,
        }
    }

    /// The end of a name in CSV.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            CounterUnit::Count => "",
            CounterUnit::Ratio | CounterUnit::VcpuRatio => "_ratio",
            CounterUnit::PerSecond => "_per_second",
            CounterUnit::Time => "_seconds",
            CounterUnit::Bytes => "_bytes",
            CounterUnit::BytesPerSecond => "_bytes_per_second",
        }
    }

    /// Returns the text of a cell, at most six characters; "–" for a value that is not known.
    pub fn text(self, value: Option<f64>) -> String {
        let Some(value) = value else {
            return NONE.to_owned();
        };
        match self {
            CounterUnit::Count => format!("{value:.0}"),
            CounterUnit::Ratio | CounterUnit::VcpuRatio => short(value * 100.0),
            CounterUnit::PerSecond => rate(value),
            CounterUnit::Time => nanoseconds(value),
            CounterUnit::Bytes | CounterUnit::BytesPerSecond if value < 1.0 => "0".to_owned(),
            CounterUnit::Bytes | CounterUnit::BytesPerSecond => bytes(value as u64),
        }
    }

    /// Returns a value in the unit that its name in CSV ends with.
    pub fn in_csv(self, value: f64) -> f64 {
        match self {
            CounterUnit::Time => value / 1e9,
            _ => value,
        }
    }

    /// The sign behind a text where no head of a column says it.
    pub const fn sign(self) -> &'static str {
        match self {
            CounterUnit::Ratio | CounterUnit::VcpuRatio => " %",
            CounterUnit::PerSecond | CounterUnit::BytesPerSecond => "/s",
            CounterUnit::Count | CounterUnit::Time | CounterUnit::Bytes => "",
        }
    }
}

fn short(value: f64) -> String {
    let decimals = if value < 9.95 { 1 } else { 0 };
    format!("{value:.decimals$}")
}

fn rate(per_s: f64) -> String {
    match per_s {
        rate if rate <= 0.0 => "0".to_owned(),
        rate if rate < 9999.5 => short(rate),
        rate => format!("{}k", significant(rate / 1000.0)),
    }
}
