//! The metadata needed to read a trial's traces: `trace.json`, beside the raw pages. Time that a recorded event adds to
//! the thread that passes it.

use crate::checkpoint::{CheckpointInfo, DISK, NETWORK};
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// Probes that observe a trial.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Probes {
    /// Nothing: the untraced control of each traced trial.
    #[default]
    None,
    /// Every layer of a block request.
    Layers,
    /// Every layer of a round trip over the network.
    Network,
    /// All system calls of QEMU's threads, in a trial of its own: a request makes about twenty, and tracing each costs time.
    Calls,
    /// Samples and system calls of the guest, observed by its own kernel.
    Inside(Inside),
}

impl Probes {
    /// The table of the checkpoints that are observed; empty where no requests are followed. The one place that decides
    /// which class of device a trial is about: the plan, the trial's record and the guest agent's request have it.
    pub const fn checkpoints(self) -> &'static [CheckpointInfo] {
        match self {
            Probes::Layers => DISK,
            Probes::Network => NETWORK,
            Probes::None | Probes::Calls | Probes::Inside(_) => &[],
        }
    }

    /// Returns true if requests are followed through the layers.
    pub const fn follows_requests(self) -> bool {
        !self.checkpoints().is_empty()
    }
}

/// Settings for observing a guest from the inside.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Inside {
    /// Samples per second of each vCPU that is not idle; 0 for none.
    pub hz: u32,
    /// Bytes of the stack copied with each sample.
    pub stack: u32,
    /// Grouping by which system calls are counted; `None` where they are not counted.
    pub calls: Option<CountBy>,
}

/// Grouping of counted system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountBy {
    /// By system call.
    Call,
    /// By call and process.
    Process,
}

/// A system call's count and times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCount {
    /// System call number of x86-64.
    pub call: u32,
    /// Process; null where they are not grouped by process.
    pub pid: Option<i32>,
    /// Number of returns.
    pub count: u64,
    /// Total time of these calls, ns.
    pub total_ns: u64,
    /// Time of the shortest call, ns.
    pub min_ns: u64,
    /// Time of the longest call, ns.
    pub max_ns: u64,
}

/// The role of a QEMU thread.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The main loop.
    Main,
    /// A vCPU thread, of this vCPU.
    Vcpu(u32),
    /// An IOThread, by its name.
    Iothread(String),
    /// A thread of the pool for blocking calls.
    Worker,
    /// A thread of the host's kernel that moves packets of the guest's (vhost): QEMU's own since Linux 6.4, before a kernel thread.
    Vhost,
    /// Any other, by its name.
    Other(String),
}

impl Role {
    /// The name of a thread of the server that answers requests over the network.
    pub const ECHO_SERVER: &str = "echo server";
    /// The name of a thread of passt.
    pub const PASST: &str = "passt";

    /// Returns true if it is a thread of this name that has no role of QEMU's own.
    pub fn is_other(&self, name: &str) -> bool {
        matches!(self, Role::Other(other) if other == name)
    }

    /// Returns true for a thread that serves the guest as long as the VM runs: those of the pool come and go.
    pub fn stays(&self) -> bool {
        matches!(self, Role::Main | Role::Vcpu(_) | Role::Iothread(_))
    }

    /// By the name of a thread, which QEMU gives with `-name guest,debug-threads=on`: `CPU 0/KVM`, `CPU 0/TCG`, `ALL CPUs/TCG` for
    /// one thread that runs them all, `IO NAME` (cut off at 15 bytes by the kernel).
    pub fn of_thread_name(name: &str) -> Role {
        let number = || name.strip_prefix("CPU ")?.split_once('/')?.0.parse().ok();
        match name.strip_prefix("IO ") {
            // The monitors' own, which serves no device.
            Some("mon_iothread") => Role::Other(name.to_owned()),
            Some(iothread) => Role::Iothread(iothread.to_owned()),
            None if name.starts_with("ALL CPUs") => Role::Vcpu(0),
            None if name == "worker" => Role::Worker,
            // As the kernel names it, with QEMU's PID.
            None if name
                .strip_prefix("vhost-")
                .is_some_and(|pid| pid.parse::<u32>().is_ok()) =>
            {
                Role::Vhost
            }
            None => number().map_or_else(|| Role::Other(name.to_owned()), Role::Vcpu),
        }
    }

