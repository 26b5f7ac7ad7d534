//! Costs of a VM exit of each kind: all rounds' exits of a kind as one distribution.

use crate::trials::each_once;
use vmtax_findings::{
    ExitFindings, ExitKind, HANDLED_IN_KVM, HANDLED_IN_QEMU, INTERRUPT_CONTROLLER, MachineExits,
    NO_DEVICE, Summary,
};
use vmtax_model::{
    Accelerator, HostFacts, KERNEL_MODE, KvmClass, Latency, Machine, Plan, TrialRecord,
};

const METHOD: &str = "rdtsc before and after each exit, by the micro-guest; exits of a kind are pooled over all rounds. Each row \
                      includes the two rdtsc: subtract \"no exit, guest CPL 0\" from the rows of guest CPL 0, \"no exit\" \
                      from all others.";
/// The begin of the labels of what is timed without anything between.
const NO_EXIT: &str = "no exit";
const HALT: &str = "from timer expiry to the first instruction after";

/// Analyzes the trials of `exits`. `vmtax` is the version, `command` the command line and `started` the begin of the recording.
pub fn exits(
    plan: &Plan,
    host: &HostFacts,
    trials: &[TrialRecord],
    vmtax: &str,
    command: &[String],
    started: &str,
) -> ExitFindings {
    ExitFindings {
        schema: vmtax_findings::REPORT_SCHEMA,
        vmtax: vmtax.to_owned(),
        command: command.to_vec(),
        started: started.to_owned(),
        cpu: host.cpu.model.clone(),
        kernel: host.kernel.clone(),
        kvm: kvm(host.kvm.class).to_owned(),
        machines: plan
            .machines
            .iter()
            .filter_map(|&m| machine(m, host, trials))
            .collect(),
        method: METHOD.to_owned(),
        warnings: each_once(trials.iter().flat_map(|t| t.warnings.clone())),
        advice: Vec::new(),
    }
}

const fn kvm(class: KvmClass) -> &'static str {
    match class {
        KvmClass::Hardware => "KVM on hardware",
        KvmClass::EmulatesKernels => "a KVM that runs guest CPL 3 natively and emulates CPL 0",
        KvmClass::Broken | KvmClass::NoPermission | KvmClass::Absent => "",
    }
}

fn machine(machine: Machine, host: &HostFacts, trials: &[TrialRecord]) -> Option<MachineExits> {
    let mut all: Vec<(String, Latency)> = Vec::new();
    let of_machine = trials.iter().filter(|t| t.machine == machine);
    let results = of_machine.filter_map(TrialRecord::result);
    for operation in results.flat_map(|r| &r.operations) {
        match all.iter_mut().find(|(name, _)| *name == operation.name) {
            Some((_, latency)) => latency.add(&operation.latency),
            None => all.push((operation.name.clone(), operation.latency.clone())),
        }
    }
    let emulates = machine == Machine::MICRO_KVM && host.kvm.class == KvmClass::EmulatesKernels;
    let mut kinds = all
        .iter()
        .map(|(name, latency)| kind(machine, name, latency, emulates));
    let stamp = kinds.next()?;
    let mut kinds: Vec<ExitKind> = kinds.collect();
    if machine.accelerator() == Some(Accelerator::Kvm) {
        mark_those_without_exit(&mut kinds);
    }
    let qemu = host.qemu.first().map(|q| format!("QEMU {}", q.version));
    Some(MachineExits {
        machine,
        qemu: qemu.unwrap_or_default(),
        stamp,
        kinds,
        missing: Vec::new(),
    })
}

/// Marks what takes less than a tenth of a CPUID, which exits on every CPU: it made no exit.
fn mark_those_without_exit(kinds: &mut [ExitKind]) {
    let cpuid = kinds
        .iter()
        .find(|kind| kind.label == "cpuid")
        .map_or(0.0, |kind| kind.time.p50_ns);
    let timed = |kind: &&mut ExitKind| !kind.label.starts_with(NO_EXIT);
    for kind in kinds.iter_mut().filter(timed) {
        kind.without_exit = kind.time.p50_ns < 0.1 * cpuid;
    }
}

