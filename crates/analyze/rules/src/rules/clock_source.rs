//! Guests whose clock is a device of QEMU's: each reading is an exit to QEMU.

use crate::evidence::Register;
use crate::rule::{about_exits, instruction};
use crate::{Evidence, Finding, Rule};
use vmtax_model::number::{count, percent};
use vmtax_model::{ChangeCost, Remedy, Setting, SettingPlace};

const FILE: &str = vmtax_model::CLOCK_SOURCE_FILE;
const SOURCE: &str = "Linux kernel commit ad3610919e6f: an access that QEMU handles costs some 5,800 cycles; reading the TSC \
                      takes some 25 ns";

const fn kvm_clock(undo: &'static str) -> Remedy<&'static str> {
    Remedy {
        place: SettingPlace::GuestSysfs,
        setting: FILE,
        value: "kvm-clock",
        action: "Use kvm-clock in the guest (CONFIG_KVM_GUEST=y)",
        line: "echo kvm-clock > /sys/devices/system/clocksource/clocksource0/current_clocksource",
        cost: Some(ChangeCost::Live),
        read_back: FILE,
        undo,
    }
}

const INVARIANT_TSC: Remedy<&str> = Remedy {
    place: SettingPlace::QemuArgument,
    setting: "cpu-model",
    value: "host,,+invtsc",
    action: "Or offer the guest the TSC",
    line: "-cpu host,+invtsc",
    cost: Some(ChangeCost::VmRestart),
    read_back: FILE,
    undo: "leave +invtsc out",
};

/// Hyper-V's clock, which Windows reads without an exit where the TSC is invariant.
const HYPER_V_CLOCK: Remedy<&str> = Setting::named("cpu-flag.hv-time")
    .remedy("on", "Or, for Windows: enable hv-time, Hyper-V's clock");

/// A machine without an HPET.
pub(super) const NO_HPET: Remedy<&str> = Remedy {
    place: SettingPlace::QemuArgument,
    setting: "qemu-args",
    value: "-machine hpet=off",
    action: "Or start the VM without an HPET",
    line: "-machine hpet=off # libvirt: <clock><timer name='hpet' present='no'/></clock> # Proxmox: qm set VMID --args '-machine hpet=off'",
    cost: Some(ChangeCost::VmRestart),
    read_back: "/sys/devices/system/clocksource/clocksource0/available_clocksource in the guest",
    undo: "leave hpet=off out",
};

pub(super) const PM_TIMER_CLOCK: Rule = Rule {
    id: "pm-timer-clock",
    finds: "reads of the ACPI PM timer",
    remedies: &[
        kvm_clock(
            "echo acpi_pm > /sys/devices/system/clocksource/clocksource0/current_clocksource",
        ),
        INVARIANT_TSC,
        HYPER_V_CLOCK,
    ],
    source: SOURCE,
    evaluate: |evidence| clock_reads(evidence, Register::PmTimer, "ACPI PM timer"),
};

pub(super) const HPET_CLOCK: Rule = Rule {
    id: "hpet-clock",
    finds: "reads of the HPET's counter",
    remedies: &[
        kvm_clock("echo hpet > /sys/devices/system/clocksource/clocksource0/current_clocksource"),
        INVARIANT_TSC,
        HYPER_V_CLOCK,
        NO_HPET,
    ],
    source: SOURCE,
    evaluate: |evidence| clock_reads(evidence, Register::HpetCounter, "HPET's counter"),
};

pub(super) const REFERENCE_COUNTER: Rule = Rule {
    id: "reference-counter-clock",
    finds: "reads of Hyper-V's reference counter by an exit each, by a guest that does not use Hyper-V's TSC page (Windows by recorded exits: unproven here)",
    remedies: &[
        Remedy {
            action: "Offer the guest the TSC as one that never changes its rate",
            ..INVARIANT_TSC
        },
        instruction(
            "And use the TSC as the host's clock source: KVM offers the page only then",
            "cat /sys/devices/system/clocksource/clocksource0/current_clocksource",
        ),
    ],
    source: "cloud-hypervisor/cloud-hypervisor#8380: 3.2 million exits in 90 s of a Windows without the TSC page",
    evaluate: |evidence| {
        about_exits(evidence, |exits| {
            let reads = exits.reads(Register::ReferenceCounter);
            let gain = exits.share(reads);
            let text = format!(
                "The guest reads Hyper-V's reference counter {} times in {:.1} s by an exit each: {} of the vCPUs' time.",
                count(reads),
                exits.seconds,
                percent(gain)
            );
            let is_costly = exits.many(reads) && !exits.are_cheap(reads);
            is_costly.then(|| Finding::with_gain(text, gain))
        })
    },
};

fn clock_reads(evidence: &Evidence<'_>, register: Register, name: &str) -> Vec<Finding> {
    about_exits(evidence, |exits| {
        let reads = exits.reads(register);
        let text = format!(
            "The guest reads the {name} {} times; each read is a VM exit to QEMU, under the BQL.",
            count(reads)
        );
        let is_costly = exits.many(reads) && !exits.are_cheap(reads);
        is_costly.then(|| Finding::with_gain(text, exits.share(reads)))
    })
}

#[cfg(test)]
mod tests {
    use crate::Evidence;
    use crate::evidence::Exits;
    use crate::evidence::Register::ReferenceCounter;
    use crate::evidence::Register::{HpetCounter, PmTimer};
    use crate::test_evidence::{TestExits, advice, fires, windows};
    use std::collections::BTreeMap;
    use vmtax_model::samples::{ApicFeatures, KvmFeatures};

    #[test]
    fn clocks_of_qemu_fire_when_they_are_read_often() {
        assert!(fires("pm-timer-clock", &[(PmTimer, [600, 0, 0])]));
        assert!(fires("hpet-clock", &[(HpetCounter, [600, 0, 0])]));
        assert!(
            !fires("pm-timer-clock", &[(PmTimer, [20, 0, 0])]),
            "at boot"
        );
        assert!(
            !fires("pm-timer-clock", &[(PmTimer, [0, 600, 600])]),
            "writes"
        );
        assert!(
            !fires("hpet-clock", &[(PmTimer, [600, 0, 0])]),
            "the other one"
        );
    }

    #[test]
    fn windows_has_remedies_of_its_own() {
        let exits = TestExits {
            registers: vec![(PmTimer, [60_000, 0, 0])],
            mean_ns: 12_000.0,
            ..TestExits::default()
        };
        let settings = |enlightenments: &[&str]| -> Vec<String> {
            let vm = windows(enlightenments);
            let advice = exits.advice("pm-timer-clock", Some(&vm)).remove(0);
            advice.remedies.into_iter().map(|one| one.setting).collect()
        };
        assert_eq!(settings(&["relaxed"]), ["cpu-model", "cpu-flag.hv-time"]);
        assert_eq!(settings(&["time"]), ["cpu-model"]);
        let linux = exits.advice("pm-timer-clock", Some(&Default::default()));
        assert_eq!(linux[0].remedies.len(), 2, "{linux:?}");
    }

    /// As a public report of a Windows 11 has it: 36,000 reads a second.
    #[test]
    fn a_windows_without_the_tsc_page_is_found() {
        let exits = |reads| TestExits {
            registers: vec![(ReferenceCounter, [reads, 0, 0])],
            mean_ns: 1200.0,
            ..TestExits::default()
        };
        let vm = windows(&["relaxed", "time"]);
        let found = exits(361_000).advice("reference-counter-clock", Some(&vm));
        assert_eq!(
            found[0].finding.replace('\u{a0}', " "),
            "The guest reads Hyper-V's reference counter 361,000 times in 10.0 s by an exit each: 1.1 % of the vCPUs' time."
        );
        assert!(
            exits(9_000)
                .advice("reference-counter-clock", Some(&vm))
                .is_empty()
        );
    }

    #[test]
    fn reads_that_take_less_than_a_hundredth_of_the_time_are_no_finding() {
        let finding_count = |mean_ns| {
            let (registers, counters) = ([(HpetCounter, [600, 0, 0])], BTreeMap::new());
            let (tick, apic) = (None, ApicFeatures::default());
            let exits = Exits {
                seconds: 5.0,
                vcpus: 1,
                mean_ns,
                registers: &registers,
                tick,
                counters: &counters,
                apic,
                kvm: KvmFeatures::default(),
                reasons: &[],
                page_faults: None,
                timers: &[],
            };
            advice(
                "hpet-clock",
                &Evidence {
                    exits: Some(&exits),
                    ..Evidence::default()
                },
            )
            .len()
        };
        assert_eq!(
            (finding_count(12_000.0), finding_count(100_000.0)),
            (0, 1),
            "0.14 % and 1.2 %"
        );
    }
}
