//! Timers of the HPET: each is set by an exit to QEMU, and fires in QEMU's main loop, also where the guest has masked its interrupt.
//! Guests that tick by the real-time clock (RTC) that QEMU emulates, as an idle Windows guest without Hyper-V's timers does.

use super::clock_source::NO_HPET;
use super::vm_io::MIN_PER_S;
use crate::evidence::{MIN_EXITS, Register};
use crate::rule::{about_exits, about_vm, instruction, measurement};
use crate::{Evidence, Exits, Finding, Rule};
use vmtax_findings::VmRates;
use vmtax_model::number::{count as grouped, percent, significant};
use vmtax_model::samples::TimerLine;
use vmtax_model::{Remedy, Role, Setting, SettingPlace};

/// Interrupt lines of the HPET's timers: in place of the PIT's.
const LINES: [u32; 2] = [0, 2];
/// Slower timers of a main loop take little time.
const MIN_HZ: f64 = 100.0;
/// Part of a CPU that the main loop of a guest without load has to take.
const MIN_MAIN_LOOP: f64 = 0.02;

pub(super) const HPET_TIMER: Rule = Rule {
    id: "hpet-timer",
    finds: "a timer of the HPET that fires in QEMU's main loop, a hundred times a second and more, also where the guest has masked its interrupt; or a guest that sets it (Windows by recorded exits: unproven here)",
    remedies: &[
        HYPER_V_TIMERS[0],
        HYPER_V_TIMERS[1],
        NO_HPET,
        measurement(
            "See in which functions the main loop spends the time",
            "vmtax profile --vm VM",
        ),
    ],
    source: "systemd/mkosi#3811: an idle Linux guest took 9 % of a CPU with the HPET, 0.6 % without",
    evaluate: |evidence| {
        if evidence
            .configuration
            .is_some_and(|vm| vm.hpet == Some(false))
        {
            return Vec::new();
        }
        let of_exits = about_exits(evidence, |exits| {
            Some(Finding {
                values: vm_argument(evidence),
                ..in_exits(exits)?
            })
        });
        // Where the VM's threads were observed, they say what the timer takes.
        match of_exits.is_empty() {
            true => about_vm(evidence, |vm| in_main_loop(evidence, vm)),
            false => of_exits,
        }
    },
};

/// The VM for the command that shows more.
fn vm_argument(evidence: &Evidence<'_>) -> Vec<(&'static str, String)> {
    let vm = evidence.vm.map(|vm| ("VM", vm.argument()));
    vm.into_iter().collect()
}

/// The timer in the counted exits.
fn in_exits(exits: &Exits<'_>) -> Option<Finding> {
    let accesses = exits.accesses(Register::HpetTimer);
    let is_set = exits.many(accesses) && !exits.are_cheap(accesses);
    let tick = fastest(exits.timers);
    let gain = exits.share(accesses);
    let text = match (is_set, tick) {
        (false, Some(timer)) => fires(timer),
        (true, _) => {
            let tick = tick.map_or(String::new(), |timer| {
                format!("; it fires {} times a second", significant(timer.hz))
            });
            format!(
                "The guest sets and reads a timer of the HPET {} times in {:.1} s, each an exit to QEMU under the BQL: {} of its time{tick}.",
                grouped(accesses),
                exits.seconds,
                percent(gain)
            )
        }
        (false, None) => return None,
    };
    Some(Finding::with_gain(text, if is_set { gain } else { 0.0 }))
}

/// The timer of a VM whose main loop has little else to do.
fn in_main_loop(evidence: &Evidence<'_>, vm: &VmRates) -> Option<Finding> {
    let exits = evidence.profile?.exits.as_ref()?;
    let timer = fastest(&exits.timers)?;
    let mut threads = vm.threads.iter();
    let run = threads.find(|thread| thread.role == Role::Main)?.run;
    let has_other_work = vm.io.is_some_and(|io| io.per_s() >= MIN_PER_S * timer.hz)
        || vm.packets_per_s() >= timer.hz;
    let text = format!(
        "{} The main loop is on a CPU {} of the time.",
        fires(timer),
        percent(run)
    );
    (run >= MIN_MAIN_LOOP && !has_other_work).then(|| Finding::of_vm(vm, text, run))
}

fn fires(timer: &TimerLine) -> String {
    format!(
        "A timer of the HPET fires {} times a second in QEMU's main loop, whether the guest takes its interrupt or not.",
        significant(timer.hz)
    )
}

