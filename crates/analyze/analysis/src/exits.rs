//! What a VM exit of each kind costs: all rounds' exits of a kind as one distribution.

use vmtax_model::{
    ExitFindings, ExitKind, HostFacts, KERNEL_MODE, KvmClass, Latency, Machine, MachineExits, Plan, Summary,
    TrialRecord,
};

const METHOD: &str = "Stamps of the time stamp counter before and after each, taken by the micro-guest itself; the rounds' \
                      exits of a kind are one distribution. The first row is what the stamps alone show; it is not \
                      subtracted.";
const HALT: &str = "from the moment for which the timer was set to the first instruction after";

/// What the trials of `exits` say. `about` is version, command line and begin of the recording.
pub fn exits(plan: &Plan, host: &HostFacts, trials: &[TrialRecord], about: (&str, &[String], &str)) -> ExitFindings {
    let (vmtax, command, started) = about;
    ExitFindings {
        schema: vmtax_model::REPORT_SCHEMA,
        vmtax: vmtax.to_owned(),
        command: command.to_vec(),
        started: started.to_owned(),
        cpu: host.cpu.model.clone(),
        kernel: host.kernel.clone(),
        kvm: kvm(host.kvm.class).to_owned(),
        machines: plan.machines.iter().filter_map(|&m| machine(m, host, trials)).collect(),
        method: METHOD.to_owned(),
        warnings: trials.iter().flat_map(|t| t.warnings.clone()).fold(Vec::new(), |mut all, w| {
            if !all.contains(&w) {
                all.push(w);
            }
            all
        }),
        advice: Vec::new(),
    }
}

const fn kvm(class: KvmClass) -> &'static str {
    match class {
        KvmClass::Hardware => "KVM on hardware",
        KvmClass::EmulatesKernels => "a KVM that runs user mode natively and emulates kernel mode",
        KvmClass::Broken | KvmClass::NoPermission | KvmClass::Absent => "",
    }
}

fn machine(machine: Machine, host: &HostFacts, trials: &[TrialRecord]) -> Option<MachineExits> {
    let mut all: Vec<(String, Latency)> = Vec::new();
    for operation in
        trials.iter().filter(|t| t.machine == machine).filter_map(TrialRecord::result).flat_map(|r| &r.operations)
    {
        match all.iter_mut().find(|(name, _)| *name == operation.name) {
            Some((_, latency)) => latency.add(&operation.latency),
            None => all.push((operation.name.clone(), operation.latency.clone())),
        }
    }
    let emulates = machine == Machine::MICRO_KVM && host.kvm.class == KvmClass::EmulatesKernels;
    let mut kinds = all.iter().map(|(name, latency)| kind(name, latency, emulates));
    let stamp = kinds.next()?;
    let qemu = host.qemu.first().map_or_else(String::new, |q| format!("QEMU {}", q.version));
    Some(MachineExits { machine, qemu, stamp, kinds: kinds.collect(), missing: Vec::new() })
}

fn kind(name: &str, latency: &Latency, emulates: bool) -> ExitKind {
    let emulated = emulates && name.ends_with(KERNEL_MODE);
    ExitKind {
        label: name.to_owned(),
        time: Summary::of(latency).unwrap_or_default(),
        emulated,
        note: if name.starts_with("hlt") { HALT.to_owned() } else { String::new() },
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
        assert!(kind(&rdmsr, &latency, true).emulated && !kind(&rdmsr, &latency, false).emulated);
        let plain = kind(cpuid, &latency, true);
        assert!(!plain.emulated && plain.note.is_empty());
        assert_eq!(
            (plain.time.n, plain.time.min_ns, plain.time.p50_ns, plain.time.p99_ns, plain.time.max_ns),
            (100, 10.0, 500.0, 990.0, 1000.0)
        );
    }
}
