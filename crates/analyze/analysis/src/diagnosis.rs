//! Why a running VM is slow: what each observer found, as one list of causes.

use crate::rates;
use vmtax_findings::{
    Advice, GuestExits, ProfileFindings, StateFindings, VmDiagnosis, VmLayers, VmRates,
};
use vmtax_model::{HostFacts, Missing, VmSamples};
use vmtax_rules::Evidence;

/// Waits for a host CPU while other observers ran, which take CPU time themselves: the counters know better.
const BY_COUNTERS: &str = "vcpu-run-queue-wait";

/// A clock source that QEMU emulates, by the guest's settings.
const SLOW_CLOCK: &str = "vm-guest-clock";

/// Smallest share of the time that counts as a cause.
const MIN_GAIN: f64 = 0.02;
/// Threads wait longer while they are traced and sampled.
const MIN_TRACED_GAIN: f64 = 0.1;

/// The causes: first that the VM does not run, then the one that takes most time; of those that take the same, or an
/// unknown time, those of the counters first.
/// `None` where the two samples are of two processes.
pub fn diagnosis(
    samples: &VmSamples,
    host: &HostFacts,
    profile: Option<ProfileFindings>,
    layers: Option<VmLayers>,
) -> Option<VmDiagnosis> {
    let mut rates = rates(&samples.vm, &samples.before, &samples.after)?;
    rates.findings.clear();
    // Samples prove or exclude what counters alone leave open.
    let states = profile.as_ref().and_then(|profile| profile.states.as_ref());
    let exits = profile.as_ref().and_then(|profile| profile.exits.as_ref());
    let evidence = Evidence {
        host: Some(host),
        facts: Some(&samples.vm),
        vm: Some(&rates),
        profile: profile.as_ref(),
        contention: states.and_then(|states| states.contention.as_ref()),
        activity: Some(&samples.host),
        queues: layers.as_ref().map_or(&[], |layers| &layers.queues),
        configuration: rates.settings.configuration.as_ref(),
        ..Evidence::default()
    };
    let settings = vmtax_rules::settings(&evidence);
    let causes = causes(&evidence, states, exits, &rates);
    let of_profile = profile.iter().flat_map(|profile| &profile.missing);
    let of_layers = layers.iter().flat_map(|layers| &layers.missing);
    let missing: Vec<Missing> = samples
        .missing
        .iter()
        .chain(of_profile)
        .chain(of_layers)
        .cloned()
        .collect();
    Some(VmDiagnosis {
        vm: samples.vm.clone(),
        started: samples.after.started,
        causes,
        settings,
        rates,
        profile,
        layers,
        ended: false,
        missing,
    })
}

/// Returns what the rules find by the counters, the threads' states and the VM exits, the largest first.
fn causes(
    evidence: &Evidence<'_>,
    states: Option<&StateFindings>,
    exits: Option<&GuestExits>,
    rates: &VmRates,
) -> Vec<Advice> {
    let mut causes = vmtax_rules::evaluate(evidence);
    let is_known = |advice: &&Advice| rates.ready.is_some() && advice.rule == BY_COUNTERS;
    let of_states = states.iter().flat_map(|states| &states.advice);
    let of_states = of_states.filter(|advice| advice.gain >= MIN_TRACED_GAIN);
    // Exits whose time is not known are listed with the profile.
    let of_exits = exits.iter().flat_map(|exits| &exits.advice);
    let of_exits = of_exits.filter(|advice| advice.gain > 0.0);
    // What the counters say of the same is over more of the time.
    let by_counters: Vec<String> = causes.iter().map(|cause| cause.rule.clone()).collect();
    let of_exits = of_exits.filter(|advice| !by_counters.contains(&advice.rule));
    let observed = of_states.chain(of_exits);
    causes.extend(observed.filter(|advice| !is_known(advice)).cloned());
    if exits.is_some_and(|exits| !exits.reasons.is_empty()) {
        read_clock(&mut causes, rates);
    }
    // A rule of the counters that knows no figure has limits of its own.
    causes.retain(|cause| cause.gain == 0.0 || cause.gain >= MIN_GAIN);
    vmtax_rules::sort(&mut causes);
    causes
}

