//! The entry of one run in the history database, made from its recording.

use std::collections::BTreeMap;
use std::path::Path;
use vmtax_analysis::estimate;
use vmtax_model::number::percent;
use vmtax_model::{
    Estimate, HostFacts, Machine, Metric, Plan, Probes, TrialRecord, TuneFindings, TuneVerdict,
    shell_line,
};
use vmtax_recording::Recording;

/// The fact that says what a tuning kept. Of a guest it is of a machine and no variant, so that no series of figures has it; of a running
/// VM, which has no figures, it is of none.
pub(super) const KEPT: &str = "kept";
/// The fact that says which running VM was tuned.
pub(super) const VM: &str = "VM";

/// A run in the history database, with its facts and figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub folder: String,
    pub started: String,
    pub name: String,
    pub command: String,
    pub cpu: String,
    pub cpus: u32,
    pub facts: Vec<Fact>,
    pub figures: Vec<Figure>,
}

/// A fact about the setup of a run, such as QEMU's version. Machine and variant are empty for facts of the host.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    pub machine: String,
    pub variant: String,
    pub name: String,
    pub value: String,
}

/// One metric of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    pub metric: String,
    pub machine: String,
    pub variant: String,
    pub step: String,
    /// [`Plan::settings_of`] as JSON.
    pub settings: String,
    pub n: u32,
    pub value: Estimate,
}

impl Entry {
    /// Of a recording in the folder of this name. Observed trials do not count: the probes are in their figures.
    pub fn of(recording: &Recording) -> Entry {
        let Recording {
            manifest,
            plan,
            host,
            ..
        } = recording;
        let trials: Vec<&TrialRecord> = recording
            .trials
            .iter()
            .filter(|t| t.probes == Probes::None)
            .collect();
        Entry {
            folder: name(&recording.folder),
            started: manifest.started.clone(),
            name: plan.name.clone(),
            command: shell_line(&manifest.command),
            cpu: host.cpu.model.clone(),
            cpus: host.cpu.online,
            facts: facts(plan, host, &manifest.vmtax, &trials)
                .into_iter()
                .chain(kept(plan, &recording.trials))
                .chain(tuned_vm(recording))
                .collect(),
            figures: figures(plan, &trials),
        }
    }
}

/// A folder's own name.
pub fn name(folder: &Path) -> String {
    folder
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Key of a figure: metric, machine, variant, size of a range.
type Of<'a> = (Metric, Machine, &'a str, Option<u64>);

fn figures(plan: &Plan, trials: &[&TrialRecord]) -> Vec<Figure> {
    // Repeats within a turn are one value of its round.
    let mut values: BTreeMap<Of<'_>, BTreeMap<u32, Vec<f64>>> = BTreeMap::new();
    let mut settings_of = BTreeMap::new();
    for trial in trials {
        for measure in trial
            .result()
            .iter()
            .flat_map(|r| &r.measures)
            .filter(|m| m.value.is_finite())
        {
            let key = (
                measure.metric,
                trial.machine,
                trial.variant.as_str(),
                trial.step,
            );
            values
                .entry(key)
                .or_default()
                .entry(trial.round)
                .or_default()
                .push(measure.value);
            settings_of
                .entry(key)
                .or_insert_with(|| plan.settings_of(trial));
        }
    }
    let figure = |(key, rounds): (Of<'_>, BTreeMap<u32, Vec<f64>>)| {
        let values: Vec<f64> = rounds
            .into_values()
            .map(|repeats| estimate(repeats).median)
            .collect();
        let (metric, machine, variant, step) = key;
        let option = plan.range().map_or("", |range| range.option.as_str());
        Figure {
            metric: metric.id().to_owned(),
            machine: machine.to_string(),
            variant: variant.to_owned(),
            step: step.map_or(String::new(), |size| format!("{option}={size}")),
            settings: serde_json::to_string(&settings_of[&key]).unwrap_or_default(),
            n: values.len() as u32,
            value: estimate(values),
        }
    };
    values.into_iter().map(figure).collect()
}

