//! History of measurements: figures and facts of every run in a folder of Parquet files beside the recordings. The
//! recordings stay the truth: what is missing is added from them, and the figures of runs whose recordings were deleted are kept.

mod entry;
mod store;

pub use store::{FOLDER, HistoryError};

use entry::{Entry, Figure, name};
use jiff::Timestamp;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use store::{MANY, Store, paths};
use vmtax_export::table::Problem;
use vmtax_findings::{Facts, FleetData, HistoryEntry, PastFigure, PastRun, SeriesKey};
use vmtax_model::{GuestTuneSpec, Machine, Metric};
use vmtax_recording::{RecordingError, RecordingsFolder};

/// The facts for which the result of a tuning holds.
const HOLDS_FOR: [&str; 3] = ["QEMU", "guest kernel", "host kernel"];

/// The history of a folder of recordings.
#[derive(Debug)]
pub struct History {
    store: Store,
    runs: Vec<Entry>,
    /// Files that cannot be read, and why.
    damaged: Vec<(PathBuf, Problem)>,
    /// Notes for the user: what was damaged, which recording cannot be added.
    pub notes: Vec<String>,
}

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

/// The runs that have a metric on a machine.
#[derive(Default)]
struct Listed<'a> {
    runs: HashSet<&'a str>,
    /// Conditions: CPUs, variant, step, settings.
    series: HashSet<[&'a str; 4]>,
    started: Vec<&'a str>,
}

/// Adds a recording that was just finished to the history of a folder of recordings. Of one that lies elsewhere the folder's
/// whole path is its name. Returns notes for whoever made it: where the last tuning of the same workload or VM had another QEMU
/// or kernel.
///
/// # Errors
/// [`HistoryError`], saying how to add it later; nothing is lost by it.
pub fn add(runs: &RecordingsFolder, recording: &Path) -> Result<Vec<String>, HistoryError> {
    let recording = vmtax_recording::open(recording)?;
    let mut entry = Entry::from_recording(&recording)?;
    let folders = (recording.folder.canonicalize(), runs.path().canonicalize());
    if let (Ok(folder), Ok(runs)) = folders {
        if folder.parent() != Some(&runs) {
            entry.folder = folder.to_string_lossy().into();
        }
    }
    let mut notes = Vec::new();
    // Only a tuning is compared with what is there.
    if !entry.kept.is_empty() {
        let history = History::open(runs)?;
        notes.extend(history.since_last_tuning(&entry));
    }
    Store::open(runs.path())?.put(&[entry])?;
    Ok(notes)
}

impl History {
    /// Reads the history of a folder of recordings, without what is in damaged files.
    ///
    /// # Errors
    /// [`HistoryError`] when it is of a newer version, or may not be read.
    pub fn open(runs: &RecordingsFolder) -> Result<History, HistoryError> {
        let store = Store::open(runs.path())?;
        let content = store.read()?;
        Ok(History {
            store,
            runs: content.runs,
            damaged: content.damaged,
            notes: Vec::new(),
        })
    }

    /// Moves damaged files aside: [`History::notes`] say so.
    fn set_damaged_aside(&mut self) {
        let time = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        for (path, problem) in self.damaged.drain(..) {
            let aside = path.with_extension(format!("parquet.damaged-{time}"));
            let moved = match fs::rename(&path, &aside) {
                Ok(()) => format!("moved to {}", aside.display()),
                Err(error) => format!("it cannot be moved aside ({error})"),
            };
            let path = path.display();
            self.notes.push(format!(
                "{path} was damaged ({problem}): {moved}. Its runs are added again as far as there are recordings of them"
            ));
        }
    }

    /// Moves damaged files aside, and adds every finished recording of the folder that is not yet there, in memory only where the
    /// history cannot be written. Each of the first, and a recording that cannot be read, gets a note.
    ///
    /// # Errors
    /// [`HistoryError`] when the folder cannot be read, or the history not written.
    pub fn catch_up(&mut self) -> Result<(), HistoryError> {
        self.set_damaged_aside();
        let is_writable = self.store.is_writable();
        let recorded = self.runs.iter().filter(|run| self.store.is_recorded(run));
        let mut recorded: HashSet<_> = recorded.map(Entry::key).collect();
        for folders in self.unknown()?.chunks(MANY) {
            let entries = folders.iter().filter_map(|folder| self.entry(folder));
            let mut entries: Vec<Entry> = entries.collect();
            // A copy is the same run.
            entries.retain(|entry| recorded.insert(entry.key()));
            if is_writable {
                self.store.put(&entries)?;
            }
            self.runs.extend(entries);
        }
        self.store.each_once(&mut self.runs);
        Ok(())
    }

