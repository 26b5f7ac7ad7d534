//! `diagnose`: why a running VM is slow, in one sentence, with the remedy.

use super::profile::{exits, samples, threads};
use super::vm_layers;
use crate::engine::{Notice, Report, Section};
use crate::number::{nanoseconds, percent, significant};
use crate::text::{Joined, only_if, when};
use crate::top;
use crate::view::{host, origin, vm};
use vmtax_model::{AbilityName, Advice, SettingPlace, VmDiagnosis};
use vmtax_recording::Recording;

/// Causes that are shown: the first, and two that take less.
const SHOWN: usize = 3;
/// The level of `vmtax top` at which a diagnosis reads the counters. What prevents it is listed as not observed.
const COUNTERS_LEVEL: u8 = 1;

/// Makes the report of a diagnosis of a running VM.
pub fn report<'a>(recording: &'a Recording, found: &'a VmDiagnosis) -> Report<'a> {
    let origin = origin(recording);
    let counted = format!("counters for {:.1} s", found.rates.seconds);
    let profiled = found
        .profile
        .as_ref()
        .map(|profile| format!("profile for {:.1} s", profile.seconds));
    let traced = found
        .layers
        .as_ref()
        .map(|layers| format!("requests for {:.1} s", layers.seconds));
    let observed = [Some(counted), profiled, traced]
        .into_iter()
        .flatten()
        .joined(", ");
    Report {
        study: "profile",
        title: format!("Diagnosis of {}", vm::name(&found.vm)),
        basis: [
            vm::basis(&found.vm),
            vec![observed, when(&recording.manifest.started)],
            host(recording),
        ]
        .concat(),
        answer: answer(found),
        next: next(found, &origin.command),
        advice: found.causes.iter().take(SHOWN).cloned().collect(),
        notices: vec![
            Notice::missing("Not observed", vm::missing(found.missing.iter())),
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
        let remedy = cause
            .remedies
            .first()
            .map_or(String::new(), |remedy| format!(" {}.", remedy.action));
        return format!("{name}: {}{remedy}", cause.finding);
    }
    let rates = &found.rates;
    let lacked = rates
        .ready
        .map(|part| format!("its vCPUs lacked a host CPU {} of the time", percent(part)));
    let ran = rates.run.map(|part| format!("ran {}", percent(part)));
    let vcpus = lacked
        .zip(ran)
        .map(|(lacked, ran)| format!("{lacked} and {ran}"));
    let requests = rates.io.and_then(|io| {
        let mean = nanoseconds(io.blkavg_ns?);
        Some(format!(
            "its {} requests a second took {mean} each in QEMU and below (mean)",
            significant(io.per_s())
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
            "{name} ended while it was observed; until then no rule found a known problem.{figures}"
        );
    }
    let not_observed = not_observed(found);
    if !not_observed.is_empty() {
        let what = not_observed.join(", ");
        return format!(
            "{name}: no problem found in what could be observed. Not observed: {what}.{figures}"
        );
    }
    format!("{name} is healthy: no rule found a known problem.{figures}")
}

/// Settings that may slow the VM down, each with its first remedy.
fn settings(found: &VmDiagnosis) -> Vec<String> {
    let item = |advice: &Advice| {
        let remedy = advice
            .remedies
            .first()
            .map(|remedy| format!(" {}:\n{}", remedy.action, remedy.line));
        format!("{}{}", advice.finding, remedy.unwrap_or_default())
    };
    found.settings.iter().map(item).collect()
}

/// Inputs of the rules that were not observed, each once.
fn not_observed(found: &VmDiagnosis) -> Vec<String> {
    let rates = &found.rates;
    let lacks = |what: AbilityName| {
        found
            .vm
            .abilities
            .iter()
            .any(|able| able.what == what && able.missing.is_some())
    };
    let of_rates = [
        ("vCPU threads", rates.run.is_none()),
        ("whether the guest runs (QMP)", rates.state.is_none()),
        (
            "settings of the guest's kernel",
            rates.settings.guest.is_none() && lacks(AbilityName::QemuGuestAgent),
        ),
    ];
    let of_rates = of_rates
        .into_iter()
        .filter(|(_, is_missing)| *is_missing)
        .map(|(what, _)| what);
    let mut all: Vec<String> = Vec::new();
    for what in of_rates.chain(found.missing.iter().map(|missing| &*missing.what)) {
        if !all.iter().any(|known| known == what) {
            all.push(what.to_owned());
        }
    }
    all
}

/// The command that measures the first cause more closely, and the one that prints the whole report.
fn next(found: &VmDiagnosis, details: &str) -> Vec<String> {
    let remedies = found
        .causes
        .first()
        .into_iter()
        .flat_map(|cause| &cause.remedies);
    let mut measures =
        remedies.filter(|remedy| remedy.place == SettingPlace::Vmtax && !remedy.line.is_empty());
    let closer = measures.next().map(|remedy| remedy.line.clone());
    closer
        .into_iter()
        .chain([format!("{details} --details")])
        .collect()
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
            all.push(Section::new(title, [threads::states(states)]));
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
    [order]
        .into_iter()
        .chain(
            found
                .profile
                .iter()
                .flat_map(|profile| &profile.exits)
                .flat_map(exits::method),
        )
        .collect()
}
