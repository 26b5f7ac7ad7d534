//! Artifacts of observers of a process: sampled stacks, counted VM exits, and what else a profile is computed
//! of. Each type is one file of a trial's folder ([`crate::files`]).

use crate::{ClockReading, Missing, ProcessStop, QemuThread, RunState, VmConfiguration, VmFacts};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use strum::IntoStaticStr;

/// Whose code a function is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum CodeOrigin {
    /// The program itself: QEMU.
    Program,
    /// A shared library that the program loaded.
    Library,
    /// The host's kernel.
    Kernel,
    /// Code that the program translated: the guest, under TCG.
    Translated,
    /// The guest's kernel, as it saw itself.
    GuestKernel,
    /// A program in the guest.
    GuestUser,
    /// Code that belongs to no known file.
    Unknown,
}

/// A function of a sampled stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Function {
    /// Name of the function; where it has none, `MODULE:NEAREST+0xOFFSET`.
    pub name: String,
    /// The file it is in; empty for the kernel and translated code.
    pub module: String,
    /// Whose it is.
    #[serde(rename = "layer")]
    pub origin: CodeOrigin,
    /// True if the name is the function's own.
    pub named: bool,
}

/// A sampled thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// TID, on the machine where it was sampled.
    pub tid: i32,
    /// Name of the thread.
    pub name: String,
}

/// A sampled stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Index of the thread in [`Profile::threads`].
    pub thread: usize,
    /// Index of the stack in [`Profile::stacks`].
    pub stack: usize,
    /// `CLOCK_MONOTONIC`, ns; 0 where unknown.
    pub time: u64,
    /// Number of samples.
    pub weight: u64,
    /// CPU; 0 where unknown.
    pub cpu: u32,
}

/// Samples with their threads, stacks and functions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Functions of the stacks, without duplicates.
    pub functions: Vec<Function>,
    /// Stacks, outermost function first, as numbers of [`Profile::functions`].
    pub stacks: Vec<Vec<usize>>,
    pub threads: Vec<Thread>,
    /// Samples, ordered by time.
    pub samples: Vec<Sample>,
}

impl Profile {
    /// Samples in all.
    pub fn total(&self) -> u64 {
        self.samples.iter().map(|sample| sample.weight).sum()
    }

    /// Samples by thread and stack.
    pub fn counts(&self) -> BTreeMap<(usize, usize), u64> {
        let mut counts = BTreeMap::new();
        for sample in &self.samples {
            *counts.entry((sample.thread, sample.stack)).or_default() += sample.weight;
        }
        counts
    }

    /// Checks that every index is valid: the file may come from elsewhere.
    ///
    /// # Errors
    /// The first invalid part.
    pub fn check(&self) -> Result<(), String> {
        let is_known = |function: &usize| *function < self.functions.len();
        if !self.stacks.iter().flatten().all(is_known) {
            return Err("a stack names a function that is not there".to_owned());
        }
        let is_complete = |s: &Sample| s.thread < self.threads.len() && s.stack < self.stacks.len();
        if !self.samples.iter().all(is_complete) {
            return Err("a sample names a thread or a stack that is not there".to_owned());
        }
        let mut weights = self.samples.iter().map(|sample| sample.weight);
        match weights.try_fold(0_u64, u64::checked_add) {
            Some(_) => Ok(()),
            None => Err("it has more samples than can be counted".to_owned()),
        }
    }

    /// Merges profiles, samples in the order of time; `origin` maps the code origin of their functions.
    pub fn together(
        all: impl Iterator<Item = Profile>,
        origin: impl Fn(CodeOrigin) -> CodeOrigin,
    ) -> Profile {
        let (mut one, mut known) = (Profile::default(), HashMap::new());
        for other in all {
            let mut functions = Vec::new();
            for function in other.functions {
                let function = Function {
                    origin: origin(function.origin),
                    ..function
                };
                functions.push(*known.entry(function).or_insert_with_key(|function| {
                    one.functions.push(function.clone());
                    one.functions.len() - 1
                }));
            }
            let (stacks, threads) = (one.stacks.len(), one.threads.len());
            let renumbered = |stack: &Vec<usize>| stack.iter().map(|&at| functions[at]).collect();
            one.stacks.extend(other.stacks.iter().map(renumbered));
            one.threads.extend(other.threads);
            let moved = |s: &Sample| Sample {
                thread: threads + s.thread,
                stack: stacks + s.stack,
                ..*s
            };
            one.samples.extend(other.samples.iter().map(moved));
        }
        one.samples.sort_by_key(|sample| sample.time);
        one
    }
}

