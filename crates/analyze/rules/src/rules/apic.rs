//! Accesses to the local APIC by an exit each: interrupts of other vCPUs, the task priority; and features of the host's CPU that
//! serve it without exits.

use super::settings_to_check::value;
use crate::evidence::Register;
use crate::rule::{about_exits, about_vm, instruction};
use crate::{Evidence, Finding, Rule};
use vmtax_model::number::{count as grouped, percent};
use vmtax_model::{Accelerator, Remedy, Setting};

const APICV: Remedy<&str> = Setting::named("host.apicv").remedy(
    "Y",
    "Or enable APICv: the CPU then serves the local APIC without exits",
);
const AVIC: Remedy<&str> = Setting::named("host.avic").remedy(
    "Y",
    "Or enable AVIC: the CPU then serves the local APIC without exits",
);

pub(super) const INTERRUPT_COMMANDS: Rule = Rule {
    id: "interrupt-commands",
    finds: "interrupts that vCPUs send each other by an exit each, which together take a hundredth of the vCPUs' time and more (where no time is known: 1000 a second and vCPU; Windows by recorded exits: unproven here)",
    remedies: &[
        Setting::named("cpu-flag.kvm-pv-ipi").remedy(
            "on",
            "Enable kvm-pv-ipi: a Linux guest then interrupts several vCPUs with one exit",
        ),
        Setting::named("cpu-flag.hv-ipi").remedy(
            "on",
            "Or, for Windows: enable hv-ipi (with hv-vpindex), which interrupts several vCPUs with one exit",
        ),
        APICV,
        AVIC,
        instruction(
            "Or wake fewer vCPUs: give the guest no more than it needs",
            "",
        ),
    ],
    source: "kvm mailing list, PV IPIs: ebizzy 14 % faster, 70 % fewer MSR exits with 64 vCPUs",
    evaluate: |evidence| {
        of_register(
            evidence,
            Register::InterruptCommand,
            "vCPUs interrupt each other",
        )
    },
};

pub(super) const TASK_PRIORITY: Rule = Rule {
    id: "task-priority",
    finds: "accesses to the task priority of the local APIC by an exit each, which together take a hundredth of the vCPUs' time and more (where no time is known: 1000 a second and vCPU; Windows by recorded exits: unproven here)",
    remedies: &[
        Setting::named("cpu-flag.hv-vapic").remedy(
            "on",
            "For Windows: enable hv-vapic, which keeps the task priority in memory",
        ),
        APICV,
        AVIC,
    ],
    source: "QEMU documentation, Hyper-V Enlightenments: hv-vapic",
    evaluate: |evidence| {
        of_register(
            evidence,
            Register::TaskPriority,
            "The guest accesses its task priority",
        )
    },
};

fn of_register(evidence: &Evidence<'_>, register: Register, what: &str) -> Vec<Finding> {
    about_exits(evidence, |exits| {
        let accesses = exits.accesses(register);
        let gain = exits.share(accesses);
        let text = format!(
            "{what} {} times in {:.1} s by an exit each: {} of the vCPUs' time.",
            grouped(accesses),
            exits.seconds,
            percent(gain)
        );
        exits
            .are_costly(accesses)
            .then(|| Finding::with_gain(text, gain))
    })
}

pub(super) const SETTING_APICV: Rule = Rule {
    id: "setting-apicv",
    finds: "APICv (AVIC) off in KVM, though the host's CPU could serve the local APIC of a running VM, so that interrupts take exits",
    remedies: &[
        Remedy {
            action: "Enable APICv: the CPU then serves the local APIC without exits",
            ..APICV
        },
        Remedy {
            action: "Enable AVIC, if this CPU's has no known fault: the CPU then serves the local APIC without exits",
            ..AVIC
        },
    ],
    source: "Linux kernel documentation, Kernel Parameters: kvm-intel.enable_apicv, kvm-amd.avic",
    evaluate: |evidence| {
        let (is_off, name) = match (
            value(evidence, "host.apicv").and_then(is_on),
            value(evidence, "host.avic").and_then(is_on),
        ) {
            (Some(false), _) => (true, "APICv"),
            (None, Some(false)) => (true, "AVIC"),
            _ => (false, ""),
        };
        about_vm(evidence, |vm| {
            let is_kvm = vm.accelerator == Some(Accelerator::Kvm);
            (is_off && is_kvm).then(|| {
                Finding::new(format!(
                    "{name} is off on the host: interrupts of the guest begin or end with a VM exit."
                ))
            })
        })
    },
};

pub(super) const WINDOWS_AVIC: Rule = Rule {
    id: "setting-windows-avic",
    finds: "a Windows guest whose synthetic interrupt controller (hv-synic) keeps it from using the APICv or AVIC that the host has, as it is without hv-avic; or one with hv-avic on a host without them (unproven here)",
    remedies: &[
        Setting::named("cpu-flag.hv-avic").remedy(
            "on",
            "Have Windows end interrupts by the local APIC, which the host's CPU serves",
        ),
        instruction(
            "Start the VM without hv-avic on this host: each end of an interrupt is an exit by it",
            "-cpu MODEL,hv-avic=off # libvirt: <features><hyperv mode='custom'><avic state='off'/></hyperv></features>",
        ),
    ],
    source: "QEMU documentation, Hyper-V Enlightenments: hv-avic",
    evaluate: |evidence| {
        let Some(vm) = evidence.configuration.filter(|vm| vm.windows.is_some()) else {
            return Vec::new();
        };
        let has = |name: &str| vm.enlightenments.get(name) == Some(&true);
        let has_avic = has("avic") || has("apicv");
        let parameter = value(evidence, "host.apicv").or(value(evidence, "host.avic"));
        let finding = match parameter.and_then(is_on) {
            Some(true) if has("synic") && !has_avic && !vm.has_all_enlightenments => Finding {
                unfit: Some(vmtax_model::SettingPlace::Instruction),
                ..Finding::new("hv-synic without hv-avic: Windows ends its interrupts by Hyper-V's own way, and the host's APICv or AVIC is not used on kernels before 5.15.".to_owned())
            },
            Some(false) if has_avic => Finding {
                unfit: Some(vmtax_model::SettingPlace::QemuArgument),
                ..Finding::new("hv-avic is on, but the host has neither APICv nor AVIC on: each end of an interrupt is an exit.".to_owned())
            },
            _ => return Vec::new(),
        };
        vec![finding]
    },
};