    /// For people: "main loop", "vCPU 0", "iothread io0", "worker".
    pub fn label(&self) -> String {
        match self {
            Role::Main => "main loop".to_owned(),
            Role::Vcpu(n) => format!("vCPU {n}"),
            Role::Iothread(name) => format!("iothread {name}"),
            Role::Worker => "worker".to_owned(),
            Role::Vhost => "vhost worker".to_owned(),
            Role::Other(name) => name.clone(),
        }
    }
}

/// A thread of QEMU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QemuThread {
    /// TID on the host.
    pub tid: i32,
    pub role: Role,
}

/// Exchanges of stamps through shared memory at one time: for every host stamp `h` and guest stamp `g` of one moment,
/// `low <= h - g <= high`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ping {
    /// Time of the exchanges, host ticks.
    pub at: u64,
    /// Smallest possible offset, ticks.
    pub low: i64,
    /// Largest possible offset, ticks.
    pub high: i64,
    /// Number of exchanges that bound it.
    pub exchanges: u64,
}

/// An extent of the disk's file on the host's block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Offset in the file, bytes.
    pub file: u64,
    /// Offset on the device that block requests name, bytes.
    pub device: u64,
    /// Length of the extent, bytes.
    pub length: u64,
}

/// One moment on the host's TSC and `CLOCK_REALTIME`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Ticks of the host's TSC.
    pub ticks: u64,
    /// `CLOCK_REALTIME`, ns since 1970: the clock of QEMU's log.
    pub realtime_ns: u64,
}

/// One moment on the TSC and on `CLOCK_MONOTONIC`, of the host or the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// Ticks of the TSC.
    pub ticks: u64,
    /// `CLOCK_MONOTONIC` in ns.
    pub monotonic_ns: u64,
}

/// `inside.json`: the metadata needed to join samples taken inside a guest with those of its QEMU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsideFacts {
    /// [`crate::SCHEMA`] of the writer.
    pub schema: u32,
    /// QEMU's threads at the end of the trial.
    pub threads: Vec<QemuThread>,
    /// Exchanges before and after the workload.
    pub pings: Vec<Ping>,
    /// Host ticks minus guest ticks, as KVM keeps the offset; exact.
    pub kvm_offset: Option<i64>,
    /// The host's clocks before and after the workload.
    pub beats: [ClockReading; 2],
    /// Data that could not be observed.
    pub missing: Vec<Missing>,
}

/// Where system calls are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountMethod {
    /// Inside the kernel, by BPF.
    #[default]
    InKernel,
    /// In user space, from a record of each call, where the kernel has no BPF.
    CallByCall,
}

/// The guest's system calls, as its agent counted them; in findings each row is a `GuestCall`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallCounts<Row = CallCount> {
    #[serde(default, rename = "way")]
    pub method: CountMethod,
    /// By total time, largest first.
    pub rows: Vec<Row>,
    /// Calls that were not counted for lack of room; without BPF, lost records.
    pub lost: u64,
    /// Counting overhead per call, ns, measured in the guest before the workload; null where it could not be.
    pub added_ns: Option<f64>,
}

/// The measured disk on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostDisk {
    /// The device's number as the kernel's block events print it (`major << 20 | minor`); `None` where the file lies on
    /// no block device.
    pub device: Option<u64>,
    /// Tells that the device has no request queue, as a logical volume or a RAID: its events are of bios.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_bio_based: bool,
    /// The file's extents, in order; empty where the file system has no FIEMAP.
    pub extents: Vec<Extent>,
    /// QEMU's descriptors of the file; empty where they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub descriptors: Vec<i32>,
}

