//! Evidence that rules evaluate.

use std::collections::BTreeMap;
use vmtax_findings::{
    Breakdown, Comparison, CpuContention, Difference, EmptyQueue, ExitCount, ExitReason, Findings,
    HostRates, LayerColumn, ProfileFindings, Row, SampleShare, ShareFindings, ThreadStates,
    VmRates,
};
use vmtax_model::samples::{ApicFeatures, KvmFeatures, TimerLine};
use vmtax_model::{
    Check, Checkpoint, ExitReportRow, FioOutput, HostActivity, HostFacts, Machine, Metric, Plan,
    Role, VmConfiguration, VmFacts, Vmm, Warning,
};

/// Below this part of a request, or of a thread's time, nothing is worth advice.
pub(crate) const MIN_SHARE: f64 = 0.05;
/// Fewer exits than this, in all and a second, are not worth a finding.
pub(crate) const MIN_EXITS: u64 = 100;
const MIN_EXITS_PER_S: f64 = 10.0;
/// Exits that take less of the vCPUs' time cost too little to change how a VM is started.
const MIN_EXITS_SHARE: f64 = 0.01;
/// The rate per vCPU at which exits take that share where none was timed: an exit that KVM handles takes 1 to 10 µs.
const MIN_UNTIMED_PER_S: f64 = 1000.0;

/// Results of the analyses. Where one was not made, its part is absent, and rules about it do not fire.
#[derive(Debug, Clone, Copy, Default)]
pub struct Evidence<'a> {
    /// Plan of the measurement.
    pub plan: Option<&'a Plan>,
    /// The host on which it was measured.
    pub host: Option<&'a HostFacts>,
    /// Settings of the host's kernel, as [`HostFacts::settings`] has them, where nothing else is known of the host.
    pub host_settings: Option<&'a BTreeMap<String, String>>,
    /// Rates of the host beside its running VMs.
    pub load: Option<&'a HostLoad<'a>>,
    /// Overhead of machines against native.
    pub overhead: Option<&'a Findings>,
    /// Cost of the configurations of a shared tree.
    pub shares: Option<&'a ShareFindings>,
    /// Where the time of requests goes, by machine and variant.
    pub columns: &'a [LayerColumn],
    /// Variants compared with the first, request by request.
    pub differences: &'a [Difference],
    /// VM exits of a running guest.
    pub exits: Option<&'a Exits<'a>>,
    /// Code that the guest's vCPUs execute, sampled.
    pub code: Option<&'a GuestCodeSamples>,
    /// Time of a running VM's threads, by state.
    pub threads: &'a [ThreadStates],
    /// Who used the host CPUs for which these threads waited.
    pub contention: Option<&'a CpuContention>,
    /// Where a command's time went, by guest.
    pub breakdowns: &'a [Breakdown],
    /// Rates of a running VM, from its counters.
    pub vm: Option<&'a VmRates>,
    /// Findings of its profile, beside its counters.
    pub profile: Option<&'a ProfileFindings>,
    /// The facts of the running VM.
    pub facts: Option<&'a VmFacts>,
    /// Results of the host's checks, where that is the question.
    pub checks: &'a [Check],
    /// Activity of the host while the running VM was observed.
    pub activity: Option<&'a HostActivity>,
    /// Parts of the time in which the running VM's disks had no request.
    pub queues: &'a [EmptyQueue],
    /// Configuration of a VM, as a text or the command line of a running QEMU has it: nothing of it was measured.
    pub configuration: Option<&'a VmConfiguration>,
    /// Argument of `vmtax tune --like` for that configuration; `None` where no test guest can have its disk.
    pub like: Option<&'a str>,
    /// VM exits as `perf kvm stat report` prints them.
    pub exit_report: &'a [ExitReportRow],
    /// Outputs of fio.
    pub fio: &'a [FioOutput],
    /// Warnings about the figures.
    pub warnings: &'a [Warning],
}

/// The host's CPUs, memory and processes in one interval, with the VMs that were sampled in it.
#[derive(Debug, Clone, Copy)]
pub struct HostLoad<'a> {
    /// Rates of the host.
    pub host: &'a HostRates,
    /// Rates of each of the VMs.
    pub vms: &'a [VmRates],
}

impl<'a> Evidence<'a> {
    /// Returns the VMM of the running VM; QEMU where there is none.
    pub(crate) fn vmm(&self) -> Vmm {
        let of_facts = self.facts.map(|facts| facts.vmm);
        of_facts.or(self.vm.map(|vm| vm.vmm)).unwrap_or_default()
    }