/// A module's switch, which older kernels print as a number.
pub(super) fn is_on(value: &str) -> Option<bool> {
    match value {
        "Y" | "1" => Some(true),
        "N" | "0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_evidence::{TestExits, host, windows};
    use crate::{evaluate, settings};
    use vmtax_findings::VmRates;
    use vmtax_model::VmConfiguration;
    use vmtax_model::samples::KvmFeatures;

    fn remedies(id: &str, register: Register, vm: &VmConfiguration, intel: bool) -> Vec<String> {
        let exits = TestExits {
            registers: vec![(register, [0, 300_000, 0])],
            mean_ns: 2500.0,
            kvm: KvmFeatures {
                is_intel: Some(intel),
                apicv: Some(false),
                nested_paging: Some(true),
            },
            ..TestExits::default()
        };
        let advice = exits.advice(id, Some(vm)).remove(0);
        advice.remedies.into_iter().map(|one| one.setting).collect()
    }

    #[test]
    fn interrupts_between_vcpus_have_the_guests_own_remedy_and_the_hosts() {
        let linux = VmConfiguration::default();
        let of_linux = ["cpu-flag.kvm-pv-ipi", "host.apicv", ""];
        let (id, icr) = ("interrupt-commands", Register::InterruptCommand);
        assert_eq!(remedies(id, icr, &linux, true), of_linux);
        let passed = VmConfiguration {
            cpu_model: Some("host".to_owned()),
            ..VmConfiguration::default()
        };
        assert_eq!(remedies(id, icr, &passed, false), ["host.avic", ""]);
        let bare = windows(&["relaxed"]);
        assert_eq!(
            remedies(id, icr, &bare, true),
            ["cpu-flag.hv-ipi", "host.apicv", ""]
        );
        let helped = windows(&["ipi", "vpindex"]);
        assert_eq!(remedies(id, icr, &helped, false), ["host.avic", ""]);
    }

    #[test]
    fn a_task_priority_in_memory_needs_no_exit() {
        let (id, tpr) = ("task-priority", Register::TaskPriority);
        let bare = windows(&["relaxed"]);
        assert_eq!(
            remedies(id, tpr, &bare, false),
            ["cpu-flag.hv-vapic", "host.avic"]
        );
        let few = TestExits {
            registers: vec![(Register::TaskPriority, [0, 90_000, 0])],
            mean_ns: 2500.0,
            ..TestExits::default()
        };
        assert_eq!(few.advice(id, None), [], "0.6 % of the time");
    }

    #[test]
    fn a_host_that_does_not_serve_the_apic_is_worth_a_check() {
        let found = |files: &[(&str, &str)], configuration: Option<&VmConfiguration>| {
            let mut host = host();
            host.settings = files
                .iter()
                .map(|(file, value)| ((*file).to_owned(), (*value).to_owned()))
                .collect();
            let vm = VmRates {
                accelerator: Some(Accelerator::Kvm),
                ..VmRates::default()
            };
            let evidence = Evidence {
                host: Some(&host),
                vm: Some(&vm),
                configuration,
                ..Evidence::default()
            };
            assert_eq!(evaluate(&evidence), [], "no cause");
            let rule = |one: vmtax_findings::Advice| {
                (
                    one.rule,
                    one.remedies
                        .into_iter()
                        .map(|one| one.setting)
                        .collect::<Vec<_>>(),
                )
            };
            settings(&evidence)
                .into_iter()
                .map(rule)
                .filter(|(rule, _)| !rule.starts_with("configured-"))
                .collect::<Vec<_>>()
        };
        let named = |rule: &str, setting: &str| (rule.to_owned(), vec![setting.to_owned()]);
        let (apicv, avic) = (
            "/sys/module/kvm_intel/parameters/enable_apicv",
            "/sys/module/kvm_amd/parameters/avic",
        );
        assert_eq!(
            found(&[(apicv, "N")], None),
            [named("setting-apicv", "host.apicv")]
        );
        assert_eq!(
            found(&[(avic, "0")], None),
            [named("setting-apicv", "host.avic")]
        );
        assert_eq!(found(&[(apicv, "Y")], None), []);
        let all = windows(super::super::configured_guest::WANTED.as_slice());
        assert_eq!(
            found(&[(apicv, "Y")], Some(&all)),
            [named("setting-windows-avic", "cpu-flag.hv-avic")]
        );
        let mut with_avic = all;
        with_avic.enlightenments.insert("avic".to_owned(), true);
        assert_eq!(found(&[(apicv, "Y")], Some(&with_avic)), []);
        assert_eq!(
            found(&[(apicv, "N")], Some(&with_avic))[1],
            named("setting-windows-avic", "")
        );
    }
}
