//! A KVM that polls for halted vCPUs, in vain.

use crate::rule::about_exits;
use crate::{Finding, Rule};
use vmtax_model::{ChangeCost, LiveChange, LiveMetric, Remedy, Setting, SettingPlace};

/// The part of the vCPUs' time that polling in vain may take.
const MAX_SHARE: f64 = 0.05;

pub(super) const HALT_POLLING: Rule = Rule {
    id: "halt-polling",
    finds: "a twentieth of the vCPUs' time and more polled in vain by KVM, and more than with success",
    remedies: &[
        Setting::named("host.halt-poll-ns").remedy("0", "Poll less on the host"),
        Remedy {
            place: SettingPlace::GuestSysfs,
            setting: "/sys/devices/system/cpu/cpuidle/current_governor",
            value: "menu",
            action: "And leave polling in the guest off",
            line: "echo menu > /sys/devices/system/cpu/cpuidle/current_governor",
            cost: Some(ChangeCost::Live),
            read_back: "/sys/devices/system/cpu/cpuidle/current_governor",
            undo: "echo haltpoll > /sys/devices/system/cpu/cpuidle/current_governor",
        },
    ],
    source: "Linux kernel documentation, The KVM halt polling system",
    evaluate: |evidence| {
        about_exits(evidence, |exits| {
            let vain = exits.counter("halt_poll_fail_ns");
            let useful = exits.counter("halt_poll_success_ns");
            let share = exits.part(vain);
            let text = format!(
                "KVM polled {:.1} ms in vain for halted vCPUs ({:.0} % of their time), {:.1} ms with success.",
                vain / 1e6,
                share * 100.0,
                useful / 1e6
            );
            let off = Setting::named("host.halt-poll-ns").live("0");
            (share >= MAX_SHARE && vain > useful).then(|| Finding {
                change: Some(LiveChange {
                    action: "Disable KVM's halt polling".to_owned(),
                    cost: ChangeCost::HostSetting,
                    metric: Some(LiveMetric::Requests),
                    disk: None,
                    settings: off.into_iter().collect(),
                }),
                ..Finding::with_gain(text, share)
            })
        })
    },
};

#[cfg(test)]
mod tests {
    use crate::test_evidence::findings;
    use crate::{Evidence, Exits};
    use vmtax_model::samples::{ApicFeatures, KvmFeatures};

    #[test]
    fn polling_fires_where_it_is_long_and_in_vain() {
        let findings_for = |vain, useful| {
            let counters = [
                ("halt_poll_fail_ns", vain),
                ("halt_poll_success_ns", useful),
            ];
            let counters = counters.map(|(name, ns)| (name.to_owned(), ns)).into();
            let apic = ApicFeatures::default();
            let exits = Exits {
                seconds: 5.0,
                vcpus: 2,
                mean_ns: 0.0,
                registers: &[],
                tick: None,
                counters: &counters,
                apic,
                kvm: KvmFeatures::default(),
                reasons: &[],
                page_faults: None,
                timers: &[],
            };
            findings(
                "halt-polling",
                &Evidence {
                    exits: Some(&exits),
                    ..Evidence::default()
                },
            )
        };
        let text = "KVM polled 2000.0 ms in vain for halted vCPUs (20 % of their time), 1.0 ms with success.";
        assert_eq!(findings_for(2_000_000_000, 1_000_000), [text]);
        assert_eq!(
            findings_for(2_000_000_000, 3_000_000_000),
            [""; 0],
            "polling that helps"
        );
        assert_eq!(
            findings_for(100_000_000, 0),
            [""; 0],
            "a hundredth of the time"
        );
    }
}