    /// Returns the settings of the host's kernel by their files; `None` where nobody read them.
    pub(crate) fn settings_of_host(&self) -> Option<&'a BTreeMap<String, String>> {
        let of_facts = self.host.map(|host| &host.settings);
        self.host_settings.or(of_facts)
    }
}

/// VM exits of a guest, counted for some time.
#[derive(Debug, Clone, Copy)]
pub struct Exits<'a> {
    /// Duration of the count, in s.
    pub seconds: f64,
    /// vCPUs that made any.
    pub vcpus: usize,
    /// Mean time of an exit that KVM or QEMU handles, ns; 0 where none was timed.
    pub mean_ns: f64,
    /// By register: reads, writes, and of these the ones that QEMU handled.
    pub registers: &'a [(Register, [u64; 3])],
    /// The regular interrupt that comes most often: how often, and its rate while it does, Hz.
    pub tick: Option<(u64, f64)>,
    /// By how much KVM's own counters grew.
    pub counters: &'a BTreeMap<String, u64>,
    /// Features of the guest's local APIC.
    pub apic: ApicFeatures,
    /// Features of the host's CPU that KVM uses.
    pub kvm: KvmFeatures,
    /// By the reason that the CPU gives.
    pub reasons: &'a [ExitReason],
    /// Page faults of the guest's memory; `None` where there was none.
    pub page_faults: Option<&'a ExitCount>,
    /// Interrupt lines that QEMU's main loop raises as regularly as a timer.
    pub timers: &'a [TimerLine],
}

/// A register of a device, by what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Register {
    /// The byte that a UART sends.
    UartData,
    /// Status of a UART: ready or not.
    UartStatus,
    /// The VGA's CRT controller, which has the text cursor.
    VgaCursor,
    /// The ACPI PM timer's count.
    PmTimer,
    /// The HPET's main counter.
    HpetCounter,
    /// Registers of one of the HPET's timers.
    HpetTimer,
    /// The real-time clock and CMOS memory.
    Rtc,
    /// Hyper-V's reference counter, which KVM answers.
    ReferenceCounter,
    /// The register by which a vCPU interrupts others, of the local APIC in memory, in x2APIC mode, or by Hyper-V's MSR.
    InterruptCommand,
    /// Task priority of the local APIC.
    TaskPriority,
    /// End of interrupt, of the local APIC in memory.
    Eoi,
    /// End of interrupt, of the local APIC in x2APIC mode.
    EoiByMsr,
    /// A virtio device's doorbell.
    Notify,
    /// Another one, by its name.
    Named(&'static str),
}

impl Register {
    /// Returns the register's name, for people.
    pub fn label(self) -> &'static str {
        match self {
            Register::UartData => "data",
            Register::UartStatus => "line status",
            Register::VgaCursor => "CRT controller",
            Register::PmTimer => "PM timer",
            Register::HpetCounter => "main counter",
            Register::HpetTimer => "comparator",
            Register::Rtc => "index and data",
            Register::ReferenceCounter => "reference counter",
            Register::InterruptCommand => "interrupt command",
            Register::TaskPriority => "task priority",
            Register::Eoi | Register::EoiByMsr => "end of interrupt",
            Register::Notify => "queue notify",
            Register::Named(name) => name,
        }
    }
}

impl Exits<'_> {
    fn sum(&self, register: Register, kind: usize) -> u64 {
        let counts = self.registers.iter().filter(|(r, _)| *r == register);
        counts.map(|(_, counts)| counts[kind]).sum()
    }

    pub(crate) fn reads(&self, register: Register) -> u64 {
        self.sum(register, 0)
    }

    pub(crate) fn writes(&self, register: Register) -> u64 {
        self.sum(register, 1)
    }

    pub(crate) fn accesses(&self, register: Register) -> u64 {
        self.reads(register).saturating_add(self.writes(register))
    }

    pub(crate) fn writes_to_qemu(&self, register: Register) -> u64 {
        self.sum(register, 2)
    }

    pub(crate) fn per_s(&self, count: u64) -> f64 {
        count as f64 / self.seconds.max(f64::EPSILON)
    }

    /// The part of the vCPUs' time that so many exits take, at most 1.
    pub(crate) fn share(&self, count: u64) -> f64 {
        self.part(count as f64 * self.mean_ns)
    }

    /// A time in ns as a part of the vCPUs' time, at most 1.
    pub(crate) fn part(&self, ns: f64) -> f64 {
        (ns / 1e9 / (self.seconds * self.vcpus.max(1) as f64).max(f64::EPSILON)).min(1.0)
    }

    /// Returns true if that many exits are worth a finding.
    pub(crate) fn many(&self, count: u64) -> bool {
        count >= MIN_EXITS && self.per_s(count) >= MIN_EXITS_PER_S
    }

    /// Returns true where that many exits are known to take less of the vCPUs' time than a finding needs.
    pub(crate) fn are_cheap(&self, count: u64) -> bool {
        self.mean_ns > 0.0 && self.share(count) < MIN_EXITS_SHARE
    }

    /// Returns whether that many exits take so much of the vCPUs' time that a restart of the VM is worth it.
    pub(crate) fn are_costly(&self, count: u64) -> bool {
        let is_untimed_and_rare =
            self.mean_ns <= 0.0 && self.per_s(count) < MIN_UNTIMED_PER_S * self.vcpus.max(1) as f64;
        self.many(count) && !self.are_cheap(count) && !is_untimed_and_rare
    }

    /// Returns by how much one of KVM's counters grew.
    pub(crate) fn counter(&self, name: &str) -> f64 {
        self.counters.get(name).copied().unwrap_or(0) as f64
    }
}