fn facts(plan: &Plan, host: &HostFacts, vmtax: &str, trials: &[&TrialRecord]) -> Vec<Fact> {
    let cpu = &host.cpu;
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
    let of_host = [
        ("host", text(&host.identity.name)),
        ("vmtax", vmtax.to_owned()),
        ("host kernel", host.kernel.clone()),
        ("distribution", host.distribution.clone()),
        ("governor", text(&cpu.governor)),
        ("hypervisor", text(&cpu.hypervisor)),
        ("clock source", cpu.clocksource.clone()),
        ("memory MiB", host.memory_mib.to_string()),
    ];
    let of_host = of_host.map(|(name, value)| ((String::new(), String::new(), name), value));
    let mut all = BTreeMap::from(of_host);
    for trial in trials.iter().filter(|t| t.machine.is_guest()) {
        let mut add = |name, value: Option<String>| {
            let key = (trial.machine.to_string(), trial.variant.clone(), name);
            value
                .into_iter()
                .for_each(|value| _ = all.entry(key.clone()).or_insert(value));
        };
        add("QEMU", qemu(plan, host, trial));
        add(
            "guest kernel",
            trial
                .result()
                .map(|r| format!("{} {}", r.kernel.system, r.kernel.release)),
        );
    }
    let fact = |((machine, variant, name), value): ((String, String, &str), String)| Fact {
        machine,
        variant,
        name: name.to_owned(),
        value,
    };
    all.into_iter().map(fact).collect()
}

/// Returns the changes that a run of `tune` kept, with their gain; `None` for any other run.
pub(super) fn kept(plan: &Plan, trials: &[TrialRecord]) -> Option<Fact> {
    let found = vmtax_analysis::tune_guest(plan, trials)?;
    let names = found
        .candidates
        .iter()
        .filter(|row| row.verdict == TuneVerdict::Keep);
    let names: Vec<&str> = names.map(|row| &*row.candidate.name).collect();
    let value = match found.total.filter(|_| !names.is_empty()) {
        Some(total) => format!(
            "{}, {} less time",
            names.join(" + "),
            percent(1.0 - total.ratio.median)
        ),
        None => "nothing".to_owned(),
    };
    let machine = plan.machines.first()?.to_string();
    Some(Fact {
        machine,
        variant: String::new(),
        name: KEPT.to_owned(),
        value,
    })
}

/// Returns the name of the running VM that was tuned, its QEMU, and the changes that are still applied; nothing for
/// any other run, and for a VM without a persistent name.
fn tuned_vm(recording: &Recording) -> Vec<Fact> {
    let findings = recording
        .plan
        .tune()
        .filter(|spec| spec.apply)
        .map(|spec| crate::tune::findings(recording, spec));
    findings
        .and_then(Result::ok)
        .and_then(|found| facts_of_tuned(&found))
        .unwrap_or_default()
}

pub(super) fn facts_of_tuned(found: &TuneFindings) -> Option<Vec<Fact>> {
    let vm = &found.vm;
    // A PID is of one start alone.
    let id = vm
        .managed
        .as_ref()
        .map(|managed| format!("{} {}", managed.manager.as_str(), managed.id));
    let id = id.or_else(|| vm.name.clone())?;
    let kept = found
        .candidates
        .iter()
        .filter(|row| row.verdict == TuneVerdict::Keep);
    let kept: Vec<&str> = kept
        .map(|row| row.candidate.change.action.trim_end_matches('.'))
        .collect();
    let kept = match found.total.filter(|_| found.is_on && !kept.is_empty()) {
        Some(total) => format!(
            "{:?}, faster by {}",
            kept.join("; "),
            percent(1.0 - total.ratio.median)
        ),
        None => "nothing".to_owned(),
    };
    let binary = vm.binary.as_ref().map(|path| path.display().to_string());
    let qemu = vm.version.clone().map(|version| {
        [Some(version), binary]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" ")
    });
    let fact = |(name, value): (&str, String)| Fact {
        machine: String::new(),
        variant: String::new(),
        name: name.to_owned(),
        value,
    };
    let facts = [(VM, Some(id)), ("QEMU", qemu), (KEPT, Some(kept))];
    Some(
        facts
            .into_iter()
            .filter_map(|(name, value)| Some(fact((name, value?))))
            .collect(),
    )
}

/// Version and path of a guest's QEMU; of a variant with one of its own that the facts do not have, what it was called.
fn qemu(plan: &Plan, host: &HostFacts, trial: &TrialRecord) -> Option<String> {
    let variant = plan.variant_of(trial);
    let known = host
        .qemu_of(variant)
        .map(|qemu| format!("{} {}", qemu.version, qemu.path.display()));
    known.or_else(|| Some(variant?.qemu()?.display().to_string()))
}