/// The measured disk in the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestDisk {
    /// The device's number as the guest's block events print it.
    pub device: u64,
    /// The interrupts of its request queues.
    pub interrupts: Vec<u32>,
}

/// The guest's network card that is measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestNic {
    /// As the guest's kernel calls it, as `eth0`; empty in recordings of an older vmtax.
    #[serde(default)]
    pub name: String,
    /// The interrupts of its receive queues.
    pub interrupts: Vec<u32>,
}

/// Something that could not be observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Data that is missing.
    pub what: String,
    /// Reason why it is missing.
    pub why: String,
    /// Action that makes it observable; older recordings call it `mend`.
    #[serde(alias = "mend")]
    pub fix: String,
}

impl Missing {
    /// Returns the data that an error prevents from being observed. The text of the error after its first colon is the
    /// `fix`.
    pub fn for_error(what: &str, error: &dyn std::error::Error) -> Missing {
        let said = error.to_string();
        let (why, fix) = said.split_once(": ").unwrap_or((&said, ""));
        Missing {
            what: what.to_owned(),
            why: why.to_owned(),
            fix: fix.to_owned(),
        }
    }
}

/// `trace.json`: the metadata needed to read a trial's traces.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceFacts {
    /// [`crate::SCHEMA`] of the writer.
    pub schema: u32,
    /// Ticks of the host's time stamp counter per microsecond.
    pub tsc_mhz: f64,
    /// PID of QEMU.
    pub qemu: i32,
    /// Threads of QEMU at the end of the trial.
    pub threads: Vec<QemuThread>,
    /// Exchanges before and after the workload.
    pub pings: Vec<Ping>,
    /// Ticks and time of day, before and after the workload; empty where QEMU's log was not recorded.
    #[serde(default)]
    pub moments: Vec<Moment>,
    /// Host ticks minus guest ticks, as KVM keeps the offset; exact.
    pub kvm_offset: Option<i64>,
    /// The disk on the host.
    pub host_disk: HostDisk,
    /// The disk in the guest; `None` for the micro-guest, which has no kernel.
    pub guest_disk: Option<GuestDisk>,
    /// The network card in the guest, where round trips over the network are followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_nic: Option<GuestNic>,
    /// The ports or addresses by which the guest kicks the device's virtqueues: first and length.
    pub notify: Vec<(u64, u64)>,
    /// The VMM's descriptors of the tap of a running VM's network card; empty where its calls count by their names alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tap: Vec<i32>,
    /// Costs of events on the host, by repetitions right after the trial; empty where they were not measured.
    #[serde(default)]
    pub host_costs: Vec<EventCost>,
    /// Costs of events in the guest, likewise.
    #[serde(default)]
    pub guest_costs: Vec<EventCost>,
    /// Data that could not be observed on either side.
    pub missing: Vec<Missing>,
}

