//! The findings of `profile`.

use crate::{Advice, CpuContention, GuestCode, GuestExits, SampleShare, ScheduleFindings, WaitFor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vmtax_model::samples::StopsEnded;
use vmtax_model::{CallCounts, Missing, ProcessStop, Role, RunState};

/// A thread's fraction of the samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadShare {
    /// Host TID; 0 where unknown.
    pub tid: i32,
    pub name: String,
    /// Fraction of all samples.
    pub share: SampleShare,
    /// CPUs it kept busy, 1 for one CPU all the time; null where the sampling rate is unknown.
    pub cpu: Option<f64>,
    /// Samples in the kernel.
    pub kernel: u64,
    /// Samples in translated code.
    pub translated: u64,
}

/// A function's fraction of the samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionShare {
    /// Name, or address where it has none.
    pub name: String,
    /// File; empty for the kernel and translated code.
    pub module: String,
    /// `program`, `library`, `kernel`, `translated` or `unknown`.
    pub layer: String,
    /// True if the name is the function's own, not the nearest symbol's.
    pub named: bool,
    /// Samples in the function itself.
    #[serde(rename = "self")]
    pub inside: SampleShare,
    /// Samples in the function and its callees.
    pub total: SampleShare,
}

/// Functions that changed between two profiles.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProfileChanges {
    /// Number of functions compared: all with samples in either profile.
    pub compared: usize,
    /// Functions whose fraction changed significantly, the largest change first; the intervals of all compared functions
    /// hold together at 95 % (Bonferroni).
    pub changed: Vec<FunctionChange>,
}

/// A function in two profiles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionChange {
    pub name: String,
    /// Samples in the function itself, before.
    pub before: SampleShare,
    /// Samples in the function itself, after.
    pub after: SampleShare,
}

/// A file whose functions are not all named.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnnamedFile {
    /// Path in the process's mount namespace.
    pub file: String,
    pub why: String,
}

/// The findings of a profile.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProfileFindings {
    /// The imported file; null where a process was sampled.
    pub file: Option<String>,
    /// PID; 0 where unknown.
    pub pid: i32,
    /// Program; empty where unknown.
    pub program: String,
    /// Sampling time, s; 0 where unknown.
    pub seconds: f64,
    /// Samples per second of each running thread; 0 where unknown.
    pub hz: u32,
    /// `cycles`, or `cpu-clock` where no hardware counter is available; of an imported file, its event.
    pub trigger: String,
    /// True if stacks include kernel frames.
    pub kernel: bool,
    /// Number of samples.
    pub samples: u64,
    /// Samples lost for lack of buffer space.
    pub lost: u64,
    /// True if the process ended before the sampling time.
    pub ended: bool,
    /// State of its guest at the end, by its monitor; null where the monitor was not asked.
    pub state: Option<RunState>,
    /// Signal or tracer that had stopped the process at the end; null where its threads could run.
    pub process_stop: Option<ProcessStop>,
    /// Samples with user frames whose innermost frame is outside translated code.
    pub user_samples: u64,
    /// Of those, unwound to the start of the thread or coroutine.
    pub unwound: SampleShare,
    /// Of those, truncated at the end of the copied stack.
    pub cut: u64,
    /// Samples in translated code.
    pub translated_samples: u64,
    /// Of those, unwound through it to the start of the thread.
    pub translated_unwound: SampleShare,
    /// CPUs that vmtax itself kept busy meanwhile.
    pub own_cpu: f64,
    /// The busiest first.
    pub threads: Vec<ThreadShare>,
    /// By samples, largest first; at most 200.
    pub functions: Vec<FunctionShare>,
    /// Files without a full symbol table.
    pub unnamed: Vec<UnnamedFile>,
    /// Activities of QEMU's vCPU threads under TCG, the largest part first; empty where nothing was translated.
    #[serde(default)]
    pub tcg: Vec<TcgShare>,
    /// States of the process's threads over the time; null where neither the scheduler nor wall-clock samples show
    /// them.
    pub states: Option<StateFindings>,
    /// Wall-clock samples of the process; null where there are none.
    pub wall: Option<WallFindings>,
    /// VM exits of the process's guest; null where KVM runs no guest of it, or none could be counted.
    pub exits: Option<GuestExits>,
    /// Code that the guest's vCPUs execute; null where KVM runs no guest of the process, or nothing could be asked.
    pub code: Option<GuestCode>,
    /// Scheduler trace; null where it was not recorded.
    pub schedule: Option<ScheduleFindings>,
    /// Observations inside the guest; null where nothing was sampled there.
    pub guest: Option<GuestFindings>,
    /// Figures that could not be observed, why, and the remedy.
    pub missing: Vec<Missing>,
}

