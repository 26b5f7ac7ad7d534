//! What a profile says in figures.

use crate::{CountWay, GuestCode, GuestExits, Missing, SampleShare, ScheduleFindings, WaitFor};
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
    /// Processors that it kept busy, 1 for one all the time; null where the rate of samples is unknown.
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
    /// Those whose share changed by more than sampling leaves open, the largest change first. Their intervals are so wide
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
    /// The file of another tool that it was read from; null where a process was looked at.
    pub file: Option<String>,
    /// The process; 0 where that is unknown.
    pub pid: i32,
    /// Its program; empty where that is unknown.
    pub program: String,
    /// How long was sampled, s; 0 where that is unknown.
    pub seconds: f64,
    /// Samples a second of each running thread; 0 where that is unknown.
    pub hz: u32,
    /// `cycles`, or `cpu-clock` where the processor's counters cannot be had; of another tool's, its event.
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
    /// Processors that vmtax itself kept busy meanwhile.
    pub own_cpu: f64,
    /// The threads, the busiest first.
    pub threads: Vec<ThreadShare>,
    /// The functions that most samples are in; the first 200.
    pub functions: Vec<FunctionShare>,
    /// Files whose functions are not all named.
    pub unnamed: Vec<UnnamedFile>,
    /// What QEMU's processors do under TCG, the largest part first; empty where nothing was translated.
    #[serde(default)]
    pub tcg: Vec<TcgShare>,
    /// Where its threads were by the clock; null where that could not be had.
    pub wall: Option<WallFindings>,
    /// Its guest's VM exits; null where KVM runs no guest of it, or nothing of them could be had.
    #[serde(default)]
    pub exits: Option<GuestExits>,
    /// What its guest's processors execute; null where KVM runs no guest of it, or nothing could be asked.
    #[serde(default)]
    pub code: Option<GuestCode>,
    /// What the scheduler's events say; null where they were not traced.
    #[serde(default)]
    pub schedule: Option<ScheduleFindings>,
    /// What was seen inside its guest; null where nobody looked there.
    #[serde(default)]
    pub guest: Option<GuestFindings>,
    /// What could not be had, why, and what to do about it.
    pub missing: Vec<Missing>,
}

/// What a processor of QEMU's does under TCG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TcgPart {
    /// Translated code itself: the guest.
    Translated,
    /// Address translation and memory for it.
    Softmmu,
    /// Devices that it reached.
    Devices,
    /// The search for the next block of it.
    Search,
    /// What else it called.
    Helpers,
    /// The making of it.
    Translation,
    /// The loop around it: interrupts, exceptions, chaining of blocks.
    Loop,
    /// Nothing of TCG's: locks, work for other threads.
    Outside,
}

impl TcgPart {
    /// For tables.
    pub fn words(self) -> &'static str {
        match self {
            TcgPart::Translated => "translated code",
            TcgPart::Softmmu => "softmmu",
            TcgPart::Devices => "devices",
            TcgPart::Search => "search for the next block",
            TcgPart::Helpers => "other helpers",
            TcgPart::Translation => "translation",
            TcgPart::Loop => "the loop around it",
            TcgPart::Outside => "outside of TCG",
        }
    }
}

/// A part of the samples of TCG's processors.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TcgShare {
    /// What.
    pub part: TcgPart,
    /// Of the samples of threads that ran translated code.
    pub share: SampleShare,
}

/// What was seen inside a guest, by its own kernel.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GuestFindings {
    /// How long, s.
    pub seconds: f64,
    /// Samples a second of each processor that was not idle; 0 where none were taken.
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
    /// Samples of virtual processors in the guest's code, or in what that called.
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

/// A thread's time by the clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadWaits {
    /// Its number on the host.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// Moments at which it was seen.
    pub seen: u64,
    /// Of those, running, or ready to.
    pub runs: SampleShare,
    /// Of the time, on a processor, as the kernel's scheduler counted it, 0 to 1; null where it counts nothing.
    pub on_cpu: Option<f64>,
    /// Of the time, ready without a processor.
    pub ready: Option<f64>,
    /// Waiting, the longest first: of the time that the scheduler left, where it counts, each by the moments it was seen at.
    pub waits: Vec<WaitShare>,
}

/// How long threads were stopped for a look.
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

/// What stacks by the clock say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WallFindings {
    /// Moments at which all threads were looked at.
    pub moments: u64,
    /// Stacks in all.
    pub samples: u64,
    /// What looking cost the threads.
    pub pauses: Pauses,
    /// Stacks that unwound to where the thread begins.
    pub unwound: SampleShare,
    /// The threads, those that ran most first.
    pub threads: Vec<ThreadWaits>,
    /// Why the picture by the clock differs from that on CPU.
    pub explanation: Vec<String>,
}