/// The fastest timer that the main loop has.
fn fastest(timers: &[TimerLine]) -> Option<&TimerLine> {
    let is_hpet = |timer: &&TimerLine| {
        LINES.contains(&timer.line) && timer.hz >= MIN_HZ && timer.count >= MIN_EXITS
    };
    timers
        .iter()
        .filter(is_hpet)
        .max_by(|a, b| a.hz.total_cmp(&b.hz))
}

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
    finds: "accesses to the real-time clock (RTC): an idle Windows guest without Hyper-V's timers ticks by it and resets it at each tick (by recorded exits: unproven here)",
    remedies: &[
        HYPER_V_TIMERS[0],
        HYPER_V_TIMERS[1],
        instruction(
            "For Linux: find what reads the clock or has its interrupt on",
            "fuser -v /dev/rtc0 # in the guest",
        ),
    ],
    source: "OpenNebula/addon-storpool#79: an idle Windows guest takes 1 to 3 % of a CPU in place of 30 to 40 % with hv-synic and hv-stimer",
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
    use crate::test_evidence::{TestExits, advice, windows};
    use vmtax_findings::{Advice, DevicesFrom, GuestExits, ProfileFindings, ThreadRates};
    use vmtax_model::VmConfiguration;
    use vmtax_model::samples::TimerLine;

    fn timer(line: u32, hz: f64) -> TimerLine {
        let count = (hz * 10.0) as u64;
        TimerLine {
            line,
            tid: 7,
            count,
            hz,
        }
    }

    fn found(accesses: u64, timers: Vec<TimerLine>, vm: Option<&VmConfiguration>) -> Vec<Advice> {
        let exits = TestExits {
            registers: vec![(Register::HpetTimer, [0, accesses, accesses])],
            timers,
            mean_ns: 20_000.0,
            ..TestExits::default()
        };
        exits.advice("hpet-timer", vm)
    }

    /// q35 has an HPET that the firmware or the guest leaves running with a masked interrupt: no exit shows it.
    #[test]
    fn a_timer_that_fires_behind_a_masked_interrupt_is_found() {
        let linux = VmConfiguration::default();
        let advice = found(0, vec![timer(2, 1000.0)], Some(&linux)).remove(0);
        assert_eq!(
            (advice.finding.as_str(), advice.gain),
            (
                "A timer of the HPET fires 1000 times a second in QEMU's main loop, whether the guest takes its interrupt or not.",
                0.0
            )
        );
        assert_eq!(advice.remedies[0].value, "-machine hpet=off");
        let without = VmConfiguration {
            hpet: Some(false),
            ..VmConfiguration::default()
        };
        assert_eq!(found(0, vec![timer(2, 1000.0)], Some(&without)), []);
        let silent = [timer(8, 1000.0), timer(2, 18.2)];
        assert_eq!(found(0, silent.to_vec(), Some(&linux)), []);
    }

    #[test]
    fn a_windows_that_sets_the_timer_is_given_another() {
        let vm = windows(&["relaxed"]);
        let advice = found(40_000, vec![timer(2, 1000.0)], Some(&vm)).remove(0);
        assert_eq!(
            advice.finding.replace('\u{a0}', " "),
            "The guest sets and reads a timer of the HPET 40,000 times in 10.0 s, each an exit to QEMU under the BQL: 2.0 % of its time; it fires 1000 times a second."
        );
        assert!(advice.gain > 0.019, "{advice:?}");
        assert_eq!(advice.remedies[0].setting, "cpu-flag.hv-stimer");
        assert_eq!(found(90, Vec::new(), Some(&vm)), []);
    }

    #[test]
    fn the_main_loop_says_what_the_timer_takes() {
        let cost = |run, packets| {
            let exits = GuestExits {
                seconds: 3.0,
                vcpus: Vec::new(),
                reasons: Vec::new(),
                addresses: Vec::new(),
                devices_from: DevicesFrom::UsualPlaces,
                timing: String::new(),
                lost: 0,
                counters: Default::default(),
                page_faults: None,
                timers: vec![timer(2, 1000.0)],
                advice: Vec::new(),
            };
            let profile = ProfileFindings {
                exits: Some(exits),
                ..ProfileFindings::default()
            };
            let threads = vec![ThreadRates {
                tid: 7,
                role: Role::Main,
                run,
                ready: 0.0,
                turns_per_s: 1000.0,
                throttled: None,
            }];
            let nics = vec![vmtax_findings::NicRates {
                rx_packets_per_s: packets,
                ..Default::default()
            }];
            let vm = VmRates {
                threads,
                nics,
                ..VmRates::default()
            };
            let evidence = Evidence {
                vm: Some(&vm),
                profile: Some(&profile),
                ..Evidence::default()
            };
            let found = advice("hpet-timer", &evidence);
            found.first().map(|advice| advice.gain)
        };
        assert_eq!(
            [cost(0.074, 5.0), cost(0.01, 5.0), cost(0.6, 30_000.0)],
            [Some(0.074), None, None]
        );
    }

    /// Ten seconds of an idle guest of four vCPUs that reads and resets the RTC at each of its ticks.
    fn found_of_rtc(accesses: u64, mean_ns: f64, vm: Option<&VmConfiguration>) -> Vec<Advice> {
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
        let advice = found_of_rtc(61_440, 9_000.0, Some(&vm)).remove(0);
        assert_eq!(
            advice.finding.replace('\u{a0}', " "),
            "The guest accesses the RTC 61,440 times in 10.0 s (ports 0x70, 0x71), each an exit to QEMU under the BQL: 1.4 % of its time; its interrupt comes 2048 times a second."
        );
        let settings: Vec<&str> = advice.remedies.iter().map(|one| &*one.setting).collect();
        assert_eq!(settings, ["cpu-flag.hv-stimer", "cpu-flag.hv-time"]);
        let with_timers = windows(&["stimer", "time"]);
        let left = found_of_rtc(61_440, 9_000.0, Some(&with_timers)).remove(0);
        assert_eq!(left.remedies, [], "both are on");
        let linux = found_of_rtc(61_440, 9_000.0, Some(&VmConfiguration::default())).remove(0);
        assert_eq!(linux.remedies.len(), 1, "{:?}", linux.remedies);
        assert_eq!(linux.remedies[0].place, SettingPlace::Instruction);
    }

    #[test]
    fn a_clock_that_is_read_now_and_then_is_no_finding() {
        assert!(found_of_rtc(60, 9_000.0, None).is_empty(), "hwclock");
        assert!(
            found_of_rtc(10_000, 9_000.0, None).is_empty(),
            "0.2 % of the time"
        );
        assert_eq!(found_of_rtc(10_000, 0.0, None).len(), 1, "no time is known");
    }
}
