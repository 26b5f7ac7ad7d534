//! Runs of a dataset, as a ledger holds them: figures and facts without a recording.

use super::entry::{Entry, Fact, Figure};
use super::ledger::{Ledger, LedgerError, failed};
use super::write::insert;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use rusqlite::TransactionBehavior;
use std::collections::{BTreeMap, BTreeSet};
use vmtax_analysis::estimate;
use vmtax_model::{FleetData, FleetFigure, FleetRun, Machine, Metric};

/// Numbers of a dataset's runs that were added, known or unusable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImportedRuns {
    /// Runs that are in the ledger now, and were not before.
    pub added: usize,
    /// Runs that were in it already.
    pub known: usize,
    /// Runs without what a ledger needs: when they began, the host's CPU, a metric that this vmtax knows.
    pub unusable: usize,
}

/// Facts of a host: their names in a dataset and in a ledger, and what stands for one that is not known.
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

/// When a run began, to the second, which is what a dataset has, its plan's name and the host's CPU.
type Identity = (i64, String, String);

impl Ledger {
    /// Adds the runs of a dataset that are not in it, of the host with this name or of all. All of them are added, or none.
    ///
    /// # Errors
    /// [`LedgerError`] when the ledger is locked or cannot be read or written.
    pub fn import(
        &mut self,
        data: &FleetData,
        host: Option<&str>,
    ) -> Result<ImportedRuns, LedgerError> {
        let folders: BTreeSet<String> = self.folders()?.into_iter().collect();
        let mut hosts: BTreeMap<Identity, Vec<Option<String>>> = BTreeMap::new();
        for (began, name, cpu, host) in self.runs()? {
            hosts
                .entry(identity(&began, &name, &cpu))
                .or_default()
                .push(host);
        }
        // The recording of a run is known under another name; an older ledger does not name its host.
        let is_known = |entry: &Entry, host: &str| {
            let recorded = hosts.get(&identity(&entry.started, &entry.name, &entry.cpu));
            let is_host = |known: &Option<String>| known.as_ref().is_none_or(|known| known == host);
            folders.contains(&entry.folder)
                || recorded.is_some_and(|hosts| hosts.iter().any(is_host))
        };
        let mut imported = ImportedRuns::default();
        let failed = failed(&self.path);
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(&failed)?;
        for figures in data.figures.chunk_by(|a, b| a.run == b.run) {
            let run = &data.runs[figures[0].run as usize];
            if host.is_some_and(|host| host != run.host) {
                continue;
            }
            match entry(data, run, figures) {
                None => imported.unusable += 1,
                Some(entry) if is_known(&entry, &run.host) => imported.known += 1,
                Some(entry) => {
                    insert(&transaction, &entry).map_err(&failed)?;
                    imported.added += 1;
                }
            }
        }
        transaction.commit().map_err(&failed)?;
        Ok(imported)
    }
}

fn identity(began: &str, name: &str, cpu: &str) -> Identity {
    let began = began.parse::<Timestamp>().map_or(0, Timestamp::as_second);
    (began, name.to_owned(), cpu.to_owned())
}

/// A run, if a ledger can hold it.
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
        .filter_map(|figures| figure(data, figures))
        .collect();
    if figures.is_empty() {
        return None;
    }
    Some(Entry {
        folder: run.id.clone(),
        started: began.to_string(),
        name: name.to_owned(),
        command: String::new(),
        cpu: run.facts.get("host_cpu_model_name")?.clone(),
        cpus: run.facts.get("host_cpus")?.parse().ok()?,
        facts: facts(run),
        figures,
    })
}

fn facts(run: &FleetRun) -> Vec<Fact> {
    let fact = |machine: &str, name: &str, value: String| Fact {
        machine: machine.to_owned(),
        variant: String::new(),
        name: name.to_owned(),
        value,
    };
    let of_host = HOST_FACTS.iter().filter_map(|(from, to, otherwise)| {
        let value = run.facts.get(*from).map(String::as_str).or(*otherwise)?;
        Some(fact("", to, value.to_owned()))
    });
    let of_guest = run.facts.iter().filter_map(|(name, value)| {
        // qemu_version (kvm)
        let (name, machine) = name.strip_suffix(')')?.split_once(" (")?;
        match name {
            "qemu_version" => Some(fact(machine, "QEMU", value.clone())),
            "guest_kernel_release" => Some(fact(machine, "guest kernel", format!("Linux {value}"))),
            _ => None,
        }
    });
    of_host.chain(of_guest).collect()
}

/// A metric of a run; `None` for one that a command printed, or of another vmtax.
fn figure(data: &FleetData, figures: &[FleetFigure]) -> Option<Figure> {
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
        metric: metric.id().to_owned(),
        machine: machine.to_string(),
        variant: series.variant.clone(),
        step: series
            .size
            .map_or_else(String::new, |size| format!("size={size}")),
        settings: series.settings.clone(),
        n: values.len() as u32,
        value: estimate(values),
    })
}