    /// Folders beside the history that it does not know, in order.
    fn unknown(&self) -> Result<Vec<PathBuf>, RecordingError> {
        let runs = &self.store.runs;
        let known: HashSet<&str> = self.runs.iter().map(|run| &*run.folder).collect();
        let mut folders = paths(runs).map_err(|source| RecordingError::Read {
            path: runs.clone(),
            source,
        })?;
        folders.retain(|path| path.is_dir() && !known.contains(&*name(path)));
        folders.sort();
        Ok(folders)
    }

    /// Returns the entry of a folder, if that is a finished recording: one without an end may be under way.
    fn entry(&mut self, folder: &Path) -> Option<Entry> {
        let entry = match vmtax_recording::open(folder) {
            Ok(recording) if recording.manifest.ended.is_some() => {
                Entry::from_recording(&recording).map_err(HistoryError::from)
            }
            Ok(_) | Err(RecordingError::Foreign { .. }) => return None,
            Err(error) => Err(error.into()),
        };
        entry
            .map_err(|error| self.notes.push(error.to_string()))
            .ok()
    }

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
            match Entry::from_dataset(data, run, figures) {
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

    /// Where the last tuning of the same workload, with the same settings to begin with, or of the same running VM, had
    /// another QEMU or kernel than `entry`: what it kept, what is otherwise now, and what is kept now. `None` where
    /// there is none, or
    /// nothing is otherwise.
    fn since_last_tuning(&self, entry: &Entry) -> Option<String> {
        // The tuning of a running VM has no figures of metrics.
        let is_own = |f: &&Figure| match &*entry.vm {
            "" => &*f.variant == GuestTuneSpec::BASELINE,
            _ => f.metric.is_empty(),
        };
        let now = entry.figures.iter().find(is_own)?;
        let (last, then) = self.last_tuning(entry, now)?;
        let facts = |figure: &Figure| serde_json::from_str::<Facts>(&figure.facts).ok();
        let (then, now) = (facts(then)?, facts(now)?);
        let changes = HOLDS_FOR.iter().filter_map(|name| {
            let (then, now) = (then.get(*name)?, now.get(*name)?);
            (then != now).then(|| format!("{name} {then} → {now}"))
        });
        let changes: Vec<String> = changes.collect();
        let day = last.started.get(..10).unwrap_or(&last.started);
        let subject = match &*entry.vm {
            "" => "this workload".to_owned(),
            vm => format!("VM {vm}"),
        };
        (!changes.is_empty()).then(|| {
            format!(
                "the last run of `tune` for {subject} ({}, {day}) kept {}; changed since: {}; this run kept {}",
                last.folder,
                last.kept,
                changes.join(", "),
                entry.kept
            )
        })
    }

    /// Returns the last tuning before `entry` of what its figure `now` is of, with that figure then.
    fn last_tuning<'a>(&'a self, entry: &Entry, now: &Figure) -> Option<(&'a Entry, &'a Figure)> {
        let is_same = |then: &&Figure| {
            then.metric == now.metric
                && then.machine == now.machine
                && then.variant == now.variant
                && then.settings == now.settings
        };
        let tunings = self.runs.iter().filter(|run| {
            !run.kept.is_empty()
                && run.vm == entry.vm
                && (run.cpu == entry.cpu || !entry.vm.is_empty())
                && run.folder != entry.folder
                && run.started <= entry.started
        });
        let same = tunings.filter_map(|run| Some((run, run.figures.iter().find(is_same)?)));
        same.max_by(|(a, _), (b, _)| a.started.cmp(&b.started))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::entry::{json, kept, vm_of};
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use vmtax_findings::{
        Comparison, Estimate, TuneFindings, TuneOutcome, TuneRow, TuneVerdict, Verdict,
    };
    use vmtax_model::testing::{done, result};
    use vmtax_model::{
        Candidate, ChangeCost, GuestCandidate, GuestTunePart, GuestTunePhase, LiveChange,
        LiveMetric, Managed, Manager, Measure, Plan, Study, TrialRecord, Variant, VmFacts,
        WithCommand, WorkloadName, WorkloadSpec,
    };

    /// A history without files.
    fn history() -> History {
        let runs = tempfile::tempdir().unwrap();
        History::open(&RecordingsFolder::open(runs.path()).unwrap()).unwrap()
    }

    fn facts(qemu: &str, kernel: &str) -> Arc<str> {
        let facts = [("QEMU", qemu), ("host kernel", kernel)];
        json(
            &facts
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        )
    }

    /// A tuning of the n-th day.
    fn tuning(day: u32, qemu: &str, kept: &str, settings: &str) -> Entry {
        let figure = |variant: &str, qemu| Figure {
            metric: Metric::DiskRate.id().into(),
            machine: "tcg".into(),
            variant: variant.into(),
            step: "".into(),
            settings: settings.into(),
            facts: facts(qemu, "6.1"),
            n: 8,
            value: Estimate {
                median: 1e4,
                interval: None,
            },
        };
        Entry {
            id: format!("id-{day}").into(),
            folder: format!("tuning-{day}").into(),
            started: format!("2026-11-{day:02}T12:00:00Z").into(),
            plan: "tune".into(),
            cpu: "test".into(),
            vm: "".into(),
            kept: kept.into(),
            // A candidate's own QEMU is not what the result holds for.
            figures: vec![
                figure("qemu=9.0", "9.0"),
                figure(GuestTuneSpec::BASELINE, qemu),
            ],
        }
    }

    #[test]
    fn another_qemu_since_the_last_tuning_of_the_same_is_said() {
        let mut history = history();
        let said = History::since_last_tuning;
        let first = tuning(1, "7.2 /a", "cache=none, 49 % less time", "{}");
        assert_eq!(said(&history, &first), None, "no tuning before");
        history.runs.push(first.clone());
        assert_eq!(said(&history, &first), None, "itself");
        assert_eq!(
            said(&history, &tuning(2, "7.2 /a", "nothing", "{}")),
            None,
            "the same QEMU"
        );
        assert_eq!(
            said(
                &history,
                &tuning(2, "10.0 /b", "nothing", "{\"depth\":\"8\"}")
            ),
            None,
            "another workload"
        );
        let second = tuning(2, "10.0 /b", "nothing", "{}");
        let expected = "the last run of `tune` for this workload (tuning-1, 2026-11-01) kept cache=none, 49 % less time; changed since: \
                        QEMU 7.2 /a → 10.0 /b; this run kept nothing";
        assert_eq!(said(&history, &second).as_deref(), Some(expected));
        history.runs.push(second);
        // The last one counts, not the first.
        assert_eq!(said(&history, &tuning(3, "10.0 /b", "nothing", "{}")), None);
        let mut upgraded = tuning(3, "10.0 /b", "nothing", "{}");
        upgraded.figures[1].facts = facts("10.0 /b", "6.12");
        assert!(
            said(&history, &upgraded).is_some_and(|line| line.contains("host kernel 6.1 → 6.12"))
        );
        history.runs.push(tuning(4, "11.0 /c", "", "{}"));
        let same = tuning(5, "10.0 /b", "nothing", "{}");
        assert_eq!(said(&history, &same), None, "a comparison tunes nothing");
    }

    /// A tuning of a running VM on the n-th day.
    fn tuning_of_vm(
        day: u32,
        name: Option<&str>,
        managed: Option<&str>,
        version: &str,
    ) -> Option<Entry> {
        let managed = managed.map(|id| Managed {
            manager: Manager::Libvirt,
            id: id.to_owned(),
        });
        let vm = VmFacts {
            name: name.map(str::to_owned),
            managed,
            version: Some(version.to_owned()),
            ..VmFacts::unknown(7)
        };
        let change = LiveChange {
            action: "Remove the I/O limits of disk0".to_owned(),
            cost: ChangeCost::Live,
            metric: Some(LiveMetric::Latency),
            disk: None,
            settings: Vec::new(),
        };
        let candidate = Candidate {
            rule: String::new(),
            finding: String::new(),
            ceiling: 0.5,
            change,
        };
        let ratio = Estimate {
            median: 0.02,
            interval: None,
        };
        let comparison = Comparison {
            ratio,
            difference: None,
            rounds: 8,
            p: None,
            verdict: Verdict::Faster,
        };
        let row = TuneRow {
            candidate,
            verdict: TuneVerdict::Keep,
            why: None,
            beside: None,
            screening: None,
            confirmation: Some(comparison),
        };
        let found = TuneFindings {
            vm,
            applied: true,
            unobserved: None,
            metric: String::new(),
            moved: Vec::new(),
            is_on: true,
            outcome: TuneOutcome {
                total: Some(comparison),
                candidates: vec![row],
                not_tried: Vec::new(),
                ended: None,
                seconds: 60.0,
            },
        };
        let tuned = vm_of(&found)?;
        Some(Entry {
            vm: tuned.id.into(),
            figures: vec![Figure {
                facts: facts(&tuned.qemu?, "6.1"),
                ..Figure::none(&Facts::new())
            }],
            ..tuning(day, "", &tuned.kept, "")
        })
    }

    #[test]
    fn another_qemu_since_the_last_tuning_of_the_same_vm_is_said() {
        let mut history = history();
        let said = History::since_last_tuning;
        assert_eq!(
            tuning_of_vm(1, None, None, "7.2"),
            None,
            "a PID does not last"
        );
        history
            .runs
            .push(tuning_of_vm(1, Some("web01"), Some("18-6"), "7.2").unwrap());
        let same = tuning_of_vm(2, Some("renamed"), Some("18-6"), "7.2").unwrap();
        assert_eq!(said(&history, &same), None, "the same QEMU");
        let other = tuning_of_vm(2, Some("web01"), Some("19-7"), "10.0").unwrap();
        assert_eq!(said(&history, &other), None, "another VM of that name");
        let upgraded = tuning_of_vm(2, Some("renamed"), Some("18-6"), "10.0").unwrap();
        let expected = "the last run of `tune` for VM libvirt 18-6 (tuning-1, 2026-11-01) kept \"Remove the I/O limits of disk0\", faster by 98 %; \
                        changed since: QEMU 7.2 → 10.0; this run kept \"Remove the I/O limits of disk0\", faster by 98 %";
        assert_eq!(
            said(&history, &upgraded).unwrap().replace('\u{a0}', " "),
            expected
        );
        // A workload's tuning is none of a VM.
        assert_eq!(said(&history, &tuning(3, "11.0", "nothing", "{}")), None);
    }

    #[test]
    fn what_a_tuning_kept_is_a_fact_of_it() {
        let candidate = GuestCandidate {
            name: "cache=none".to_owned(),
            set: BTreeMap::from([("cache".to_owned(), "none".to_owned())]),
            trap: String::new(),
            source: String::new(),
            cost: None,
        };
        let part = |phase, first_round, configurations| GuestTunePart {
            phase,
            configurations,
            first_round,
            rounds: 8,
        };
        let spec = GuestTuneSpec {
            metric: Metric::DiskRate,
            budget_s: 900,
            candidates: vec![candidate],
            not_tried: Vec::new(),
            like: None,
            job_notes: Vec::new(),
            parts: vec![
                part(GuestTunePhase::Screening, 0, vec![Vec::new(), vec![0]]),
                part(GuestTunePhase::Confirmation, 8, vec![vec![0], Vec::new()]),
            ],
        };
        let variants = vec![Variant {
            name: GuestTuneSpec::BASELINE.to_owned(),
            ..Variant::default()
        }];
        let study = Study::TuneGuest(WithCommand {
            settings: Box::new(spec),
            command: None,
        });
        let workloads = vec![WorkloadSpec::new(WorkloadName::Disk)];
        let plan = Plan {
            variants,
            study,
            ..Plan::new("tune", 1, vec![Machine::TCG], workloads)
        };
        let trials = |rate_of_candidate: f64| -> Vec<TrialRecord> {
            let boots = (0..16).flat_map(|round| {
                [
                    (round, "baseline", 1e4),
                    (round, "cache=none", rate_of_candidate),
                ]
            });
            boots
                .map(|(round, variant, rate)| {
                    let mut result = result(WorkloadSpec::new(WorkloadName::Disk));
                    result.measures.push(Measure {
                        metric: Metric::DiskRate,
                        value: rate,
                    });
                    TrialRecord {
                        round,
                        variant: variant.to_owned(),
                        ..done(Machine::TCG, result)
                    }
                })
                .collect()
        };
        let value = |rate| kept(&plan, &trials(rate)).unwrap();
        assert_eq!(
            value(2e4).replace('\u{a0}', " "),
            "cache=none, 50 % less time"
        );
        assert_eq!(value(9e3), "nothing");
        let compared = Plan::new("compare", 1, vec![Machine::TCG], Vec::new());
        assert_eq!(kept(&compared, &[]), None);
    }
}
