//! What a profile says in figures.

use crate::{Advice, CountWay, GuestCode, GuestExits, Missing, Role, SampleShare, ScheduleFindings, WaitFor};
use serde::{Deserialize, Serialize};

/// One thread's part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadShare {
    /// Its number on the host; 0 where that is unknown.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// Of all samples.
    pub share: SampleShare,
    /// CPUs that it kept busy, 1 for one all the time; null where the rate of samples is unknown.
    pub cpu: Option<f64>,
    /// Samples in the kernel.
    pub kernel: u64,
    /// Samples in translated code.
    pub translated: u64,
}

/// One function's part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionShare {
    /// Its name, or where it is.
    pub name: String,
    /// The file it is in; empty for the kernel and translated code.
    pub module: String,
    /// `program`, `library`, `kernel`, `translated` or `unknown`.
    pub layer: String,
    /// Whether the name is its own, or that of what is near.
    pub named: bool,
    /// In itself.
    #[serde(rename = "self")]
    pub inside: SampleShare,
    /// In itself and what it calls.
    pub total: SampleShare,
}

/// What changed between two profiles, function by function.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProfileChanges {
    /// Functions that were compared: all that either profile has samples in.
    pub compared: usize,
    /// Those whose fraction changed by more than sampling noise, the largest change first. Their intervals are so wide
    /// that those of all the compared hold together at 95 %.
    pub changed: Vec<FunctionChange>,
}

/// A function's part in two profiles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionChange {
    /// Its name.
    pub name: String,
    /// In itself, before.
    pub before: SampleShare,
    /// After.
    pub after: SampleShare,
}

/// A file whose functions are not all named.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnnamedFile {
    /// The file, as the process sees it.
    pub file: String,
    /// Why.
    pub why: String,
}

/// What a profile says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProfileFindings {
    /// The file of another tool that it was read from; null where a process was sampled.
    pub file: Option<String>,
    /// The process; 0 where that is unknown.
    pub pid: i32,
    /// Its program; empty where that is unknown.
    pub program: String,
    /// How long was sampled, s; 0 where that is unknown.
    pub seconds: f64,
    /// Samples a second of each running thread; 0 where that is unknown.
    pub hz: u32,
    /// `cycles`, or `cpu-clock` where the CPU's counters are not available; of another tool's, its event.
    pub trigger: String,
    /// Whether the kernel's part of the stacks was seen.
    pub kernel: bool,
    /// Samples in all.
    pub samples: u64,
    /// Samples that the kernel had no room for.
    pub lost: u64,
    /// Whether the process ended before the time was over.
    pub ended: bool,
    /// Samples with a user's part whose innermost frame is outside translated code.
    pub user_samples: u64,
    /// Of those, unwound to where the thread or coroutine begins.
    pub unwound: SampleShare,
    /// Of those, cut off at the end of the copied stack.
    pub cut: u64,
    /// Samples whose user's part is in translated code.
    pub translated_samples: u64,
    /// Of those, unwound past it to where the thread begins.
    pub translated_unwound: SampleShare,
    /// CPUs that vmtax itself kept busy meanwhile.
    pub own_cpu: f64,
    /// The threads, the busiest first.
    pub threads: Vec<ThreadShare>,
    /// The functions that most samples are in; the first 200.
    pub functions: Vec<FunctionShare>,
    /// Files whose functions are not all named.
    pub unnamed: Vec<UnnamedFile>,
    /// What QEMU's vCPU threads do under TCG, the largest part first; empty where nothing was translated.
    #[serde(default)]
    pub tcg: Vec<TcgShare>,
    /// How its threads spent the time; null where neither the scheduler nor wall-clock samples say.
    #[serde(default)]
    pub states: Option<StateFindings>,
    /// Its wall-clock samples; null where there are none.
    pub wall: Option<WallFindings>,
    /// Its guest's VM exits; null where KVM runs no guest of it, or none could be counted.
    #[serde(default)]
    pub exits: Option<GuestExits>,
    /// What its guest's vCPUs execute; null where KVM runs no guest of it, or nothing could be asked.
    #[serde(default)]
    pub code: Option<GuestCode>,
    /// What the scheduler's events say; null where they were not traced.
    #[serde(default)]
    pub schedule: Option<ScheduleFindings>,
    /// What was seen inside its guest; null where nothing was sampled there.
    #[serde(default)]
    pub guest: Option<GuestFindings>,
    /// What could not be observed, why, and what to do about it.
    pub missing: Vec<Missing>,
}

/// How threads spent the time, each of it in one state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StateFindings {
    /// How long, s.
    pub seconds: f64,
    /// What times are taken from.
    pub source: StateSource,
    /// The threads, those that ran or could have run longest first.
    pub threads: Vec<ThreadStates>,
    /// What takes waits away.
    pub advice: Vec<Advice>,
}

/// What the times of [`StateFindings`] are taken from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateSource {
    /// The scheduler's own sums of each thread (`/proc/PID/task/TID/schedstat`); what waits are for, from wall-clock samples.
    SchedulerCounters,
    /// The scheduler's events.
    SchedulerEvents,
    /// Wall-clock samples alone, which do not distinguish running from runnable.
    #[default]
    Samples,
}

/// One thread's time; the fractions add up to 1.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadStates {
    /// Its number on the host.
    pub tid: i32,
    /// Its name: its role in QEMU, as far as that is known.
    pub name: String,
    /// What it is for; null in a process that is no VMM.
    pub role: Option<Role>,
    /// On a CPU, 0 to 1.
    pub running: f64,
    /// Runnable without a CPU (run-queue wait), 0 to 1; null where `running` has it too.
    pub runnable: Option<f64>,
    /// What it waited for, the longest first.
    pub waits: Vec<StateWait>,
}

