//! The entry of one run in the history, made from its recording or from a dataset.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use vmtax_analysis::estimate;
use vmtax_export::{ExportError, Run};
use vmtax_findings::{Comparison, Estimate, Facts, FleetData, FleetFigure, FleetRun, TuneFindings};
use vmtax_model::number::percent;
use vmtax_model::{HostFacts, Machine, Metric, Plan, Probes, TrialRecord};
use vmtax_recording::Recording;

/// A run of the history: what is known of it as a whole, and its figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// [`Run::id`], which does not depend on the folder's name.
    pub id: Arc<str>,
    pub folder: Arc<str>,
    pub started: Arc<str>,
    pub plan: Arc<str>,
    /// Model and number of the host's CPUs.
    pub cpu: Arc<str>,
    /// The running VM that was tuned; empty for any other run.
    pub vm: Arc<str>,
    /// Changes that a tuning kept; empty for any other run.
    pub kept: Arc<str>,
    /// At least one: of a run without figures one that is of no metric, for its facts.
    pub figures: Vec<Figure>,
}

/// One metric of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    pub metric: Arc<str>,
    pub machine: Arc<str>,
    pub variant: Arc<str>,
    pub step: Arc<str>,
    /// [`Plan::settings_of`] as JSON.
    pub settings: Arc<str>,
    /// [`Facts`] of the host and the guest as JSON.
    pub facts: Arc<str>,
    pub n: u32,
    pub value: Estimate,
}

impl Entry {
    /// Makes the entry of a recording, in the folder of this name. Observed trials do not count: the probes are in their figures.
    ///
    /// # Errors
    /// As [`Run::identify`].
    pub fn from_recording(recording: &Recording) -> Result<Entry, ExportError> {
        let (plan, host) = (&recording.plan, &recording.host);
        let trials = recording.trials.iter();
        let trials: Vec<&TrialRecord> = trials.filter(|t| t.probes == Probes::None).collect();
        let mut facts = host_facts(host, &recording.manifest.vmtax);
        let mut figures = figures(plan, &trials, &facts, &guest_facts(plan, host, &trials));
        let tuned = tuned_vm(recording);
        if figures.is_empty() {
            let qemu = tuned.as_ref().and_then(|tuned| tuned.qemu.clone());
            facts.extend(qemu.map(|qemu| ("QEMU".to_owned(), qemu)));
            figures.push(Figure::none(&facts));
        }
        let (vm, kept) = tuned.map_or_else(
            || (String::new(), kept(plan, &recording.trials)),
            |tuned| (tuned.id, Some(tuned.kept)),
        );
        Ok(Entry {
            id: Run::identify(recording, false)?.id.into(),
            folder: name(&recording.folder).into(),
            started: recording.manifest.started.as_str().into(),
            plan: plan.name.as_str().into(),
            cpu: cpus(&host.cpu.model, host.cpu.online),
            vm: vm.into(),
            kept: kept.unwrap_or_default().into(),
            figures,
        })
    }

    /// Makes the entry of a dataset's run, if a history can hold it.
    pub fn from_dataset(
        data: &FleetData,
        run: &FleetRun,
        figures: &[FleetFigure],
    ) -> Option<Entry> {
        // 20261125T091310Z-quick-3f2a91bc0d1e
        // It becomes the name of a folder.
        let (began, rest) = run.id.split_once('-').filter(|_| !run.id.contains('/'))?;
        let (name, _) = rest.rsplit_once('-')?;
        let began = DateTime::strptime("%Y%m%dT%H%M%SZ", began)
            .ok()?
            .to_zoned(TimeZone::UTC)
            .ok()?
            .timestamp();
        let figures: Vec<Figure> = figures
            .chunk_by(|a, b| a.series == b.series)
            .filter_map(|figures| dataset_figure(data, run, figures))
            .collect();
        if figures.is_empty() {
            return None;
        }
        let online = run.facts.get("host_cpus")?.parse().ok()?;
        Some(Entry {
            id: run.id.as_str().into(),
            folder: run.id.as_str().into(),
            started: began.to_string().into(),
            plan: name.into(),
            cpu: cpus(run.facts.get("host_cpu_model_name")?, online),
            vm: "".into(),
            kept: "".into(),
            figures,
        })
    }

    /// Returns what a run and its copies have in common: the ID, which runs of one command that began in one second share, and the
    /// bits of its figures, in order.
    pub fn key(&self) -> (Arc<str>, Vec<u64>) {
        let figures = self.figures.iter();
        let mut bits: Vec<u64> = figures
            .map(|figure| figure.value.median.to_bits())
            .collect();
        bits.sort_unstable();
        (Arc::clone(&self.id), bits)
    }
}