/// Where VM exits are traced they say how often a slow clock is read: of the two causes theirs stays, with the change of the other.
fn read_clock(causes: &mut Vec<Advice>, rates: &VmRates) {
    let Some(at) = causes.iter().position(|cause| cause.rule == SLOW_CLOCK) else {
        return;
    };
    let slow = causes.remove(at);
    let rule = rates
        .settings
        .guest
        .as_ref()
        .and_then(|guest| vmtax_rules::clock_read_rule(&guest.clock_source));
    if let Some(read) = causes.iter_mut().find(|cause| Some(&*cause.rule) == rule) {
        read.change = slow.change;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::tests::facts;
    use std::collections::BTreeMap;
    use vmtax_findings::{DevicesFrom, ExitCount, ExitReason};
    use vmtax_model::{KvmClass, Role, ThreadCounters, VmCounters, testing};

    fn samples(cpu_ns: u64, wait_ns: u64) -> VmSamples {
        let counters_at = |at_ns, cpu_ns, wait_ns| VmCounters {
            at_ns,
            threads: vec![ThreadCounters {
                tid: 7,
                role: Role::Vcpu(0),
                cpu_ns,
                wait_ns,
                turns: 0,
                throttled_ns: None,
            }],
            ..VmCounters::default()
        };
        let (before, after) = (
            counters_at(1, 0, 0),
            counters_at(1_000_000_001, cpu_ns, wait_ns),
        );
        VmSamples {
            schema: 2,
            vm: facts(1),
            before,
            after,
            host: vmtax_model::HostActivity::default(),
            missing: Vec::new(),
        }
    }

    fn exits() -> GuestExits {
        GuestExits {
            seconds: 1.0,
            vcpus: Vec::new(),
            reasons: Vec::new(),
            addresses: Vec::new(),
            devices_from: DevicesFrom::MemoryTree,
            timing: String::new(),
            lost: 0,
            counters: BTreeMap::new(),
            page_faults: None,
            timers: Vec::new(),
            advice: Vec::new(),
        }
    }

    fn profile(advice: &[(&str, f64)]) -> ProfileFindings {
        let advice = advice.iter().map(|(rule, gain)| Advice {
            rule: (*rule).to_owned(),
            gain: *gain,
            ..Advice::default()
        });
        let exits = GuestExits {
            advice: vec![Advice {
                rule: "pm-timer-clock".to_owned(),
                ..Advice::default()
            }],
            ..exits()
        };
        let states = StateFindings {
            advice: advice.collect(),
            ..StateFindings::default()
        };
        ProfileFindings {
            states: Some(states),
            exits: Some(exits),
            ..ProfileFindings::default()
        }
    }

    fn diagnosed(
        samples: &VmSamples,
        profile: Option<ProfileFindings>,
        layers: Option<VmLayers>,
    ) -> Option<VmDiagnosis> {
        diagnosis(samples, &testing::host(KvmClass::Hardware), profile, layers)
    }

    fn rules(found: Option<VmDiagnosis>) -> Vec<String> {
        found
            .unwrap()
            .causes
            .into_iter()
            .map(|cause| cause.rule)
            .collect()
    }

    #[test]
    fn a_slow_clock_is_said_once_with_the_change_that_replaces_it() {
        let mut slow = samples(400_000_000, 0);
        slow.vm.accelerator = Some(vmtax_model::Accelerator::Kvm);
        slow.after.settings.guest = Some(vmtax_model::GuestSettings {
            clock_source: "acpi_pm".to_owned(),
            clock_sources: vec!["tsc".to_owned(), "acpi_pm".to_owned()],
            ..vmtax_model::GuestSettings::default()
        });
        assert_eq!(
            rules(diagnosed(&slow, None, None)),
            ["vm-guest-clock"],
            "exits were not traced"
        );
        let traced = |rule: &str, gain| {
            let reason = ExitReason::new("io".to_owned(), ExitCount::default());
            let advice = Advice {
                rule: rule.to_owned(),
                gain,
                ..Advice::default()
            };
            let exits = GuestExits {
                reasons: vec![reason],
                advice: vec![advice],
                ..exits()
            };
            Some(ProfileFindings {
                exits: Some(exits),
                ..ProfileFindings::default()
            })
        };
        let found = diagnosed(&slow, traced("pm-timer-clock", 0.3), None).unwrap();
        let change = found.causes[0].change.as_ref().unwrap();
        assert_eq!(
            (found.causes.len(), &*found.causes[0].rule),
            (1, "pm-timer-clock")
        );
        assert_eq!(change.settings[0].value, "tsc");
        let other = diagnosed(&slow, traced("hpet-clock", 0.3), None).unwrap();
        assert_eq!(
            (other.causes.len(), &other.causes[0].change),
            (1, &None),
            "the guest reads another clock"
        );
    }

    /// An idle guest on a q35 whose HPET fires 1000 times a second: no exit takes time, QEMU's main loop does.
    #[test]
    fn a_timer_that_only_the_main_loop_shows_is_said_once_with_what_it_takes() {
        let mut idle = samples(1_000_000, 0);
        idle.vm.accelerator = Some(vmtax_model::Accelerator::Kvm);
        let main = |cpu_ns| ThreadCounters {
            tid: 1,
            role: Role::Main,
            cpu_ns,
            wait_ns: 0,
            turns: 0,
            throttled_ns: None,
        };
        idle.before.threads.push(main(0));
        idle.after.threads.push(main(74_000_000));
        let timer = vmtax_model::samples::TimerLine {
            line: 2,
            tid: 1,
            count: 3000,
            hz: 1000.0,
        };
        let of_exits = Advice {
            rule: "hpet-timer".to_owned(),
            gain: 0.03,
            ..Advice::default()
        };
        let exits = GuestExits {
            timers: vec![timer],
            advice: vec![of_exits],
            ..exits()
        };
        let profile = Some(ProfileFindings {
            exits: Some(exits),
            ..ProfileFindings::default()
        });
        let found = diagnosed(&idle, profile.clone(), None).unwrap();
        let causes: Vec<_> = found
            .causes
            .iter()
            .map(|one| (&*one.rule, one.gain))
            .collect();
        assert_eq!(causes, [("hpet-timer", 0.074)]);
        let configuration = vmtax_model::VmConfiguration {
            hpet: Some(false),
            ..vmtax_model::VmConfiguration::default()
        };
        idle.after.settings.configuration = Some(configuration);
        let of_counters = diagnosed(&idle, profile, None).unwrap();
        assert_eq!(of_counters.causes[0].gain, 0.03, "it has none");
    }

    /// What the command line of a running Windows lacks costs something that nobody measured.
    #[test]
    fn a_windows_without_enlightenments_is_healthy_and_they_are_worth_a_check() {
        let mut windows = samples(1_000_000, 0);
        windows.after.settings.configuration = Some(vmtax_model::VmConfiguration {
            is_kvm: Some(true),
            windows: Some("its name is win11".to_owned()),
            hpet: Some(false),
            enlightenments: [("relaxed".to_owned(), true)].into(),
            ..vmtax_model::VmConfiguration::default()
        });
        let found = diagnosed(&windows, None, None).unwrap();
        assert_eq!(found.causes, []);
        let [settings] = found.settings.as_slice() else {
            panic!("{:?}", found.settings)
        };
        assert_eq!(settings.rule, "configured-windows-enlightenments");
        assert!(
            settings
                .finding
                .contains("9 of 10 Hyper-V enlightenments are missing: vapic"),
            "{}",
            settings.finding
        );
    }

    #[test]
    fn causes_are_in_the_order_of_their_time_and_one_is_said_once() {
        let of_profile = || {
            Some(profile(&[
                ("vcpu-run-queue-wait", 0.6),
                ("vcpu-big-lock", 0.2),
                ("eoi", 0.01),
            ]))
        };
        let found = diagnosed(&samples(400_000_000, 150_000_000), of_profile(), None);
        assert_eq!(rules(found), ["vcpu-big-lock", "vm-run-queue-wait"]);
        let found = diagnosed(&samples(400_000_000, 0), of_profile(), None);
        assert_eq!(
            rules(found),
            ["vcpu-big-lock"],
            "nothing waited while nothing else observed"
        );
        let mut blind = samples(0, 0);
        blind.before.threads.clear();
        blind.after.threads.clear();
        assert_eq!(
            rules(diagnosed(&blind, of_profile(), None)),
            ["vcpu-run-queue-wait", "vcpu-big-lock"]
        );
        assert_eq!(
            rules(diagnosed(&samples(400_000_000, 0), None, None)),
            [""; 0]
        );
        let mut of_two = samples(1, 1);
        of_two.after.started = 9;
        assert_eq!(diagnosed(&of_two, None, None), None);
    }
}
