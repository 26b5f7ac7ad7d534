//! Interrupts that come too often, or end at a cost.

use crate::evidence::{MIN_EXITS, Register};
use crate::rule::{about_exits, instruction};
use crate::{Finding, Rule};
use vmtax_model::{ChangeCost, Remedy, SettingPlace, number};

/// Slower timers are usual: Linux ticks 100 to 250 times a second.
const MIN_TICK_HZ: f64 = 500.0;
/// Rate from which an interrupt is no timer's, Hz.
pub const MAX_TICK_HZ: f64 = 2500.0;

pub(super) const FAST_TICK: Rule = Rule {
    id: "fast-tick",
    finds: "an interrupt 500 to 2500 times a second, as regularly as a timer's (intervals within a quarter of the one before)",
    remedies: &[Remedy {
        cost: Some(ChangeCost::GuestReboot),
        ..instruction(
            "Reduce the guest's timer rate: HZ=100 or 250, and NO_HZ, for a Linux guest",
            "",
        )
    }],
    source: "From 13µs to 200ns: Four Rounds of KVM Performance Work (Kevlar): from 1000 to 100 Hz",
    evaluate: |evidence| {
        about_exits(evidence, |exits| {
            let (count, hz) = exits.tick?;
            let is_fast = count >= MIN_EXITS && (MIN_TICK_HZ..MAX_TICK_HZ).contains(&hz);
            let text = format!(
                "A periodic interrupt, probably the guest's timer, comes {hz:.0} times a second (by {} intervals).",
                number::count(count)
            );
            is_fast.then(|| Finding::with_gain(text, exits.share(count)))
        })
    },
};

pub(super) const EOI: Rule = Rule {
    id: "eoi",
    finds: "interrupts ended at the local APIC by an exit each, by memory or by MSR, which together take a hundredth of the \
            vCPUs' time and more (where no time is known: 1000 a second and vCPU)",
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
        about_exits(evidence, |exits| {
            let by_memory = exits.writes(Register::Eoi);
            let ends = by_memory.saturating_add(exits.writes(Register::EoiByMsr));
            let place = if by_memory == 0 {
                "MSR 0x80b of the local APIC (x2APIC)"
            } else {
                "the local APIC"
            };
            let text = format!(
                "{} VM exits were caused by end-of-interrupt (EOI) writes to {place}, {:.0} a second.",
                number::count(ends),
                exits.per_s(ends)
            );
            exits
                .are_costly(ends)
                .then(|| Finding::with_gain(text, exits.share(ends)))
        })
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_evidence::{advice, fires};
    use crate::{Evidence, Exits};
    use std::collections::BTreeMap;
    use vmtax_findings::Advice;
    use vmtax_model::samples::{ApicFeatures, KvmFeatures};

    #[test]
    fn a_fast_timer_fires_and_an_ordinary_one_does_not() {
        let finding_count = |count, hz| {
            let counters = BTreeMap::new();
            let (tick, apic) = (Some((count, hz)), ApicFeatures::default());
            let exits = Exits {
                seconds: 5.0,
                vcpus: 2,
                mean_ns: 0.0,
                registers: &[],
                tick,
                counters: &counters,
                apic,
                kvm: KvmFeatures::default(),
                reasons: &[],
                page_faults: None,
                timers: &[],
            };
            advice(
                "fast-tick",
                &Evidence {
                    exits: Some(&exits),
                    ..Evidence::default()
                },
            )
            .len()
        };
        assert_eq!(finding_count(500, 1000.0), 1);
        assert_eq!(
            (
                finding_count(500, 250.0),
                finding_count(5000, 30_000.0),
                finding_count(20, 1000.0)
            ),
            (0, 0, 0)
        );
    }

    /// Advice of the rule about five seconds of these writes on two vCPUs, each of which takes so long.
    fn of_ends(register: Register, count: u64, mean_ns: f64, apic: ApicFeatures) -> Vec<Advice> {
        let registers = [(register, [0, count, 0])];
        let (tick, counters) = (None, &BTreeMap::new());
        let exits = Exits {
            seconds: 5.0,
            vcpus: 2,
            mean_ns,
            registers: &registers,
            tick,
            counters,
            apic,
            kvm: KvmFeatures::default(),
            reasons: &[],
            page_faults: None,
            timers: &[],
        };
        advice(
            "eoi",
            &Evidence {
                exits: Some(&exits),
                ..Evidence::default()
            },
        )
    }

    #[test]
    fn ends_of_interrupts_fire_when_their_exits_cost() {
        let findings =
            |count, mean_ns| of_ends(Register::Eoi, count, mean_ns, ApicFeatures::default()).len();
        assert_eq!(
            (findings(51_000, 2000.0), findings(49_000, 2000.0)),
            (1, 0),
            "a hundredth of the time of two vCPUs"
        );
        assert_eq!(
            (findings(125, 5000.0), findings(125, 100_000.0)),
            (0, 0),
            "25 a second"
        );
        assert!(
            fires("eoi", &[(Register::Eoi, [0, 10_000, 0])]),
            "no time is known"
        );
        assert!(fires(
            "eoi",
            &[
                (Register::Eoi, [0, 4000, 0]),
                (Register::EoiByMsr, [0, 6000, 0])
            ]
        ));
        assert!(!fires("eoi", &[(Register::Eoi, [0, 9000, 0])]));
    }

    #[test]
    fn what_is_enabled_is_not_advised() {
        let actions = |register, pv_eoi, x2apic| -> Vec<String> {
            let found =
                of_ends(register, 50_000, 5000.0, ApicFeatures { pv_eoi, x2apic }).remove(0);
            found
                .remedies
                .into_iter()
                .map(|remedy| remedy.action.chars().take(16).collect())
                .collect()
        };
        let host = "Use a host whose";
        assert_eq!(
            actions(Register::Eoi, None, None),
            ["Enable PV EOI, s", "Or enable x2APIC", "Or use a host wh"]
        );
        assert_eq!(
            actions(Register::EoiByMsr, None, None),
            ["Enable PV EOI, s", "Or use a host wh"],
            "it is x2APIC"
        );
        assert_eq!(
            actions(Register::Eoi, Some(true), Some(false)),
            ["Enable x2APIC, w", "Or use a host wh"]
        );
        assert_eq!(actions(Register::Eoi, Some(true), Some(true)), [host]);
        assert_eq!(actions(Register::EoiByMsr, Some(true), None), [host]);
        let of_msr = of_ends(Register::EoiByMsr, 50_000, 5000.0, ApicFeatures::default()).remove(0);
        assert!(
            of_msr
                .finding
                .contains("MSR 0x80b of the local APIC (x2APIC), 10000 a second"),
            "{}",
            of_msr.finding
        );
    }
}