/// Numbers of samples by how far their user frames unwound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unwound {
    /// Samples with user frames, outside translated code.
    pub outside: u64,
    /// Of those, unwound to the start of the thread or coroutine.
    pub to_root: u64,
    /// Of those, truncated at the end of the copied stack.
    pub cut: u64,
    /// Samples in translated code.
    pub translated: u64,
    /// Of those, unwound through it to the start of the thread.
    pub translated_to_root: u64,
}

impl Unwound {
    pub fn add(&mut self, other: Unwound) {
        self.outside += other.outside;
        self.to_root += other.to_root;
        self.cut += other.cut;
        self.translated += other.translated;
        self.translated_to_root += other.translated_to_root;
    }
}

/// `on-cpu.json`: stacks of threads that ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OnCpu {
    /// Stacks of the threads that ran.
    pub profile: Profile,
    /// Samples per second of each thread that runs; 0 where that is unknown.
    pub hz: u32,
    /// Event that triggered the samples: `cycles`, `cpu-clock`, or as a file of another tool has it; empty where there
    /// are none.
    pub trigger: String,
    /// True if stacks include kernel frames.
    pub kernel: bool,
    /// Numbers of samples by how far they unwound.
    pub unwound: Unwound,
    /// Samples lost for lack of buffer space.
    pub lost: u64,
    /// Sampling time, s; 0 where unknown.
    pub seconds: f64,
    /// True if the process ended before the sampling time.
    pub ended: bool,
    /// Programs and libraries whose functions are not all named, with why.
    pub unnamed: Vec<(String, String)>,
    /// CPU time that sampling and unwinding took, of vmtax, s.
    pub own_s: f64,
}

/// `wall-clock.json`: wall-clock samples: stacks of all threads, whether they ran or waited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WallClock {
    /// Every thread once for every moment.
    pub profile: Profile,
    /// Numbers of samples by how far they unwound.
    pub unwound: Unwound,
    /// Moments that were sampled.
    pub moments: u64,
    /// Duration of each stop of a thread, sorted, ns.
    pub pauses_ns: Vec<u64>,
    /// Samples for which the thread was not stopped.
    pub unstopped: u64,
    /// Null where threads were stopped to the end, or never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stops_ended: Option<StopsEnded>,
    /// Time that each thread ran and was runnable, by TID.
    pub times: BTreeMap<i32, RunTimes>,
    /// By address of a futex that a thread waited for: one of [`Profile::stacks`].
    pub futexes: BTreeMap<u64, usize>,
}

/// Why no more threads were stopped: one stop lasted too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopsEnded {
    /// Since sampling began, ns.
    pub after_ns: u64,
    /// The longest accepted stop, ns.
    pub limit_ns: u64,
    /// The stop that was longer, ns.
    pub stop_ns: u64,
}

/// A thread's time since it was first sampled, as the scheduler counts it, ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTimes {
    /// Total time, ns.
    pub watched_ns: u64,
    /// On a CPU.
    pub ran_ns: u64,
    /// Runnable, waiting for a CPU.
    pub runnable_ns: u64,
}

/// A thread's state, read without stopping it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThreadState {
    /// Running or runnable.
    Runs,
    /// Waiting in the kernel.
    Waits {
        /// In which system call; `None` where it is in none, as in a page fault.
        call: Option<i64>,
        /// The call's first argument; 0 in none.
        argument: u64,
        /// Stack pointer of the thread.
        sp: u64,
        /// Instruction pointer of the thread.
        ip: u64,
    },
}

/// `schedule.json`: the metadata needed to read the trace of a process's scheduler events and system calls beside it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleFacts {
    /// When tracing began, ns of the monotonic clock, which stamps the events.
    pub begin: u64,
    /// When it ended.
    pub end: u64,
    /// State when tracing began, by TID.
    pub states: BTreeMap<i32, ThreadState>,
    /// Names by TID.
    pub names: BTreeMap<i32, String>,
    /// TID of the owner of each mutex that others waited for at the end, by the mutex's address.
    pub holders: BTreeMap<u64, i32>,
}