/// Time of threads by state; at each moment a thread is in one state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StateFindings {
    /// Duration of the observation, s.
    pub seconds: f64,
    /// Source of the times.
    pub source: StateSource,
    /// The threads, those that ran or could have run longest first.
    pub threads: Vec<ThreadStates>,
    /// Who used the host CPUs for which its threads waited: its vCPUs, where they waited; null where none waited, or that is
    /// not known.
    pub contention: Option<CpuContention>,
    /// Advice that removes waits.
    pub advice: Vec<Advice>,
    /// Time of the wall-clock samples behind [`ThreadStates::slices`], s; 0 without them.
    #[serde(default)]
    pub sliced_s: f64,
}

/// Source of the times of [`StateFindings`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateSource {
    /// The scheduler's own sums of each thread (`/proc/PID/task/TID/schedstat`); what waits are for, from wall-clock samples.
    SchedulerCounters,
    /// The scheduler's events; what waits are for that began before them, from wall-clock samples.
    SchedulerEvents,
    /// The scheduler's events of the first second or so, then its own sums, each for its part of the time.
    SchedulerEventsThenCounters,
    /// Wall-clock samples alone, which do not distinguish running from runnable.
    #[default]
    Samples,
}

/// One thread's time; the fractions add up to 1.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadStates {
    /// TID on the host.
    pub tid: i32,
    /// Name of the thread: its role in QEMU, as far as that is known.
    pub name: String,
    /// Role of the thread; null in a process that is no VMM.
    pub role: Option<Role>,
    /// On a CPU, 0 to 1.
    pub running: f64,
    /// Runnable without a CPU (run-queue wait), 0 to 1; null where `running` has it too.
    pub runnable: Option<f64>,
    /// Waits of the thread, the longest first.
    pub waits: Vec<StateWait>,
    /// The thread's wall-clock samples in equal parts of their time, from the first to the last; empty where too few say when.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<TimeSlice>,
}

/// Wall-clock samples of a thread in a part of the time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeSlice {
    /// Number of samples.
    pub samples: u64,
    /// Number of those that waited, by what for; the others ran or were runnable.
    pub waits: BTreeMap<WaitFor, u64>,
}

/// A part of a thread's time that it waited.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateWait {
    /// Event or resource that the thread waited for.
    pub reason: WaitFor,
    /// The system call, or the kernel's function where it was in none; empty where that is unknown.
    pub call: String,
    /// The innermost of the program's functions; empty where that is unknown.
    pub below: String,
    /// Of the time, 0 to 1.
    pub fraction: f64,
}

/// Activity of a vCPU thread under TCG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TcgPart {
    /// Executes translated code: the guest.
    Translated,
    /// Address translation and memory access (softmmu).
    Softmmu,
    /// Emulation of devices.
    Devices,
    /// Lookup of a translation block (TB).
    Search,
    /// Other helpers called by translated code.
    Helpers,
    /// Translation of guest code.
    Translation,
    /// The cpu_exec loop: interrupts, exceptions, TB chaining.
    Loop,
    /// Outside TCG: locks, work for other threads.
    Outside,
}

impl TcgPart {
    /// As tables name it.
    pub fn label(self) -> &'static str {
        match self {
            TcgPart::Translated => "translated code",
            TcgPart::Softmmu => "softmmu",
            TcgPart::Devices => "devices",
            TcgPart::Search => "TB lookup",
            TcgPart::Helpers => "other helpers",
            TcgPart::Translation => "translation",
            TcgPart::Loop => "cpu_exec loop",
            TcgPart::Outside => "outside TCG",
        }
    }
}