/// Samples of the code that the vCPUs of a guest execute, taken from outside.
#[derive(Debug, Clone, Default)]
pub struct GuestCodeSamples {
    /// Samples of all vCPUs.
    pub samples: u64,
    /// Of these, at each pattern, and the address with most.
    pub patterns: Vec<(CodePattern, SampleShare, u64)>,
}

/// Code that costs and has a cheaper form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CodePattern {
    /// A division by 64 bits.
    Division,
    /// A lock with the interrupt flag saved, cleared and restored around it.
    LockSavesInterrupts,
    /// A few bytes copied by several calls of one small function.
    SmallCopies,
}

impl<'a> Evidence<'a> {
    /// Guests of the plan.
    pub(crate) fn guests(&self) -> impl Iterator<Item = Machine> + use<'a> {
        let plan = self.plan.into_iter();
        plan.flat_map(|plan| plan.machines.iter().copied())
            .filter(|machine| machine.is_guest())
    }

    /// Every overhead of every machine.
    pub(crate) fn overheads(
        &self,
    ) -> impl Iterator<Item = (Metric, Machine, &'a Comparison)> + use<'a> {
        let findings = self.overhead.into_iter();
        findings
            .flat_map(|findings| &findings.rows)
            .flat_map(|row| {
                let machines = row.machines.iter();
                machines.filter_map(|c| Some((row.metric, c.machine, c.overhead.as_ref()?)))
            })
    }

    /// The machine and variant that the report's answer is about.
    pub(crate) fn main_column(&self) -> Option<&'a LayerColumn> {
        vmtax_findings::main_column(self.columns).filter(|column| column.matched.joined > 0)
    }

    /// Returns [`Evidence::main_column`] if it is of a disk, for rules about disks only.
    pub(crate) fn main_disk_column(&self) -> Option<&'a LayerColumn> {
        let is_disk = |column: &&LayerColumn| {
            let mut rows = column.rows.iter();
            rows.all(|row| row.to.is_on_path_with(Checkpoint::QemuPop))
        };
        self.main_column().filter(is_disk)
    }

    /// Returns true if the guest is known to be Windows.
    pub(crate) fn is_windows(&self) -> bool {
        self.configuration.is_some_and(|vm| vm.windows.is_some())
    }

    /// Returns true if a trial on this machine has a result.
    pub(crate) fn measured(&self, machine: Machine) -> bool {
        let mut kernels = self.overhead.iter().flat_map(|findings| &findings.kernels);
        kernels.any(|(measured, _)| *measured == machine)
    }
}

/// The configuration, for people: `kvm`, `kvm (aio=native)`.
pub(crate) fn title(column: &LayerColumn) -> String {
    match column.variant.as_str() {
        "" => column.machine.to_string(),
        variant => format!("{} ({})", column.machine, variant.escape_default()),
    }
}

/// The rows of a request that match, together, as a part of its mean time, 0 to 1; `None` where that is too little for advice.
pub(crate) fn part(column: &LayerColumn, matches: impl Fn(&Row) -> bool) -> Option<f64> {
    let rows = column.rows.iter().filter(|row| matches(row));
    let ns: f64 = rows.map(|row| row.time.mean_ns).sum();
    let share = ns / column.traced.mean_ns;
    (share >= MIN_SHARE).then_some(share)
}

/// Returns true if QEMU serves the disk in an iothread.
pub(crate) fn has_iothread(column: &LayerColumn) -> bool {
    // Of a running VM the threads that its requests pass are known, and no system calls.
    let mut passed = column.lifecycle.iter();
    let mut calls = column.calls.iter();
    passed.any(|step| step.thread.starts_with("iothread "))
        || calls.any(|calls| matches!(calls.role, Role::Iothread(_)))
}