/// The files of a trial with probes, inside its folder.
pub mod files {
    /// Metadata of the traces: [`super::TraceFacts`].
    pub const FACTS: &str = "trace.json";
    /// The workload's stamps: [`crate::Series`].
    pub const SERIES: &str = "ops.series";
    /// fio's own output.
    pub const FIO: &str = "fio.json";
    /// The folder of the guest's trace.
    pub const GUEST: &str = "guest-trace";
    /// The folder of the host's trace.
    pub const HOST: &str = "host-trace";
    /// In it: QEMU's log, where the host's kernel may not be traced.
    pub const QEMU_LOG: &str = "qemu.log";
    /// Facts about imported files: [`crate::ImportFacts`].
    pub const IMPORT: &str = "import.json";
    /// [`crate::ObservedGuest`]: the trace of that guest's kernel is in [`GUEST`].
    pub const GUEST_FACTS: &str = "guest-facts.json";
    /// The file of `vmtax agent observe`, until it is read into [`GUEST`].
    pub const GUEST_FILE: &str = "guest.trace";
    /// Metadata of a running VM's trace: [`crate::VmTrace`].
    pub const VM_TRACE: &str = "vm-trace.json";
    /// Counters of a running VM: [`crate::VmSamples`].
    pub const VM_COUNTERS: &str = "vm-counters.json";
    /// A [`crate::TuneRecord`] a line.
    pub const TUNE: &str = "tune.jsonl";
    /// Why a diagnosis has no profile: [`crate::NotObserved`].
    pub const MISSING_PROFILE: &str = "missing-profile.json";
    /// Why it has no requests by layer: [`crate::NotObserved`].
    pub const MISSING_REQUESTS: &str = "missing-requests.json";
    /// In a diagnosis whose VM ended meanwhile: [`crate::NotObserved`].
    pub const MISSING_END: &str = "missing-end.json";
    /// Metadata of samples taken inside a guest: [`super::InsideFacts`].
    pub const INSIDE: &str = "inside.json";
    /// The stacks sampled inside the guest.
    pub const GUEST_PROFILE: &str = "guest-profile.json";
    /// Counts of the guest's system calls: [`super::CallCounts`].
    pub const GUEST_CALLS: &str = "guest-calls.json";
    /// Facts about the observed process: [`crate::samples::ProfileFacts`].
    pub const OBSERVED: &str = "observed.json";
    /// CPU time before and after sampling: [`crate::samples::CpuUses`].
    pub const CPU_USE: &str = "cpu-use.json";
    /// Stacks of threads that ran: [`crate::samples::OnCpu`].
    pub const ON_CPU: &str = "on-cpu.json";
    /// Wall-clock samples: [`crate::samples::WallClock`].
    pub const WALL_CLOCK: &str = "wall-clock.json";
    /// Metadata of the schedule trace: [`crate::samples::ScheduleFacts`].
    pub const SCHEDULE: &str = "schedule.json";
    /// The folder of the scheduler's events and system calls of a process.
    pub const SCHEDULE_TRACE: &str = "schedule-trace";
    /// Counted VM exits: [`crate::samples::ExitCounts`].
    pub const EXITS: &str = "exits.json";
    /// Sampled instruction pointers of vCPUs: [`crate::samples::CodeSamples`].
    pub const GUEST_CODE: &str = "guest-code.json";
    /// In the folder of a trial: the memory tree of a QEMU with KVM, as `info mtree -f` prints it.
    pub const MEMORY_TREE: &str = "memory-tree";
}

/// Kinds of events, by how the kernel records them: within a kind the cost is about the same.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum EventKind {
    /// A system call's entry or return.
    Call,
    /// `sched_switch` or `sched_waking`.
    Schedule,
    /// Any other tracepoint.
    Tracepoint,
    /// A uprobe on an instruction that the kernel emulates.
    Uprobe,
    /// A kprobe on the kernel.
    Kprobe,
}

impl EventKind {
    /// Every kind, in the order of declaration: `ALL[kind as usize] == kind`.
    pub const ALL: [EventKind; 5] = [
        EventKind::Call,
        EventKind::Schedule,
        EventKind::Tracepoint,
        EventKind::Uprobe,
        EventKind::Kprobe,
    ];

    /// For people: "system call", "scheduler", ….
    pub const fn label(self) -> &'static str {
        match self {
            EventKind::Call => "system call",
            EventKind::Schedule => "scheduler",
            EventKind::Tracepoint => "tracepoint",
            EventKind::Uprobe => "uprobe",
            EventKind::Kprobe => "kprobe",
        }
    }
}

/// One repetition of a calibration: what an event of a kind took in a thread that had just slept, with the events recorded
/// less without. May be negative by chance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EventCost {
    pub kind: EventKind,
    /// The first event of the kind since the thread slept, ns: caches have forgotten the code that records it.
    pub first_ns: f64,
    /// Another right after it, ns.
    pub again_ns: f64,
}