/// A part of a thread's time that it waited.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateWait {
    /// What for.
    pub reason: WaitFor,
    /// The system call, or the kernel's function where it was in none; empty where that is unknown.
    pub call: String,
    /// The innermost of the program's functions; empty where that is unknown.
    pub below: String,
    /// Of the time, 0 to 1.
    pub fraction: f64,
}

/// What a vCPU thread does under TCG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TcgPart {
    /// Translated code itself: the guest.
    Translated,
    /// Address translation and memory for it.
    Softmmu,
    /// Devices that it reached.
    Devices,
    /// The look-up of the next translation block (TB).
    Search,
    /// What else it called.
    Helpers,
    /// Translation of guest code into TBs.
    Translation,
    /// `cpu_exec`: interrupts, exceptions, chaining of TBs.
    Loop,
    /// Outside TCG: locks, work for other threads.
    Outside,
}

impl TcgPart {
    /// For tables.
    pub fn label(self) -> &'static str {
        match self {
            TcgPart::Translated => "translated code",
            TcgPart::Softmmu => "softmmu",
            TcgPart::Devices => "devices",
            TcgPart::Search => "TB look-up",
            TcgPart::Helpers => "other helpers",
            TcgPart::Translation => "translation of guest code",
            TcgPart::Loop => "cpu_exec loop",
            TcgPart::Outside => "outside TCG",
        }
    }
}

/// A part of the samples of TCG's vCPU threads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TcgShare {
    /// The part.
    pub part: TcgPart,
    /// Of the samples of threads that ran translated code.
    pub share: SampleShare,
}

/// What was seen inside a guest, by its own kernel.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GuestFindings {
    /// How long, s.
    pub seconds: f64,
    /// Samples a second of each vCPU that was not idle; 0 where none were taken.
    pub hz: u32,
    /// `cycles`, or `cpu-clock` where the guest has no counter for them.
    pub trigger: String,
    /// Samples in all.
    pub samples: u64,
    /// Samples that there was no room for.
    pub lost: u64,
    /// Samples with a user's part.
    pub user_samples: u64,
    /// Of those, unwound to where the thread begins.
    pub unwound: SampleShare,
    /// The guest's threads, the busiest first.
    pub threads: Vec<ThreadShare>,
    /// The functions that most samples are in; the first 200.
    pub functions: Vec<FunctionShare>,
    /// How both sides' samples came together; null where their clocks could not be compared.
    pub joined: Option<JoinFindings>,
    /// The guest's system calls; null where they were not counted.
    pub calls: Option<CallFindings>,
}

/// How samples of a guest and of its QEMU came together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct JoinFindings {
    /// Samples of vCPU threads in the guest's code, or in what that called.
    pub in_guest: u64,
    /// Of those, with the guest's stack of that moment.
    pub joined: SampleShare,
    /// How far apart both sides' samples are, ns, at the median.
    pub apart_ns: u64,
}

/// A guest's system calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallFindings {
    /// How they were counted.
    #[serde(default)]
    pub way: CountWay,
    /// By call, or by call and process; those with most time first.
    pub rows: Vec<GuestCall>,
    /// Calls that there was no room for; call by call, records.
    pub lost: u64,
    /// What counting adds to a call, ns, as measured in that guest before the workload; null where it could not be.
    pub added_ns: Option<f64>,
}

/// A system call in a guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestCall {
    /// Its number, x86-64's.
    pub call: u32,
    /// Its name.
    pub name: String,
    /// The process; null where all are together.
    pub pid: Option<i32>,
    /// How often it returned.
    pub calls: u64,
    /// The mean.
    pub avg_ns: f64,
    /// The shortest.
    pub min_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// All together.
    pub total_ns: u64,
}

/// A part of a thread's time that it waited.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitShare {
    /// What for.
    pub reason: WaitFor,
    /// The system call, or the kernel's function where it was in none.
    pub call: String,
    /// The innermost of the program's functions.
    pub below: String,
    /// Of the moments at which the thread was seen.
    pub share: SampleShare,
}

/// A thread's time by wall-clock samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadWaits {
    /// Its number on the host.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// Moments at which it was seen.
    pub seen: u64,
    /// Of those, running or runnable.
    pub runs: SampleShare,
    /// Of the time, on a CPU, as the kernel's scheduler counted it, 0 to 1; null where it counts nothing.
    pub on_cpu: Option<f64>,
    /// Of the time, runnable without a CPU.
    pub ready: Option<f64>,
    /// Waits, the longest first: of the time that the scheduler left, where it counts, divided by the samples in each.
    pub waits: Vec<WaitShare>,
}

/// How long a wall-clock sample stopped its thread.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pauses {
    /// How often one was stopped.
    pub count: u64,
    /// How often one was not, as it waited on where it was before.
    pub unstopped: u64,
    /// The median.
    pub p50_ns: f64,
    /// All but one of a hundred are shorter.
    pub p99_ns: f64,
    /// The longest.
    pub max_ns: f64,
}

/// What wall-clock samples say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WallFindings {
    /// Moments at which all threads were sampled.
    pub moments: u64,
    /// Stacks in all.
    pub samples: u64,
    /// What sampling cost the threads.
    pub pauses: Pauses,
    /// Stacks that unwound to where the thread begins.
    pub unwound: SampleShare,
    /// The threads, those that ran most first.
    pub threads: Vec<ThreadWaits>,
}
