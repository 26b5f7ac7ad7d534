//! Runs of a dataset, as a history holds them: figures and facts without a recording.

use super::entry::{Entry, Figure, cpus, json};
use super::error::HistoryError;
use super::runs::History;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use std::collections::{BTreeMap, HashSet};
use vmtax_analysis::estimate;
use vmtax_model::{Facts, FleetData, FleetFigure, FleetRun, Machine, Metric};

/// Numbers of a dataset's runs that were added, known or unusable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImportedRuns {
    /// Runs that are in the history now, and were not before.
    pub added: usize,
    /// Runs that were in it already.
    pub known: usize,
    /// Runs without what a history needs: when they began, the host's CPU, a metric that this vmtax knows.
    pub unusable: usize,
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

impl History {
    /// Adds the runs of a dataset that are not in it, of the host with this name or of all.
    ///
    /// # Errors
    /// [`HistoryError`] when the history cannot be written: what was added until then is counted as known the next time.
    pub fn import(
        &mut self,
        data: &FleetData,
        host: Option<&str>,
    ) -> Result<ImportedRuns, HistoryError> {
        // The recording of a run is known under another folder, and the same run.
        let known: HashSet<&str> = self.runs.iter().map(|run| &*run.id).collect();
        let mut imported = ImportedRuns::default();
        let mut new = Vec::new();
        for figures in data.figures.chunk_by(|a, b| a.run == b.run) {
            let run = &data.runs[figures[0].run as usize];
            if host.is_some_and(|host| host != run.host) {
                continue;
            }
            match entry(data, run, figures) {
                None => imported.unusable += 1,
                Some(entry) if known.contains(&*entry.id) => imported.known += 1,
                Some(entry) => new.push(entry),
            }
        }
        imported.added = new.len();
        self.store.put(&new)?;
        self.runs.extend(new);
        Ok(imported)
    }
}

/// A run, if a history can hold it.
fn entry(data: &FleetData, run: &FleetRun, figures: &[FleetFigure]) -> Option<Entry> {
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
        .filter_map(|figures| figure(data, run, figures))
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

/// Facts of the host, and of the guest on a machine, which a dataset has of the only variant.
fn facts(run: &FleetRun, machine: &str, variant: &str) -> Facts {
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
fn figure(data: &FleetData, run: &FleetRun, figures: &[FleetFigure]) -> Option<Figure> {
    let series = &data.series[figures.first()?.series as usize];
    let metric: Metric = series.metric.parse().ok()?;
    let machine: Machine = series.machine.parse().ok()?;
    // Repeats within a round are one value.
    let mut rounds: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for figure in figures {
        rounds.entry(figure.round).or_default().push(figure.value);
    }
    let values: Vec<f64> = rounds
        .into_values()
        .map(|repeats| estimate(repeats).median)
        .collect();
    Some(Figure {
        metric: metric.id().into(),
        machine: machine.as_str().into(),
        variant: series.variant.as_str().into(),
        step: series
            .size
            .map_or_else(String::new, |size| format!("size={size}"))
            .into(),
        settings: series.settings.as_str().into(),
        facts: json(&facts(run, machine.as_str(), &series.variant)),
        n: values.len() as u32,
        value: estimate(values),
    })
}