/// The end of a recorded name, and what it means where KVM handles exits, and under TCG, which has none.
const ENDS: [(&str, &str, &str); 3] = [
    (", user space", HANDLED_IN_QEMU, NO_DEVICE),
    (", kernel", HANDLED_IN_KVM, INTERRUPT_CONTROLLER),
    (KERNEL_MODE, ", guest CPL 0", ", guest CPL 0"),
];

/// A recorded operation's name as reports have it.
fn label(machine: Machine, name: &str) -> String {
    let is_kvm = machine.accelerator() == Some(Accelerator::Kvm);
    let named = ENDS.iter().find_map(|(end, kvm, tcg)| {
        let operation = name.strip_suffix(end)?;
        Some(operation.to_owned() + if is_kvm { kvm } else { tcg })
    });
    named.unwrap_or_else(|| name.to_owned())
}

fn kind(machine: Machine, name: &str, latency: &Latency, emulates: bool) -> ExitKind {
    let emulated = emulates && name.ends_with(KERNEL_MODE);
    ExitKind {
        label: label(machine, name),
        time: Summary::summarize(latency).unwrap_or_default(),
        emulated,
        without_exit: false,
        note: if name.starts_with("hlt") {
            HALT.to_owned()
        } else {
            String::new()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kernel_mode_is_emulated_and_only_there() {
        let mut latency = Latency::new();
        (1..=100).for_each(|ns| latency.record(ns * 10));
        let (rdmsr, cpuid) = (format!("rdmsr{KERNEL_MODE}"), "cpuid");
        let kind = |name: &str, emulates| kind(Machine::MICRO_KVM, name, &latency, emulates);
        assert!(kind(&rdmsr, true).emulated && !kind(&rdmsr, false).emulated);
        let plain = kind(cpuid, true);
        assert!(!plain.emulated && plain.note.is_empty());
        assert_eq!(
            (
                plain.time.n,
                plain.time.min_ns,
                plain.time.p50_ns,
                plain.time.p99_ns,
                plain.time.max_ns
            ),
            (100, 10.0, 500.0, 990.0, 1000.0)
        );
    }

    /// An Intel CPU with APICv: the local APIC's registers are read, and interrupts end, without an exit.
    #[test]
    fn what_the_cpu_does_by_itself_is_no_exit() {
        let exit_kind = |name: &str, ns| {
            let mut latency = Latency::new();
            latency.record(ns);
            kind(Machine::MICRO_KVM, name, &latency, false)
        };
        let mut kinds = [
            exit_kind("no exit", 2),
            exit_kind("port read, kernel", 1548),
            exit_kind("MMIO read, kernel", 2),
            exit_kind("cpuid", 1239),
            exit_kind("interrupt injection", 11),
        ];
        mark_those_without_exit(&mut kinds);
        assert_eq!(
            kinds.map(|kind| kind.without_exit),
            [false, false, true, false, true]
        );
    }

    #[test]
    fn a_label_says_who_handles_an_exit_where_there_is_one() {
        let labels =
            |name| [Machine::MICRO_KVM, Machine::MICRO_TCG].map(|machine| label(machine, name));
        assert_eq!(
            labels("port read, user space"),
            ["port read, handled in QEMU", "port read, no device"]
        );
        assert_eq!(
            labels("MMIO read, kernel"),
            [
                "MMIO read, handled in KVM",
                "MMIO read, interrupt controller"
            ]
        );
        assert_eq!(labels("rdmsr, kernel mode"), ["rdmsr, guest CPL 0"; 2]);
        assert_eq!(labels("cpuid"), ["cpuid"; 2]);
    }
}
