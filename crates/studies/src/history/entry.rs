//! What a ledger holds of one run, made from its recording.

use std::collections::BTreeMap;
use std::path::Path;
use vmtax_analysis::estimate;
use vmtax_model::{Estimate, HostFacts, Machine, Metric, Plan, Probes, TrialRecord, Variant, shell_line};
use vmtax_recording::Recording;

/// A run.
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

/// What a run was made with. Machine and variant are empty for what is the host's.
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
    /// [`settings`] as JSON.
    pub settings: String,
    pub n: u32,
    pub value: Estimate,
}

impl Entry {
    /// Of a recording in the folder of this name. Observed trials do not count: the probes are in their figures.
    pub fn of(recording: &Recording) -> Entry {
        let Recording { manifest, plan, host, .. } = recording;
        let trials: Vec<&TrialRecord> = recording.trials.iter().filter(|t| t.probes == Probes::None).collect();
        Entry {
            folder: name(&recording.folder),
            started: manifest.started.clone(),
            name: plan.name.clone(),
            command: shell_line(&manifest.command),
            cpu: host.cpu.model.clone(),
            cpus: host.cpu.online,
            facts: facts(plan, host, &manifest.vmtax, &trials),
            figures: figures(plan, &trials),
        }
    }
}

/// A folder's own name.
pub fn name(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What a figure is of: metric, machine, variant, size of a range.
type Of<'a> = (Metric, Machine, &'a str, Option<u64>);

fn figures(plan: &Plan, trials: &[&TrialRecord]) -> Vec<Figure> {
    // Repeats within a turn are one value of its round.
    let mut values: BTreeMap<Of<'_>, BTreeMap<u32, Vec<f64>>> = BTreeMap::new();
    let mut settings_of = BTreeMap::new();
    for trial in trials {
        for measure in trial.result().iter().flat_map(|r| &r.measures).filter(|m| m.value.is_finite()) {
            let key = (measure.metric, trial.machine, trial.variant.as_str(), trial.step);
            values.entry(key).or_default().entry(trial.round).or_default().push(measure.value);
            settings_of.entry(key).or_insert_with(|| settings(plan, trial));
        }
    }
    let figure = |(key, rounds): (Of<'_>, BTreeMap<u32, Vec<f64>>)| {
        let values: Vec<f64> = rounds.into_values().map(|repeats| estimate(repeats).median).collect();
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

/// What was run: figures that differ in any of it cannot be compared.
fn settings(plan: &Plan, trial: &TrialRecord) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = trial.result().map(|r| r.workload.options.clone()).unwrap_or_default();
    let guest = &plan.guest;
    all.insert("guest.cpus".to_owned(), guest.cpus.to_string());
    all.insert("guest.memory-mib".to_owned(), guest.memory_mib.to_string());
    let firmware = guest.firmware.as_ref().map(|file| file.display().to_string());
    let qemu_args = (!guest.qemu_args.is_empty()).then(|| shell_line(&guest.qemu_args));
    let own = [
        ("guest.cpu-model", guest.cpu_model.clone()),
        ("guest.machine-type", guest.machine_type.clone()),
        ("guest.kernel-args", guest.kernel_args.clone()),
        ("guest.firmware", firmware),
        ("guest.qemu-args", qemu_args),
    ];
    all.extend(own.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    if let (Some(range), Some(size)) = (plan.range(), trial.step) {
        if let Some(of_guest) = all.get_mut(&range.option) {
            *of_guest = size.to_string();
        }
    }
    if let Some(command) = plan.command() {
        all.insert("command".to_owned(), shell_line(&command.argv));
        all.insert("directory".to_owned(), command.directory.display().to_string());
    }
    if let Some(tree) = &plan.tree {
        let made = format!("{} files, {} bytes", tree.files, tree.bytes);
        all.insert("tree".to_owned(), tree.path.as_ref().map_or(made, |path| path.display().to_string()));
    }
    // A QEMU of its own is a fact: that its change shows is what the ledger is for.
    let own = variant(plan, trial).into_iter().flat_map(|v| &v.set).filter(|(key, _)| *key != "qemu");
    all.extend(own.map(|(key, value)| (format!("variant.{key}"), value.clone())));
    all
}

/// The variant of a guest's trial.
fn variant<'a>(plan: &'a Plan, trial: &TrialRecord) -> Option<&'a Variant> {
    plan.variants.iter().find(|v| trial.machine.is_guest() && v.name == trial.variant)
}

fn facts(plan: &Plan, host: &HostFacts, vmtax: &str, trials: &[&TrialRecord]) -> Vec<Fact> {
    let cpu = &host.cpu;
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
    let of_host = [
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
            value.into_iter().for_each(|value| _ = all.entry(key.clone()).or_insert(value));
        };
        add("QEMU", qemu(plan, host, trial));
        add("guest kernel", trial.result().map(|r| format!("{} {}", r.kernel.system, r.kernel.release)));
    }
    let fact = |((machine, variant, name), value): ((String, String, &str), String)| Fact {
        machine,
        variant,
        name: name.to_owned(),
        value,
    };
    all.into_iter().map(fact).collect()
}

/// Version and path of a guest's QEMU; of a variant with one of its own that the facts do not have, what it was called.
fn qemu(plan: &Plan, host: &HostFacts, trial: &TrialRecord) -> Option<String> {
    let known = |qemu: &vmtax_model::QemuFacts| format!("{} {}", qemu.version, qemu.path.display());
    match variant(plan, trial).and_then(Variant::qemu) {
        Some(own) => Some(host.qemu.iter().find(|q| q.path == own).map_or_else(|| own.display().to_string(), known)),
        // The one that was asked for, or the best, is the first.
        None => host.qemu.first().map(known),
    }
}
