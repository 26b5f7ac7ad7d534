//! `diagnose`: why a running VM is slow, in one sentence, with the remedy.

use super::profile::{exits, samples, threads};
use super::vm_layers;
use crate::engine::{Notice, Report, Section};
use crate::number::{nanoseconds, percent, significant};
use crate::text::{Joined, distinct, only_if};
use crate::top;
use crate::view::{origin, vm};
use vmtax_findings::{Advice, VmDiagnosis};
use vmtax_model::{AbilityName, ChangeCost, SettingPlace, Vmm};
use vmtax_recording::Recording;

/// Causes that are shown: the first, and two that take less.
const SHOWN: usize = 3;
/// The level of `vmtax top` at which a diagnosis reads the counters. What prevents it is listed as not observed.
const COUNTERS_LEVEL: u8 = 1;

/// Makes the report of a diagnosis of a running VM.
pub fn report<'a>(recording: &'a Recording, found: &'a VmDiagnosis) -> Report<'a> {
    let origin = origin(recording);
    let profile = found.profile.as_ref();
    let observed = [
        Some(("counters", found.rates.seconds)),
        profile.map(|profile| ("profile", profile.seconds)),
        found
            .layers
            .as_ref()
            .map(|layers| ("requests", layers.seconds)),
    ];
    // Reasons for a "–" in the table of latencies: no cause is hidden there, so the answer does not name them.
    let of_requests = found.layers.iter().flat_map(vm_layers::missing);
    let observed = observed.into_iter().flatten();
    let observed = observed
        .map(|(what, s)| format!("{what} for {s:.1} s"))
        .joined(", ");
    Report {
        study: "profile",
        title: format!("Diagnosis of {}", vm::name(&found.vm)),
        basis: vm::recorded(recording, &found.vm, Some(observed)),
        answer: answer(found),
        next: next(found, &origin.command),
        advice: found.causes.iter().take(SHOWN).cloned().collect(),
        notices: vec![
            Notice::not_observed(vm::missing(found.missing.iter().chain(of_requests))),
            Notice::notes(
                "Settings worth checking (cost not measured)",
                settings(found),
            ),
        ],
        sections: sections(found),
        method: method(found),
        origin,
        ..Report::default()
    }
}

/// The cause that takes most time, and its first remedy; where there is none, how little what usually is one takes.
fn answer(found: &VmDiagnosis) -> String {
    let name = vm::name(&found.vm);
    if let Some(cause) = found.causes.first() {
        let remedy = cause.remedies.first();
        let remedy = remedy.map_or(String::new(), |remedy| format!(" {}.", remedy.action));
        let not = found
            .unobserved()
            .map_or(String::new(), |what| format!(" ({what} were not observed)"));
        return format!("{name}{not}: {}{remedy}", cause.finding);
    }
    let rates = &found.rates;
    let vcpus = rates.ready.zip(rates.run).map(|(lacked, ran)| {
        let [lacked, ran] = [lacked, ran].map(percent);
        format!("its vCPUs waited for a host CPU (%RDY) {lacked} of the time and ran (%RUN) {ran}")
    });
    let requests = rates.io.and_then(|io| {
        let (mean, per_s) = (nanoseconds(io.blkavg_ns?), significant(io.per_s()));
        Some(format!(
            "its {per_s} requests a second took {mean} each in QEMU and below (mean)"
        ))
    });
    let figures = vcpus.into_iter().chain(requests).joined("; ");
    let figures = only_if(
        !figures.is_empty(),
        format!(" In {:.1} s {figures}.", rates.seconds),
    );
    if rates.run.is_none() && rates.io.is_none() {
        return format!(
            "No known problem of {name} was found, but neither its vCPUs nor its disks could be observed."
        );
    }
    if found.ended {
        return format!(
            "{name} exited while it was observed; until then no rule found a known problem.{figures}"
        );
    }
    let what = not_observed(found).join(", ");
    if !what.is_empty() {
        return format!(
            "{name}: no problem found in what could be observed. Not observed: {what}.{figures}"
        );
    }
    format!("{name} is healthy: no rule found a known problem.{figures}")
}