impl Figure {
    /// Makes the figure of no metric, for the facts of a run without figures.
    pub fn none(facts: &Facts) -> Figure {
        Figure {
            metric: Arc::default(),
            machine: Arc::default(),
            variant: Arc::default(),
            step: Arc::default(),
            settings: Arc::default(),
            facts: json(facts),
            n: 0,
            value: Estimate {
                median: 0.0,
                interval: None,
            },
        }
    }
}

/// Returns the number of rounds, and their value: repeats within a round are one value.
fn of_rounds(rounds: BTreeMap<u32, Vec<f64>>) -> (u32, Estimate) {
    let repeats = rounds.into_values();
    let values: Vec<f64> = repeats.map(|repeats| estimate(repeats).median).collect();
    (values.len() as u32, estimate(values))
}

/// Model and number of CPUs, as a series names them.
pub fn cpus(model: &str, count: u32) -> Arc<str> {
    format!("{model}, {count} CPU{}", if count == 1 { "" } else { "s" }).into()
}

pub fn json(value: &BTreeMap<String, String>) -> Arc<str> {
    serde_json::to_string(value).unwrap_or_default().into()
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

fn figures(
    plan: &Plan,
    trials: &[&TrialRecord],
    of_host: &Facts,
    of_guests: &BTreeMap<(Machine, &str), Facts>,
) -> Vec<Figure> {
    // Repeats within a turn are one value of its round.
    let mut values: BTreeMap<Of<'_>, BTreeMap<u32, Vec<f64>>> = BTreeMap::new();
    let mut settings_of = BTreeMap::new();
    for trial in trials {
        let measures = trial.result().into_iter().flat_map(|r| &r.measures);
        for measure in measures.filter(|m| m.value.is_finite()) {
            let variant = trial.variant.as_str();
            let key = (measure.metric, trial.machine, variant, trial.step);
            let rounds = values.entry(key).or_default();
            rounds.entry(trial.round).or_default().push(measure.value);
            settings_of
                .entry(key)
                .or_insert_with(|| plan.settings_of(trial));
        }
    }
    let option = plan.range().map_or("", |range| range.option.as_str());
    let figure = |(key, rounds): (Of<'_>, BTreeMap<u32, Vec<f64>>)| {
        let (metric, machine, variant, step) = key;
        let mut facts = of_host.clone();
        if let Some(of_guest) = of_guests.get(&(machine, variant)) {
            facts.extend(of_guest.clone());
        }
        let (n, value) = of_rounds(rounds);
        Figure {
            metric: metric.id().into(),
            machine: machine.as_str().into(),
            variant: variant.into(),
            step: step
                .map_or_else(String::new, |size| format!("{option}={size}"))
                .into(),
            settings: json(&settings_of[&key]),
            facts: json(&facts),
            n,
            value,
        }
    };
    values.into_iter().map(figure).collect()
}

fn host_facts(host: &HostFacts, vmtax: &str) -> Facts {
    let cpu = &host.cpu;
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
    let facts = [
        ("host", text(&host.identity.name)),
        ("vmtax", vmtax.to_owned()),
        ("host kernel", host.kernel.clone()),
        ("distribution", host.distribution.clone()),
        ("governor", text(&cpu.governor)),
        ("hypervisor", text(&cpu.hypervisor)),
        ("clock source", cpu.clocksource.clone()),
        ("memory MiB", host.memory_mib.to_string()),
    ];
    facts.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Facts of each guest that had a trial, by machine and variant.
fn guest_facts<'a>(
    plan: &Plan,
    host: &HostFacts,
    trials: &[&'a TrialRecord],
) -> BTreeMap<(Machine, &'a str), Facts> {
    let mut all: BTreeMap<_, Facts> = BTreeMap::new();
    for trial in trials.iter().filter(|t| t.machine.is_guest()) {
        let facts = all
            .entry((trial.machine, trial.variant.as_str()))
            .or_default();
        let kernel = trial
            .result()
            .map(|r| format!("{} {}", r.kernel.system, r.kernel.release));
        for (name, value) in [("QEMU", qemu(plan, host, trial)), ("guest kernel", kernel)] {
            if let Some(value) = value {
                facts.entry(name.to_owned()).or_insert(value);
            }
        }
    }
    all
}

/// Returns the changes that a run of `tune` kept, with their gain; `None` for any other run.
pub(super) fn kept(plan: &Plan, trials: &[TrialRecord]) -> Option<String> {
    let found = vmtax_analysis::tune_guest(plan, trials)?;
    let kept = found.outcome.kept();
    let names: Vec<&str> = kept.map(|row| &*row.candidate.name).collect();
    let total = found.outcome.total.filter(|_| !names.is_empty());
    Some(with_gain(total, |gain| {
        format!("{}, {gain} less time", names.join(" + "))
    }))
}

/// Returns the text for the changes that a tuning kept, with the part of the time that they save in all.
fn with_gain(total: Option<Comparison>, text: impl Fn(String) -> String) -> String {
    total.map_or_else(
        || "nothing".to_owned(),
        |total| text(percent(1.0 - total.ratio.median)),
    )
}

/// A running VM that was tuned.
#[derive(Debug, PartialEq)]
pub(super) struct TunedVm {
    pub id: String,
    /// Version and path.
    pub qemu: Option<String>,
    /// Changes that are still applied.
    pub kept: String,
}

/// Returns the running VM that was tuned; `None` for any other run, and for a VM without a persistent name.
fn tuned_vm(recording: &Recording) -> Option<TunedVm> {
    let spec = recording.plan.tune().filter(|spec| spec.apply)?;
    vm_of(&crate::tune::findings(recording, spec).ok()?)
}

pub(super) fn vm_of(found: &TuneFindings) -> Option<TunedVm> {
    let vm = &found.vm;
    // A PID is of one start alone.
    let id = match &vm.managed {
        Some(managed) => format!("{} {}", managed.manager.as_str(), managed.id),
        None => vm.name.clone()?,
    };
    let kept = found.outcome.kept();
    let actions: Vec<&str> = kept
        .map(|row| row.candidate.change.action.trim_end_matches('.'))
        .collect();
    let total = found.outcome.total;
    let total = total.filter(|_| found.is_on && !actions.is_empty());
    let kept = with_gain(total, |gain| {
        format!("{:?}, faster by {gain}", actions.join("; "))
    });
    let qemu = vm.version.as_ref().map(|version| match &vm.binary {
        Some(path) => format!("{version} {}", path.display()),
        None => version.clone(),
    });
    Some(TunedVm { id, qemu, kept })
}

/// Version and path of a guest's QEMU; of a variant with one of its own that the facts do not have, what it was called.
fn qemu(plan: &Plan, host: &HostFacts, trial: &TrialRecord) -> Option<String> {
    let variant = plan.variant_of(trial);
    let known = host
        .qemu_of(variant)
        .map(|qemu| format!("{} {}", qemu.version, qemu.path.display()));
    known.or_else(|| Some(variant?.qemu()?.display().to_string()))
}

/// Facts of a host: their names in a dataset and in a history, and what stands for one that is not known.
const HOST_FACTS: [(&str, &str, Option<&str>); 9] = [
    ("host_name", "host", None),
    ("vmtax_version", "vmtax", None),
    ("kernel_release", "host kernel", None),
    ("os_description", "distribution", None),
    ("cpu_governor", "governor", Some("none")),
    ("hypervisor", "hypervisor", Some("none")),
    ("clocksource", "clock source", None),
    ("host_memory_mib", "memory MiB", None),
    ("host_cpu_microcode", "microcode", None),
];

/// Facts of the host, and of the guest on a machine, which a dataset has of the only variant.
fn dataset_facts(run: &FleetRun, machine: &str, variant: &str) -> Facts {
    let of_host = HOST_FACTS.iter().filter_map(|(from, to, otherwise)| {
        let value = run.facts.get(*from).map(String::as_str).or(*otherwise)?;
        Some(((*to).to_owned(), value.to_owned()))
    });
    let of_guest = [
        ("qemu_version", "QEMU", ""),
        ("guest_kernel_release", "guest kernel", "Linux "),
    ];
    let of_guest = of_guest
        .into_iter()
        .filter(|_| variant.is_empty())
        .filter_map(|(from, to, before)| {
            let value = run.facts.get(&format!("{from} ({machine})"))?;
            Some((to.to_owned(), format!("{before}{value}")))
        });
    of_host.chain(of_guest).collect()
}

/// A metric of a run; `None` for one that a command printed, or of another vmtax.
fn dataset_figure(data: &FleetData, run: &FleetRun, figures: &[FleetFigure]) -> Option<Figure> {
    let series = &data.series[figures.first()?.series as usize];
    let metric: Metric = series.metric.parse().ok()?;
    let machine: Machine = series.machine.parse().ok()?;
    let mut rounds: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for figure in figures {
        rounds.entry(figure.round).or_default().push(figure.value);
    }
    let (n, value) = of_rounds(rounds);
    Some(Figure {
        metric: metric.id().into(),
        machine: machine.as_str().into(),
        variant: series.variant.as_str().into(),
        step: series
            .size
            .map_or_else(String::new, |size| format!("size={size}"))
            .into(),
        settings: series.settings.as_str().into(),
        facts: json(&dataset_facts(run, machine.as_str(), &series.variant)),
        n,
        value,
    })
}