/// `exits.json`: a guest's VM exits, counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExitCounts {
    /// Counting time, s.
    pub seconds: f64,
    /// The counts by vCPU thread, reason and address; null where KVM's tracepoints could not be read.
    pub traced: Option<TracedExits>,
    /// By how much KVM's own counters grew, summed over vCPUs.
    pub counters: BTreeMap<String, u64>,
    /// QEMU's memory tree, as `info mtree -f` prints it; null where its monitor could not be asked.
    pub memory_tree: Option<String>,
    /// Advice on how to give QEMU a monitor, where it has none.
    pub monitor_advice: String,
    /// Features of the guest's local APIC.
    #[serde(default)]
    pub apic: ApicFeatures,
    /// Features of the host's CPU that KVM uses.
    #[serde(default)]
    pub kvm: KvmFeatures,
    /// The configuration with which QEMU was started, by its command line; null where that cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<VmConfiguration>,
}

/// Features of the host's CPU that save VM exits, as the parameters of KVM's modules have them; null where no module says so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvmFeatures {
    /// True where the module is `kvm_intel`, false where it is `kvm_amd`.
    pub is_intel: Option<bool>,
    /// The CPU translates the guest's addresses: EPT (`kvm_intel.ept`), NPT (`kvm_amd.npt`).
    pub nested_paging: Option<bool>,
    /// The CPU serves the guest's local APIC: APICv (`kvm_intel.enable_apicv`), AVIC (`kvm_amd.avic`).
    pub apicv: Option<bool>,
}

/// Features of a guest's CPU by which an interrupt ends with a cheaper VM exit or without one; null where nothing says so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApicFeatures {
    /// QEMU's `kvm-pv-eoi`: a guest kernel with CONFIG_KVM_GUEST ends interrupts in memory that it shares with KVM.
    pub pv_eoi: Option<bool>,
    /// The registers of the local APIC are MSRs.
    pub x2apic: Option<bool>,
}

/// VM exits from KVM's tracepoints.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TracedExits {
    /// True if KVM traces each exit and entry; else only accesses and exits to user space have times.
    pub brackets: bool,
    /// Threads of QEMU with their roles.
    pub threads: Vec<QemuThread>,
    /// Counts of exits by thread, reason and address.
    pub rows: Vec<ExitRow>,
    /// Times of vCPUs in their guest; none where KVM does not trace each exit and entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_guest: Vec<GuestTime>,
    /// Periodic interrupts: count and rate per second.
    pub regular: Vec<(u64, f64)>,
    /// Timers that QEMU emulates, by the interrupt line that they raise regularly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timer_lines: Vec<TimerLine>,
    /// Ticks of the clock that stamps events, per µs.
    pub mhz: f64,
    /// Events lost for lack of buffer space.
    pub lost: u64,
    /// True if the trace does not say which exits were handed to user space: [`ExitRow::user`] is 0 then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub user_unknown: bool,
}

/// Time of a vCPU in its guest, from each `kvm_entry` to the next `kvm_exit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestTime {
    /// The vCPU's thread.
    pub tid: i32,
    /// The time, ticks.
    pub ticks: u64,
}

/// An interrupt line that a thread of QEMU raises as regularly as a timer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TimerLine {
    /// Line of the interrupt controllers: 0 and 2 of the PIT or the HPET, 8 of the RTC.
    pub line: u32,
    /// TID of the thread that raises it.
    pub tid: i32,
    /// Number of regular intervals.
    pub count: u64,
    /// Rate, Hz.
    pub hz: f64,
}

/// VM exits of one thread, for one reason, at one address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRow {
    /// The vCPU's thread.
    pub tid: i32,
    /// As KVM names it.
    pub reason: String,
    /// Address that the guest accessed; null for exits without an address.
    pub access: Option<Access>,
    /// Number of these exits.
    pub count: u64,
    /// Of those, handed to user space.
    pub user: u64,
    /// Of all, those whose time is known.
    pub timed: u64,
    /// Their time, ticks.
    pub ticks: u64,
}

/// Address space that an exit accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum AddressSpace {
    /// I/O port space.
    Port,
    /// Device memory (MMIO).
    Memory,
    /// Model-specific registers of a vCPU.
    Msr,
}

/// One access by a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Access {
    /// Address space of the access.
    pub space: AddressSpace,
    /// Address that is accessed.
    pub address: u64,
    /// True if the access is a write.
    pub write: bool,
}

/// `guest-code.json`: instruction pointers of a guest's vCPUs, sampled through QEMU's monitor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeSamples {
    /// Samples in all.
    pub samples: u64,
    /// Of those, halted.
    pub halted: u64,
    /// The others, by address.
    pub places: Vec<SampledCode>,
    /// Duration of each monitor command, ns.
    pub took_ns: Vec<u64>,
}