/// A part of the samples of vCPU threads under TCG.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TcgShare {
    pub part: TcgPart,
    /// Fraction of the samples of threads that ran translated code.
    pub share: SampleShare,
}

/// Observed inside a guest, by its own kernel.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GuestFindings {
    /// Sampling time, s.
    pub seconds: f64,
    /// Samples per second of each vCPU that was not idle; 0 where none were taken.
    pub hz: u32,
    /// `cycles`, or `cpu-clock` where the guest has no hardware counter.
    pub trigger: String,
    /// Number of samples.
    pub samples: u64,
    /// Samples lost for lack of buffer space.
    pub lost: u64,
    /// Samples with user frames.
    pub user_samples: u64,
    /// Of those, unwound to the start of the thread.
    pub unwound: SampleShare,
    /// The busiest first.
    pub threads: Vec<ThreadShare>,
    /// By samples, largest first; at most 200.
    pub functions: Vec<FunctionShare>,
    /// Statistics of joining samples of guest and QEMU; null where their clocks could not be compared.
    pub joined: Option<JoinFindings>,
    /// Null where system calls were not counted.
    pub calls: Option<CallCounts<GuestCall>>,
}

/// Statistics of joining samples of a guest with those of its QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct JoinFindings {
    /// Samples of vCPU threads in guest code or its callees.
    pub in_guest: u64,
    /// Of those, joined with the guest's stack of that moment.
    pub joined: SampleShare,
    /// Median distance of the joined samples, ns.
    pub apart_ns: u64,
}

/// A system call in a guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestCall {
    /// System call number of x86-64.
    pub call: u32,
    pub name: String,
    /// Process; null where they are not grouped by process.
    pub pid: Option<i32>,
    /// Number of returns.
    pub calls: u64,
    /// Mean time of a call, ns.
    pub avg_ns: f64,
    /// Shortest time of a call, ns.
    pub min_ns: u64,
    /// Longest time of a call, ns.
    pub max_ns: u64,
    /// Total time of all calls, ns.
    pub total_ns: u64,
}

/// A cause of waiting of one thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitShare {
    pub reason: WaitFor,
    /// The system call, or else the kernel function it waited in.
    pub call: String,
    /// The innermost function of the program.
    pub below: String,
    /// Fraction of the thread's samples.
    pub share: SampleShare,
}

/// A thread's wall-clock time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadWaits {
    /// TID on the host.
    pub tid: i32,
    pub name: String,
    /// Number of samples.
    pub seen: u64,
    /// Of those, running or runnable.
    pub runs: SampleShare,
    /// Fraction of the time on a CPU, by the scheduler's counters, 0 to 1; null without them.
    pub on_cpu: Option<f64>,
    /// Fraction of the time runnable without a CPU (run-queue wait), likewise.
    pub ready: Option<f64>,
    /// Causes of waiting, the longest first: fractions of samples, scaled to the time that the scheduler's counters leave.
    pub waits: Vec<WaitShare>,
    /// Samples in equal parts of the time: of each part their number, then those of each of `waits`.
    #[serde(skip)]
    pub slices: Vec<Vec<u64>>,
}

/// Lengths of the stops of threads for sampling.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pauses {
    /// Number of stops.
    pub count: u64,
    /// Samples without a stop.
    pub unstopped: u64,
    /// Median stop, ns.
    pub p50_ns: f64,
    /// 99th percentile of the stops, ns.
    pub p99_ns: f64,
    /// Longest stop, ns.
    pub max_ns: f64,
}

/// The findings of wall-clock sampling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WallFindings {
    /// Time from the first sample to the last, s; 0 where it is not cut in parts.
    #[serde(skip)]
    pub sliced_s: f64,
    /// Number of moments at which all threads were sampled.
    pub moments: u64,
    /// Number of stacks.
    pub samples: u64,
    /// Lengths of the stops of threads for sampling.
    pub pauses: Pauses,
    /// Null where threads were stopped to the end, or never.
    pub stops_ended: Option<StopsEnded>,
    /// Stacks that unwound to the start of the thread.
    pub unwound: SampleShare,
    /// Those that ran most first.
    pub threads: Vec<ThreadWaits>,
}
