//! Guests whose clock is a device of QEMU's: each reading is an exit to QEMU.

use crate::evidence::Register;
use crate::rule::about_exits;
use crate::{Evidence, Finding, Rule};
use vmtax_model::number::count;
use vmtax_model::{ChangeCost, Remedy, SettingPlace};

const FILE: &str = vmtax_model::CLOCK_SOURCE_FILE;
const SOURCE: &str = "Linux kernel commit ad3610919e6f: an access that QEMU handles costs some 5,800 cycles; reading the TSC \
                      takes some 25 ns";

const fn kvm_clock(undo: &'static str) -> Remedy<&'static str> {
    Remedy {
        place: SettingPlace::GuestSysfs,
        setting: FILE,
        value: "kvm-clock",
        action: "Let the guest read kvm-clock (CONFIG_KVM_GUEST=y)",
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

pub(super) const PM_TIMER_CLOCK: Rule = Rule {
    id: "pm-timer-clock",
    finds: "reads of the ACPI PM timer",
    remedies: &[
        kvm_clock(
            "echo acpi_pm > /sys/devices/system/clocksource/clocksource0/current_clocksource",
        ),
        INVARIANT_TSC,
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
        Remedy {
            place: SettingPlace::QemuArgument,
            setting: "qemu-args",
            value: "-machine hpet=off",
            action: "Or take the HPET away",
            line: "-machine hpet=off",
            cost: Some(ChangeCost::VmRestart),
            read_back: "/sys/devices/system/clocksource/clocksource0/available_clocksource in the guest",
            undo: "leave hpet=off out",
        },
    ],
    source: SOURCE,
    evaluate: |evidence| clock_reads(evidence, Register::HpetCounter, "HPET's counter"),
};

fn clock_reads(evidence: &Evidence<'_>, register: Register, name: &str) -> Vec<Finding> {
    about_exits(evidence, |exits| {
        let reads = exits.reads(register);
        let text = format!(
            "The guest reads the {name} {} times: each is an exit to QEMU, under the BQL.",
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
    use crate::evidence::Register::{HpetCounter, PmTimer};
    use crate::test_evidence::{advice, fires};
    use std::collections::BTreeMap;
    use vmtax_model::samples::ApicFeatures;

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
