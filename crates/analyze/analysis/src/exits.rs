//! Costs of a VM exit of each kind, all rounds' exits of a kind as one distribution; and of the antipatterns of guest kernels,
//! compared with their fixes.

use crate::estimate::{estimate, median_of, paired};
use crate::trials::{add_warnings, each_once};
use std::collections::BTreeMap;
use vmtax_findings::{
    AntipatternFindings, AntipatternForm, AntipatternRow, Estimate, ExitFindings, ExitKind,
    HANDLED_IN_KVM, HANDLED_IN_QEMU, INTERRUPT_CONTROLLER, MachineAntipatterns, MachineExits,
    NO_DEVICE, Summary,
};
use vmtax_model::{
    Accelerator, Antipattern, HostFacts, KERNEL_MODE, KvmClass, Latency, Machine, Plan,
    TrialRecord, TrialResult,
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
        KvmClass::EmulatesKernels => {
            "KVM without hardware virtualization (PVM): guest CPL 3 runs natively, CPL 0 is emulated"
        }
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

const ANTIPATTERN_METHOD: &str = "Timed by rdtsc in the micro-guest: a round's figure is the median interval divided by its number of \
                      operations. Each ratio is of figures of one round, then the median over rounds (paired). Exits: KVM's \
                      counters.";

/// Analyzes the trials of `guest-antipatterns`: each antipattern's cost on each machine.
pub fn antipatterns(plan: &Plan, host: &HostFacts, trials: &[TrialRecord]) -> AntipatternFindings {
    let mut warnings = Vec::new();
    add_warnings(&mut warnings, trials);
    AntipatternFindings {
        schema: vmtax_findings::REPORT_SCHEMA,
        rounds_planned: plan.rounds,
        method: ANTIPATTERN_METHOD.to_owned(),
        machines: plan
            .machines
            .iter()
            .map(|&m| antipatterns_of(m, host, trials))
            .collect(),
        warnings,
    }
}

fn antipatterns_of(
    machine: Machine,
    host: &HostFacts,
    trials: &[TrialRecord],
) -> MachineAntipatterns {
    let results = trials
        .iter()
        .filter(|t| t.machine == machine)
        .filter_map(|t| Some((t.round, t.result()?)));
    let results: Vec<(u32, &TrialResult)> = results.collect();
    let emulates = machine == Machine::MICRO_KVM && host.kvm.class == KvmClass::EmulatesKernels;
    MachineAntipatterns {
        machine,
        rows: Antipattern::ALL
            .into_iter()
            .map(|antipattern| row(antipattern, emulates, &results))
            .collect(),
    }
}

fn row(
    antipattern: Antipattern,
    emulates: bool,
    results: &[(u32, &TrialResult)],
) -> AntipatternRow {
    let [(before, of_before), (after, of_after)] =
        [false, true].map(|fixed| form(antipattern, fixed, results));
    let noted = |fixed: bool| {
        let name = format!("{}: ", antipattern.label(fixed));
        results
            .iter()
            .flat_map(|(_, result)| &result.notes)
            .find_map(|note| note.strip_prefix(&name))
    };
    let why = match (&before, &after) {
        (Some(_), Some(_)) => "",
        _ => noted(false)
            .or(noted(true))
            .unwrap_or("no trial gave a value"),
    };
    AntipatternRow {
        antipattern,
        ratio: paired(&of_after, &of_before).map(|pair| pair.ratio),
        exits_saved: exits_saved(antipattern, results),
        before,
        after,
        emulated: emulates
            && (antipattern.in_kernel_mode(false) || antipattern.in_kernel_mode(true)),
        why: why.to_owned(),
    }
}

/// By how many exits an antipattern has more than its fix, in each round.
fn exits_saved(antipattern: Antipattern, results: &[(u32, &TrialResult)]) -> Option<Estimate> {
    let exits = |result: &TrialResult, fixed: bool| {
        let mut exits = result.exits.iter();
        let own = exits.find(|exits| exits.operation == antipattern.label(fixed));
        own.map(|exits| exits.each)
    };
    let saved = results
        .iter()
        .filter_map(|(_, result)| Some(exits(result, false)? - exits(result, true)?));
    let saved: Vec<f64> = saved.collect();
    (!saved.is_empty()).then(|| estimate(saved))
}

/// One form over all rounds, and its figure in each.
fn form(
    antipattern: Antipattern,
    fixed: bool,
    results: &[(u32, &TrialResult)],
) -> (Option<AntipatternForm>, BTreeMap<u32, f64>) {
    let name = antipattern.label(fixed);
    let (mut n, mut rounds) = (0, BTreeMap::new());
    for (round, result) in results {
        let mut operations = result.operations.iter();
        let Some(own) = operations.find(|o| o.name == name && o.latency.count() > 0) else {
            continue;
        };
        n += own.latency.count();
        let median = own.latency.quantile(0.5) as f64;
        rounds.insert(*round, median / f64::from(antipattern.batch()));
    }
    let exits = results.iter().flat_map(|(_, result)| &result.exits);
    let exits = exits.filter(|e| e.operation == name).map(|e| e.each);
    let exits: Vec<f64> = exits.collect();
    let ns = estimate(rounds.values().copied().collect());
    let exits = (!exits.is_empty()).then(|| median_of(exits));
    ((n > 0).then_some(AntipatternForm { ns, exits, n }), rounds)
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
