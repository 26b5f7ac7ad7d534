//! What it takes to read the traces of a trial: `trace.json`, beside the raw pages.

use crate::checkpoint::{CheckpointInfo, DISK};
use serde::{Deserialize, Serialize};

/// What observes a trial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Probes {
    /// Nothing: the control beside each observed trial.
    #[default]
    None,
    /// Every layer of a block request.
    Layers,
    /// All system calls of QEMU's threads: of a trial of its own, since a request has twenty and each takes its time.
    Calls,
    /// What runs in the guest, seen from its inside.
    Inside(Inside),
}

impl Probes {
    /// The table of the checkpoints that are observed; empty where no requests are followed. The one place that decides
    /// which class of device a trial is about: the plan, the trial's record and the guest agent's request have it.
    pub const fn checkpoints(self) -> &'static [CheckpointInfo] {
        match self {
            Probes::Layers => DISK,
            Probes::None | Probes::Calls | Probes::Inside(_) => &[],
        }
    }
}

/// How a guest is looked at from its inside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Inside {
    /// Samples a second of each CPU that is not idle; 0 for none.
    pub hz: u32,
    /// Bytes copied of a stack with each sample.
    pub stack: u32,
    /// Whether system calls are counted, and how.
    pub calls: Option<CountBy>,
}

/// How system calls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountBy {
    /// By call.
    Call,
    /// By call and process.
    Process,
}

/// A system call's count and times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCount {
    /// Its number, x86-64's.
    pub call: u32,
    /// The process; null where all are together.
    pub pid: Option<i32>,
    /// How often it returned.
    pub count: u64,
    /// All together.
    pub total_ns: u64,
    /// The shortest.
    pub min_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// What a thread of QEMU is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The main loop.
    Main,
    /// Runs the vCPU of this number.
    Vcpu(u32),
    /// An iothread, of this name.
    Iothread(String),
    /// The pool that does blocking calls.
    Worker,
    /// Any other, of this name.
    Other(String),
}

impl Role {
    /// For people: "main loop", "vCPU 0", "iothread io0", "worker".
    pub fn label(&self) -> String {
        match self {
            Role::Main => "main loop".to_owned(),
            Role::Vcpu(n) => format!("vCPU {n}"),
            Role::Iothread(name) => format!("iothread {name}"),
            Role::Worker => "worker".to_owned(),
            Role::Other(name) => name.clone(),
        }
    }
}

/// A thread of QEMU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QemuThread {
    /// Its number on the host.
    pub tid: i32,
    /// What it is for.
    pub role: Role,
}

/// Exchanges of stamps through shared memory at one time: for every host stamp `h` and guest stamp `g` of one moment,
/// `low <= h - g <= high`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ping {
    /// When, host ticks.
    pub at: u64,
    /// The least possible offset, ticks.
    pub low: i64,
    /// The greatest.
    pub high: i64,
    /// How many exchanges bounded it.
    pub exchanges: u64,
}

/// A run of bytes of the disk's file as it lies on the host's device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Where it begins in the file, bytes.
    pub file: u64,
    /// Where it begins on the device that block requests name, bytes.
    pub device: u64,
    /// How long it is, bytes.
    pub length: u64,
}

/// One moment on two clocks of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Ticks.
    pub ticks: u64,
    /// `CLOCK_REALTIME`, nanoseconds since 1970: what QEMU's own log is stamped with.
    pub realtime_ns: u64,
}

/// One moment on the time stamp counter and on `CLOCK_MONOTONIC`, of the host or of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// Ticks.
    pub ticks: u64,
    /// Nanoseconds.
    pub monotonic_ns: u64,
}

/// `inside.json`: what it takes to bring what was seen inside a guest together with what was seen of its QEMU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsideFacts {
    /// [`crate::SCHEMA`] of the writer.
    pub schema: u32,
    /// QEMU's threads, as they were when the trial ended.
    pub threads: Vec<QemuThread>,
    /// The exchanges before and after the workload.
    pub pings: Vec<Ping>,
    /// Host ticks minus guest ticks as KVM itself keeps them; exact.
    pub kvm_offset: Option<i64>,
    /// The host's clocks before and after the workload.
    pub beats: [Beat; 2],
    /// What could not be seen.
    pub missing: Vec<Missing>,
}

/// How system calls are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountWay {
    /// Inside the kernel, by BPF.
    #[default]
    InKernel,
    /// From a record of each call, where the kernel has no BPF.
    CallByCall,
}