/// Settings that may slow the VM down, each with its first remedy.
fn settings(found: &VmDiagnosis) -> Vec<String> {
    let item = |advice: &Advice| {
        let remedy = advice.remedies.first();
        let remedy = remedy.map(|remedy| format!(" {}:\n{}", remedy.action, remedy.line));
        format!("{}{}", advice.finding, remedy.unwrap_or_default())
    };
    found.settings.iter().map(item).collect()
}

/// Inputs of the rules that were not observed, each once.
fn not_observed(found: &VmDiagnosis) -> Vec<&str> {
    let rates = &found.rates;
    let mut abilities = found.vm.abilities.iter();
    let lacks_agent =
        abilities.any(|able| able.what == AbilityName::QemuGuestAgent && able.missing.is_some());
    let has_settings = rates.settings.guest.is_some();
    let of_rates = [
        rates.run.is_none().then_some("vCPU threads"),
        rates.state.is_none().then_some(match found.vm.vmm {
            Vmm::Qemu => "whether the guest runs (QMP)",
            _ => "whether the guest runs",
        }),
        (!has_settings && lacks_agent).then_some("settings of the guest's kernel"),
    ];
    let of_rates = of_rates.into_iter().flatten();
    distinct(of_rates.chain(found.missing.iter().map(|missing| missing.what.as_str())))
}

/// The command that tries the remedy of the first cause where it is a live one, else the one that measures that cause more
/// closely; the one that tries the live remedy of another cause; and the one that prints the whole report.
fn next(found: &VmDiagnosis, details: &str) -> Vec<String> {
    let tune = super::tune::vm::command(&found.vm, " --apply");
    // Others take an option that says so.
    let is_live = |cause: &Advice| {
        let change = cause.change.as_ref();
        change.is_some_and(|change| change.cost == ChangeCost::Live && change.metric.is_some())
    };
    let shown = &found.causes[..found.causes.len().min(SHOWN)];
    let first = shown.first().filter(|cause| !is_live(cause));
    let mut remedies = first.into_iter().flat_map(|cause| &cause.remedies);
    let closer = remedies.find(|one| one.place == SettingPlace::Vmtax && !one.line.is_empty());
    let closer = closer.map(|remedy| remedy.line.clone());
    let tune = (!found.ended && shown.iter().any(is_live)).then_some(tune);
    let details = format!("{details} --details");
    closer.into_iter().chain(tune).chain([details]).collect()
}

fn sections(found: &VmDiagnosis) -> Vec<Section<'_>> {
    let title = format!("Counters over {:.1} s", found.rates.seconds);
    let mut all = vec![Section::new(
        title,
        [top::explained(&found.rates, COUNTERS_LEVEL)],
    )];
    if let Some(profile) = &found.profile {
        if let Some(states) = &profile.states {
            let title = format!("Thread states over the next {:.1} s", states.seconds);
            let mut figure = threads::states(states);
            figure.caption += &format!(
                " Causes with a share of the VM's time are found by the counters, in the {:.1} s before.",
                found.rates.seconds
            );
            all.push(Section::new(title, [figure]));
            all.extend(threads::over_time(states));
        }
        if profile.samples > 0 {
            let title = "Functions by CPU samples (self)";
            let table = samples::functions(title, &profile.functions);
            all.push(Section::detail(title, [table]));
        }
        all.extend(profile.exits.iter().map(|found| Section {
            detail: true,
            ..exits::section(found)
        }));
    }
    if let Some(layers) = &found.layers {
        all.push(Section::new(
            "Latency by disk",
            [vm_layers::latencies(layers)],
        ));
    }
    all
}

