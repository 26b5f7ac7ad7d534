//! Guests that tick by the real-time clock (RTC) that QEMU emulates, as an idle Windows without Hyper-V's timers does.

use crate::evidence::{MIN_EXITS, Register};
use crate::rule::{about_exits, instruction};
use crate::{Evidence, Exits, Finding, Rule};
use vmtax_model::number::{count as grouped, percent, significant};
use vmtax_model::{Remedy, Setting, SettingPlace};

/// Interrupt line of the RTC.
const RTC_LINE: u32 = 8;

/// Timer and clock of Hyper-V, which Windows uses in place of the RTC, the PM timer and the HPET.
pub(super) const HYPER_V_TIMERS: [Remedy<&str>; 2] = [
    Setting::named("cpu-flag.hv-stimer").remedy(
        "on",
        "For Windows: give it Hyper-V's timers (with hv-vpindex,hv-synic)",
    ),
    Setting::named("cpu-flag.hv-time").remedy("on", "For Windows: and Hyper-V's clock"),
];

pub(super) const RTC_TIMER: Rule = Rule {
    id: "rtc-timer",
    finds: "accesses to the real-time clock (RTC): an idle Windows without Hyper-V's timers ticks by it and resets it at each tick (by recorded exits: unproven here)",
    remedies: &[
        HYPER_V_TIMERS[0],
        HYPER_V_TIMERS[1],
        instruction(
            "For Linux: find what reads the clock or has its interrupt on",
            "fuser -v /dev/rtc0 # in the guest",
        ),
    ],
    source: "OpenNebula/addon-storpool#79: an idle Windows takes 1 to 3 % of a CPU in place of 30 to 40 % with hv-synic and hv-stimer",
    evaluate: |evidence| about_exits(evidence, |exits| accesses(evidence, exits)),
};

fn accesses(evidence: &Evidence<'_>, exits: &Exits<'_>) -> Option<Finding> {
    let accesses = exits.accesses(Register::Rtc);
    let mut lines = exits.timers.iter();
    let tick = lines.find(|timer| timer.line == RTC_LINE && timer.count >= MIN_EXITS);
    let tick = tick.map_or(String::new(), |tick| {
        format!(
            "; its interrupt comes {} times a second",
            significant(tick.hz)
        )
    });
    let gain = exits.share(accesses);
    let text = format!(
        "The guest accesses the RTC {} times in {:.1} s (ports 0x70, 0x71), each an exit to QEMU under the BQL: {} of its time{tick}.",
        grouped(accesses),
        exits.seconds,
        percent(gain)
    );
    let is_costly = exits.many(accesses) && !exits.are_cheap(accesses);
    is_costly.then(|| Finding {
        unfit: evidence.is_windows().then_some(SettingPlace::Instruction),
        ..Finding::with_gain(text, gain)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_evidence::{TestExits, windows};
    use vmtax_findings::Advice;
    use vmtax_model::VmConfiguration;
    use vmtax_model::samples::TimerLine;

    /// Ten seconds of an idle guest of four vCPUs that reads and resets the RTC at each of its ticks.
    fn found(accesses: u64, mean_ns: f64, vm: Option<&VmConfiguration>) -> Vec<Advice> {
        let timer = TimerLine {
            line: RTC_LINE,
            tid: 7,
            count: 20_000,
            hz: 2048.0,
        };
        let exits = TestExits {
            registers: vec![(Register::Rtc, [accesses / 3, accesses - accesses / 3, 0])],
            timers: vec![timer],
            mean_ns,
            ..TestExits::default()
        };
        exits.advice("rtc-timer", vm)
    }

    #[test]
    fn an_idle_windows_that_ticks_by_the_rtc_is_found() {
        let vm = windows(&["relaxed", "vapic", "spinlocks"]);
        let advice = found(61_440, 9_000.0, Some(&vm)).remove(0);
        assert_eq!(
            advice.finding.replace('\u{a0}', " "),
            "The guest accesses the RTC 61,440 times in 10.0 s (ports 0x70, 0x71), each an exit to QEMU under the BQL: 1.4 % of its time; its interrupt comes 2048 times a second."
        );
        let settings: Vec<&str> = advice.remedies.iter().map(|one| &*one.setting).collect();
        assert_eq!(settings, ["cpu-flag.hv-stimer", "cpu-flag.hv-time"]);
        let with_timers = windows(&["stimer", "time"]);
        let left = found(61_440, 9_000.0, Some(&with_timers)).remove(0);
        assert_eq!(left.remedies, [], "both are on");
        let linux = found(61_440, 9_000.0, Some(&VmConfiguration::default())).remove(0);
        assert_eq!(linux.remedies.len(), 1, "{:?}", linux.remedies);
        assert_eq!(linux.remedies[0].place, SettingPlace::Instruction);
    }

    #[test]
    fn a_clock_that_is_read_now_and_then_is_no_finding() {
        assert!(found(60, 9_000.0, None).is_empty(), "hwclock");
        assert!(found(10_000, 9_000.0, None).is_empty(), "0.2 % of the time");
        assert_eq!(found(10_000, 0.0, None).len(), 1, "no time is known");
    }
}