/// The guest's system calls, as they were counted there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallCounts {
    /// How.
    #[serde(default)]
    pub way: CountWay,
    /// By call, or by call and process; those with most time first.
    pub rows: Vec<CallCount>,
    /// Calls that there was no room for; call by call, records.
    pub lost: u64,
    /// What counting adds to a call, ns, as measured there before the workload.
    pub added_ns: Option<f64>,
}

/// The measured disk as the host has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostDisk {
    /// The device's number as the kernel's block events print it (`major << 20 | minor`); `None` where the file lies on
    /// no block device.
    pub device: Option<u64>,
    /// The file's extents, in order; empty where the file system does not tell.
    pub extents: Vec<Extent>,
}

/// The measured disk as the guest has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestDisk {
    /// The device's number as the guest's block events print it.
    pub device: u64,
    /// The interrupts of its request queues.
    pub interrupts: Vec<u32>,
}

/// Something that could not be observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// What is missing.
    pub what: String,
    /// Why.
    pub why: String,
    /// What to do about it; recordings of before call it `fix`.
    #[serde(alias = "fix")]
    pub fix: String,
}

impl Missing {
    /// What an error stands in the way of. Errors say what to do after a colon.
    pub fn for_error(what: &str, error: &dyn std::error::Error) -> Missing {
        let said = error.to_string();
        let (why, fix) = said.split_once(": ").unwrap_or((&said, ""));
        Missing { what: what.to_owned(), why: why.to_owned(), fix: fix.to_owned() }
    }
}

/// `trace.json`: what it takes to read a trial's traces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceFacts {
    /// [`crate::SCHEMA`] of the writer.
    pub schema: u32,
    /// Ticks of the host's time stamp counter per microsecond.
    pub tsc_mhz: f64,
    /// QEMU's process.
    pub qemu: i32,
    /// Its threads, as they were when the trial ended.
    pub threads: Vec<QemuThread>,
    /// The exchanges before and after the workload.
    pub pings: Vec<Ping>,
    /// Ticks beside the time of day, before and after the workload; empty where QEMU's own log was not taken.
    #[serde(default)]
    pub moments: Vec<Moment>,
    /// Host ticks minus guest ticks as KVM itself keeps them; exact.
    pub kvm_offset: Option<i64>,
    /// The disk on the host.
    pub host_disk: HostDisk,
    /// The disk in the guest; `None` for the micro-guest, which has no kernel.
    pub guest_disk: Option<GuestDisk>,
    /// The ports or addresses by which the guest notifies the disk: first and length.
    pub notify: Vec<(u64, u64)>,
    /// What could not be observed on either side.
    pub missing: Vec<Missing>,
}

/// The files of a trial with probes, inside its folder.
pub mod files {
    /// [`super::TraceFacts`].
    pub const FACTS: &str = "trace.json";
    /// The workload's own stamps: [`crate::Series`].
    pub const SERIES: &str = "ops.series";
    /// The folder of the guest's trace.
    pub const GUEST: &str = "guest-trace";
    /// The folder of the host's trace.
    pub const HOST: &str = "host-trace";
    /// In it: what QEMU's own log backend wrote, where the host's kernel may not be traced.
    pub const QEMU_LOG: &str = "qemu.log";
    /// [`super::InsideFacts`].
    pub const INSIDE: &str = "inside.json";
    /// The stacks that were seen inside the guest.
    pub const GUEST_PROFILE: &str = "guest-profile.json";
    /// [`super::CallCounts`].
    pub const GUEST_CALLS: &str = "guest-calls.json";
    /// [`crate::samples::ProfileFacts`].
    pub const OBSERVED: &str = "observed.json";
    /// [`crate::samples::OnCpu`].
    pub const ON_CPU: &str = "on-cpu.json";
    /// [`crate::samples::WallClock`].
    pub const WALL_CLOCK: &str = "wall-clock.json";
    /// [`crate::samples::ScheduleFacts`].
    pub const SCHEDULE: &str = "schedule.json";
    /// The folder of the scheduler's events and system calls of a process.
    pub const SCHEDULE_TRACE: &str = "schedule-trace";
    /// [`crate::samples::ExitCounts`].
    pub const EXITS: &str = "exits.json";
    /// [`crate::samples::CodeSamples`].
    pub const GUEST_CODE: &str = "guest-code.json";
    /// In a turn's folder: the memory tree of a QEMU with KVM, as `info mtree -f` prints it.
    pub const MEMORY_TREE: &str = "memory-tree";
}