fn method(found: &VmDiagnosis) -> Vec<String> {
    let order = "Causes are sorted by the upper bound of what the fix can save, as a fraction of the vCPUs' time or of the \
                 requests' latency; those without a bound come last, and a VM that hangs comes first. The counters are read before anything else observes the VM."
        .to_owned();
    let exits = found.profile.iter().flat_map(|profile| &profile.exits);
    [order]
        .into_iter()
        .chain(exits.flat_map(exits::method))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_findings::VmRates;
    use vmtax_model::{Ability, LiveChange, LiveMetric, Missing, Remedy, VmDisk, VmFacts};

    #[test]
    fn the_first_sentence_names_the_disks_that_were_not_observed() {
        let said = |no_monitor: Option<&str>, disks| {
            let found = VmDiagnosis {
                vm: VmFacts {
                    disks,
                    ..VmFacts::unknown(7)
                },
                started: 0,
                causes: vec![Advice {
                    finding: "vCPU 0 waits.".to_owned(),
                    ..Advice::default()
                }],
                settings: Vec::new(),
                rates: VmRates {
                    run: Some(0.5),
                    no_monitor: no_monitor.map(str::to_owned),
                    ..VmRates::default()
                },
                profile: None,
                layers: None,
                ended: false,
                missing: Vec::new(),
            };
            answer(&found)
        };
        let not_observed = "process 7 (its disks were not observed): vCPU 0 waits.";
        assert_eq!(said(Some("Permission denied"), Vec::new()), not_observed);
        let disk = VmDisk {
            id: "vda".to_owned(),
            file: "/srv/vda.raw".into(),
            format: None,
            direct: None,
            read_only: false,
            aio: None,
            iothread: None,
            host_device: None,
            own_device: None,
            extents: None,
        };
        assert_eq!(said(None, vec![disk]), not_observed);
        assert_eq!(said(None, Vec::new()), "process 7: vCPU 0 waits.");
    }

    #[test]
    fn the_next_command_measures_the_first_cause_and_is_no_diagnosis() {
        let remedy = |place, line: &str| Remedy {
            place,
            line: line.to_owned(),
            ..Remedy::default()
        };
        let cause = |line| Advice {
            remedies: vec![
                remedy(SettingPlace::Instruction, "iostat -x 1"),
                remedy(SettingPlace::Vmtax, line),
            ],
            ..Advice::default()
        };
        let found = VmDiagnosis {
            vm: VmFacts::unknown(7),
            started: 0,
            causes: vec![cause("vmtax layers --vm 7"), cause("vmtax profile --vm 7")],
            settings: Vec::new(),
            rates: VmRates::default(),
            profile: None,
            layers: None,
            ended: false,
            missing: Vec::new(),
        };
        assert_eq!(
            next(&found, "vmtax report out"),
            ["vmtax layers --vm 7", "vmtax report out --details"]
        );
        let live = || Advice {
            change: Some(LiveChange {
                action: "Remove the I/O limits of vda".to_owned(),
                cost: ChangeCost::Live,
                metric: Some(LiveMetric::Latency),
                disk: None,
                settings: Vec::new(),
            }),
            ..cause("vmtax layers --vm web01")
        };
        let named = |shares_name, causes| VmDiagnosis {
            vm: VmFacts {
                name: Some("web01".to_owned()),
                shares_name,
                ..VmFacts::unknown(7)
            },
            causes,
            ..found.clone()
        };
        assert_eq!(
            next(&named(false, vec![live()]), "d")[0],
            "vmtax tune --vm web01 --apply"
        );
        assert_eq!(
            next(&named(true, vec![live()]), "d")[0],
            "vmtax tune --vm 7 --apply",
            "two VMs have this name"
        );
        assert_eq!(
            next(
                &named(false, vec![cause("vmtax profile --vm web01"), live()]),
                "d"
            ),
            [
                "vmtax profile --vm web01",
                "vmtax tune --vm web01 --apply",
                "d --details"
            ]
        );
        let mut foreign = named(false, vec![live()]);
        foreign.vm.abilities.push(Ability {
            what: AbilityName::SetAffinity,
            missing: Some(Missing {
                what: "host CPUs of its threads".to_owned(),
                why: "the process belongs to another user".to_owned(),
                fix: "run vmtax as root".to_owned(),
            }),
        });
        assert_eq!(next(&foreign, "d")[0], "sudo vmtax tune --vm web01 --apply");
        // Those about a pasted text are not of a diagnosis.
        let of_text = |id: &str| id.starts_with("reported-") || id.starts_with("configured-");
        let of_vms = vmtax_rules::rules().filter(|rule| !of_text(rule.id));
        let mut remedies = of_vms.flat_map(|rule| rule.remedies);
        let again = remedies.find(|remedy| remedy.line.starts_with("vmtax diagnose"));
        assert_eq!(again.map(|remedy| remedy.line), None);
    }
}
