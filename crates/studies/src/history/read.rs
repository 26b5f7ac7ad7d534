//! Figures of a history. Metrics and machines that have no name here are passed over.

use super::entry::{Entry, Figure};
use super::runs::History;
use std::collections::{HashMap, HashSet};
use vmtax_model::{HistoryEntry, Machine, Metric, PastFigure, PastRun, SeriesKey};

/// The runs that have a metric on a machine.
#[derive(Default)]
struct Listed<'a> {
    runs: HashSet<&'a str>,
    /// Conditions: CPUs, variant, step, settings.
    series: HashSet<[&'a str; 4]>,
    started: Vec<&'a str>,
}

impl History {
    /// Returns the metrics of the history by machine, each with its number of runs and series.
    pub fn list(&self) -> Vec<HistoryEntry> {
        let mut all: HashMap<(&str, &str), Listed> = HashMap::new();
        for (run, f) in self.all() {
            let listed = all.entry((&f.metric, &f.machine)).or_default();
            listed
                .series
                .insert([&run.cpu, &f.variant, &f.step, &f.settings]);
            listed.started.push(&run.started);
            listed.runs.insert(&run.folder);
        }
        let entry = |((metric, machine), listed): ((&str, &str), Listed)| {
            Some(HistoryEntry {
                metric: metric.parse().ok()?,
                machine: machine.parse().ok()?,
                runs: listed.runs.len() as u32,
                series: listed.series.len() as u32,
                first: (*listed.started.iter().min()?).to_owned(),
                last: (*listed.started.iter().max()?).to_owned(),
            })
        };
        let mut entries: Vec<HistoryEntry> = all.into_iter().filter_map(entry).collect();
        entries.sort_by_key(|e| (e.metric, e.machine));
        entries
    }

    /// Returns a metric's figures with what they were measured under, on one machine or all.
    pub fn figures(
        &self,
        metric: Metric,
        machine: Option<Machine>,
    ) -> Vec<(SeriesKey, PastFigure)> {
        let past = |(run, figure)| {
            let past = self.past(run, figure);
            past.filter(|(key, _)| machine.is_none_or(|machine| machine == key.machine))
        };
        let figures = self
            .all()
            .filter(|(_, figure)| &*figure.metric == metric.id());
        figures.filter_map(past).collect()
    }

    fn all(&self) -> impl Iterator<Item = (&Entry, &Figure)> {
        let runs = self.runs.iter();
        runs.flat_map(|run| run.figures.iter().map(move |figure| (run, figure)))
    }

    fn past(&self, run: &Entry, figure: &Figure) -> Option<(SeriesKey, PastFigure)> {
        let key = SeriesKey {
            machine: figure.machine.parse().ok()?,
            variant: figure.variant.to_string(),
            step: figure.step.to_string(),
            host: run.cpu.to_string(),
            settings: serde_json::from_str(&figure.settings).ok()?,
        };
        let past = PastFigure {
            run: PastRun {
                folder: run.folder.to_string(),
                started: run.started.to_string(),
                name: run.plan.to_string(),
                recorded: self.store.is_recorded(run),
            },
            n: figure.n,
            value: figure.value,
            facts: serde_json::from_str(&figure.facts).ok()?,
        };
        Some((key, past))
    }
}
