//! Guests ran under TCG: because nobody asked for KVM, or because KVM is of no use here.

use super::host::problem;
use crate::rule::{instruction, measurement};
use crate::{Evidence, Finding, Rule};
use vmtax_findings::Verdict;
use vmtax_model::number::significant;
use vmtax_model::{ChangeCost, HostFacts, HostProblem, KvmClass, Machine, Remedy, SettingPlace};

pub(super) const TCG_DESPITE_KVM: Rule = Rule {
    id: "tcg-despite-kvm",
    finds: "guests measured under TCG alone, at a cost, on a host with VT-x or AMD-V",
    remedies: &[
        Remedy {
            place: SettingPlace::QemuArgument,
            setting: "machine",
            value: "kvm",
            action: "Run guests with KVM",
            line: "-accel kvm",
            cost: Some(ChangeCost::VmRestart),
            read_back: "QMP query-kvm: \"enabled\": true",
            undo: "-accel tcg",
        },
        measurement("Measure what is left", "vmtax run --machine native,kvm"),
    ],
    source: "QEMU manual, System Emulation, Introduction: virtualization accelerators",
    evaluate: |evidence| {
        let Some(host) = without_kvm(evidence, &[KvmClass::Hardware]) else {
            return Vec::new();
        };
        let costs = evidence.overheads().filter(|(_, machine, overhead)| {
            *machine == Machine::TCG && overhead.verdict == Verdict::Slower
        });
        let ratios = costs.map(|(_, _, overhead)| overhead.ratio.median);
        let finding = |ratio: f64| {
            let text = format!(
                "tcg costs up to {} times native, and this host has KVM with VT-x or AMD-V ({}).",
                significant(ratio),
                host.kvm.evidence
            );
            Finding::with_gain(text, 1.0 - 1.0 / ratio)
        };
        let largest = ratios.max_by(f64::total_cmp);
        largest.map(finding).into_iter().collect()
    },
};

pub(super) const KVM_EMULATES_KERNELS: Rule = Rule {
    id: "kvm-emulates-kernels",
    finds: "KVM without hardware virtualization (PVM), which emulates most guest kernels, so that guests run under TCG",
    remedies: &[instruction(
        "Ask the provider for nested virtualization, or use bare metal",
        "",
    )],
    source: "",
    evaluate: |evidence| {
        if without_kvm(evidence, &[KvmClass::EmulatesKernels]).is_none() {
            return problem(evidence, HostProblem::KvmEmulatesKernels);
        }
        // What the probe measured is among the host's checks, in the details.
        let text = "KVM on this host works without VT-x or AMD-V (PVM). Only guest kernels built for PVM (--kernel) run at full speed; others \
                    are emulated. Linux guests therefore run under tcg.";
        vec![Finding::new(text.to_owned())]
    },
};

pub(super) const KVM_NOT_AVAILABLE: Rule = Rule {
    id: "kvm-not-available",
    finds: "no KVM that this user can use, so that guests run under TCG",
    remedies: &[instruction(
        "Make KVM available, as `vmtax doctor` says",
        "COMMAND",
    )],
    source: "",
    evaluate: |evidence| {
        let unusable = [KvmClass::Broken, KvmClass::NoPermission, KvmClass::Absent];
        let Some(host) = without_kvm(evidence, &unusable) else {
            return Vec::new();
        };
        let finding = |remedy: &Remedy| {
            let fix = match remedy.line.as_str() {
                "" => &remedy.action,
                line => line,
            };
            Finding {
                values: vec![("COMMAND", fix.to_owned())],
                ..Finding::new(format!(
                    "KVM is not available on this host ({}), so guests run under tcg only.",
                    host.kvm.evidence
                ))
            }
        };
        let check = host.checks.iter().find(|check| check.id == "kvm");
        let fix = check.and_then(|check| check.remedies.first());
        fix.map(finding).into_iter().collect()
    },
};

/// The host, if its KVM is of one of these classes and guests were wanted, none of them measured under KVM.
fn without_kvm<'a>(evidence: &Evidence<'a>, classes: &[KvmClass]) -> Option<&'a HostFacts> {
    let wanted = evidence.guests().next().is_some() && !evidence.measured(Machine::KVM);
    evidence
        .host
        .filter(|host| wanted && evidence.overhead.is_some() && classes.contains(&host.kvm.class))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_evidence::{Overheads, advice};

    fn findings_for(class: KvmClass, ratio: f64) -> Vec<String> {
        let overheads = Overheads::new(Machine::TCG, &[(vmtax_model::Metric::CpuEvents, ratio)]);
        let mut overheads = overheads.verdict(if ratio > 1.0 {
            Verdict::Slower
        } else {
            Verdict::Inconclusive
        });
        overheads.host.kvm.class = class;
        let ids = [
            "tcg-despite-kvm",
            "kvm-emulates-kernels",
            "kvm-not-available",
        ];
        ids.iter()
            .flat_map(|id| advice(id, &overheads.evidence()))
            .map(|advice| advice.finding)
            .collect()
    }

    #[test]
    fn each_class_of_kvm_has_its_finding() {
        let at_speed = findings_for(KvmClass::Hardware, 33.0);
        assert_eq!(
            at_speed,
            [
                "tcg costs up to 33.0 times native, and this host has KVM with VT-x or AMD-V (8e8/s)."
            ]
        );
        assert!(
            findings_for(KvmClass::EmulatesKernels, 33.0)[0]
                .contains("Linux guests therefore run under tcg")
        );
        assert!(
            findings_for(KvmClass::Absent, 33.0)[0]
                .contains("is not available on this host (8e8/s)")
        );
    }

    #[test]
    fn a_tcg_that_costs_nothing_and_a_measured_kvm_are_no_findings() {
        assert_eq!(findings_for(KvmClass::Hardware, 1.0), [""; 0]);
        let mut overheads = Overheads::new(Machine::KVM, &[(vmtax_model::Metric::CpuEvents, 2.0)]);
        overheads.host.kvm.class = KvmClass::EmulatesKernels;
        assert_eq!(advice("kvm-emulates-kernels", &overheads.evidence()), []);
        overheads.host.kvm.class = KvmClass::Absent;
        assert_eq!(advice("kvm-not-available", &overheads.evidence()), []);
    }
}