/// An address in a guest's code that was sampled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampledCode {
    /// Sampled address with its privilege level.
    pub spot: Spot,
    /// Number of samples.
    pub count: u64,
    /// The code around it; null where it could not be read.
    pub code: Option<CodeBytes>,
}

/// A sampled address of a vCPU, with its privilege level and, for user code, its address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Spot {
    /// Linear address of the next instruction.
    pub address: u64,
    /// Current privilege level (CPL): 0 for the kernel.
    pub level: u8,
    /// Address space (CR3) of a program; 0 for a kernel.
    pub space: u64,
}

/// Bytes of a guest's code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeBytes {
    /// The address of its first byte.
    pub from: u64,
    /// Bytes of code from that address on.
    pub bytes: Vec<u8>,
    /// 16, 32 or 64: the mode they are decoded in.
    pub bits: u32,
}

/// `guest-profile.json`: on-CPU samples inside a guest, by its own kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestProfile {
    /// Times are the guest's `CLOCK_MONOTONIC`.
    pub profile: Profile,
    /// Samples per second of each CPU that was not idle.
    pub hz: u32,
    /// `cycles`, or `cpu-clock` where the guest has no counter for them.
    pub trigger: String,
    pub unwound: Unwound,
    /// Samples lost for lack of buffer space.
    pub lost: u64,
    /// The guest's clocks before and after.
    pub beats: [ClockReading; 2],
}

impl GuestProfile {
    /// Twice the depth to which stacks are unwound.
    const MAX_FRAMES: usize = 2048;
    /// The longest name, bytes: longer ones are cut before they are sent, and refused when they are read.
    pub const MAX_NAME: usize = 4096;

    /// Checks a profile that a guest sent.
    ///
    /// # Errors
    /// The first invalid part.
    pub fn check(&self) -> Result<(), String> {
        let Profile {
            functions,
            stacks,
            threads,
            samples,
        } = &self.profile;
        let [begun, ended] = self.beats;
        if ended.ticks <= begun.ticks || ended.monotonic_ns <= begun.monotonic_ns {
            return Err("its clocks stand still".to_owned());
        }
        let long = |name: &String| name.len() > Self::MAX_NAME;
        if functions.iter().any(|f| long(&f.name) || long(&f.module))
            || threads.iter().any(|t| long(&t.name))
        {
            return Err("a name is too long".to_owned());
        }
        if stacks.iter().any(|stack| stack.len() > Self::MAX_FRAMES)
            || samples.iter().any(|s| s.weight != 1)
        {
            return Err("a stack is too deep, or a sample counts more than once".to_owned());
        }
        self.profile.check()
    }
}

/// `cpu-use.json`: the host's CPUs and a process's threads at the begin and the end of sampling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuUses {
    pub before: CpuUse,
    pub after: CpuUse,
}

/// CPU time until one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuUse {
    /// The host's monotonic clock, ns.
    pub at_ns: u64,
    /// Time that each online host CPU was neither idle nor stolen, since boot, ms.
    pub busy_ms: BTreeMap<usize, u64>,
    /// The process's threads.
    pub threads: Vec<ThreadCpuUse>,
    /// Time throttled by CPU quotas, µs; null where no control group counts it.
    pub throttled_us: Option<u64>,
}

/// CPU time of a thread since its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadCpuUse {
    /// TID on the host.
    pub tid: i32,
    /// The host CPUs on which it may run, as a list: `0-3,8`.
    pub cpus: String,
    /// On a CPU, ns.
    pub ran_ns: u64,
    /// Runnable, waiting for a CPU, ns.
    pub waited_ns: u64,
}

/// `observed.json` of a trial: what was observed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProfileFacts {
    /// PID; 0 where unknown.
    pub pid: i32,
    /// Program; empty where unknown.
    pub program: String,
    /// The imported file; null where a process was observed.
    pub file: Option<String>,
    /// The VM that the process runs; null where it is not a VMM.
    pub vm: Option<VmFacts>,
    /// State of its guest at the end, by its monitor; null where the monitor was not asked.
    pub state: Option<RunState>,
    /// Signal or tracer that had stopped the process at the end; null where its threads could run.
    pub process_stop: Option<ProcessStop>,
    /// Data that could not be observed.
    pub missing: Vec<Missing>,
}
