//! Interrupts that come too often, or end at a cost.

use crate::evidence::{MIN_EXITS, Register};
use crate::rule::instruction;
use crate::{Exits, Finding, Rule};
use vmtax_model::{ChangeCost, Remedy, SettingPlace, number};

/// Slower timers are usual: Linux ticks 100 to 250 times a second.
const MIN_TICK_HZ: f64 = 500.0;
/// What comes faster is no timer, Hz.
pub const MAX_TICK_HZ: f64 = 2500.0;

pub(super) const FAST_TICK: Rule = Rule {
    id: "fast-tick",
    finds: "an interrupt 500 to 2500 times a second, as regularly as a timer's (intervals within a quarter of the one before)",
    remedies: &[Remedy {
        cost: Some(ChangeCost::GuestReboot),
        ..instruction("Let the guest tick less often: HZ=100 or 250, and NO_HZ, for a Linux guest", "")
    }],
    source: "From 13µs to 200ns: Four Rounds of KVM Performance Work (Kevlar): from 1000 to 100 Hz",
    evaluate: |evidence| {
        let tick = evidence.exits.and_then(|exits| Some((exits, exits.tick?)));
        let fast = tick.filter(|(_, (count, hz))| *count >= MIN_EXITS && (MIN_TICK_HZ..MAX_TICK_HZ).contains(hz));
        let finding = |(exits, (count, hz)): (&Exits<'_>, (u64, f64))| Finding {
            text: format!(
                "A periodic interrupt, probably the guest's timer, comes {hz:.0} times a second (by {} intervals).",
                number::count(count)
            ),
            gain: exits.share(count),
            ..Finding::default()
        };
        fast.map(finding).into_iter().collect()
    },
};

pub(super) const EOI: Rule = Rule {
    id: "eoi",
    finds: "interrupts ended at the local APIC by an exit each, by memory or by MSR",
    remedies: &[
        Remedy {
            place: SettingPlace::QemuArgument,
            setting: "cpu-model",
            value: "host,,+kvm-pv-eoi",
            action: "Enable PV EOI, so that a guest kernel with CONFIG_KVM_GUEST signals the EOI without a VM exit",
            line: "-cpu host,+kvm-pv-eoi",
            cost: Some(ChangeCost::VmRestart),
            read_back: "qom-get of the CPU's kvm-pv-eoi",
            undo: "-cpu host,-kvm-pv-eoi",
        },
        Remedy {
            place: SettingPlace::QemuArgument,
            setting: "cpu-model",
            value: "host,,+x2apic",
            action: "Or enable x2APIC, where an EOI is an MSR write instead of MMIO",
            line: "-cpu host,+x2apic",
            cost: Some(ChangeCost::VmRestart),
            read_back: "x2apic in /proc/cpuinfo in the guest",
            undo: "-cpu host,-x2apic",
        },
        instruction("Or use a host whose APICv or AVIC is on", ""),
    ],
    source: "Linux kernel commit ae7a2a3fb6f8: fewer exits of an interrupt, by as much as half",
    evaluate: |evidence| {
        let ends = evidence.exits.filter(|exits| exits.many(exits.writes(Register::Eoi)));
        let finding = |exits: &Exits<'_>, ends: u64| Finding {
            text: format!(
                "{} VM exits were caused by end-of-interrupt (EOI) writes to the local APIC.",
                number::count(ends)
            ),
            gain: exits.share(ends),
            ..Finding::default()
        };
        ends.map(|exits| finding(exits, exits.writes(Register::Eoi))).into_iter().collect()
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Evidence;
    use crate::test_evidence::{advice, fires};
    use std::collections::BTreeMap;

    #[test]
    fn a_fast_timer_fires_and_an_ordinary_one_does_not() {
        let of = |count, hz| {
            let counters = BTreeMap::new();
            let tick = Some((count, hz));
            let exits = Exits { seconds: 5.0, vcpus: 2, mean_ns: 0.0, registers: &[], tick, counters: &counters };
            advice("fast-tick", &Evidence { exits: Some(&exits), ..Evidence::default() }).len()
        };
        assert_eq!(of(500, 1000.0), 1);
        assert_eq!((of(500, 250.0), of(5000, 30_000.0), of(20, 1000.0)), (0, 0, 0));
    }

    #[test]
    fn ends_of_interrupts_fire_when_they_exit_often() {
        assert!(fires("eoi", &[(Register::Eoi, [0, 600, 0])]));
        assert!(!fires("eoi", &[(Register::Eoi, [0, 40, 0])]));
    }
}
