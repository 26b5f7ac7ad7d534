//! A dataset read back, as far as comparing hosts needs it: `figures` and `facts`. Whatever wrote its files, vmtax, DuckDB or
//! nobody's tool, what makes sense is read, and the rest is counted and named.

use crate::ExportError;
use crate::dataset::{SCHEMA, TableFile, files};
use crate::table::{Group, Problem, Texts, for_each_group};
use jiff::civil::Date;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};
use vmtax_findings::{Facts, FleetData, FleetFigure, FleetRun, FleetSeries};
use vmtax_model::Better;
use vmtax_model::number::counted;

/// No vmtax measured before.
const FIRST_YEAR: i16 = 2020;

/// Reads the runs of a dataset, with all CPUs. `today` is the date by which clocks are judged.
///
/// # Errors
/// [`ExportError::NoTable`] when there is no table `figures` or `facts`, [`ExportError::NoFigures`] when only facts are there,
/// [`ExportError::ReadFolder`] when a folder cannot be
/// listed. A file that cannot be read is a warning.
pub fn read(dataset: &Path, today: Date) -> Result<FleetData, ExportError> {
    if !has_figures(dataset) && dataset.join("facts").is_dir() {
        return Err(ExportError::NoFigures {
            dataset: dataset.to_owned(),
        });
    }
    let (figures, facts) = (files(dataset, "figures")?, files(dataset, "facts")?);
    let parts = parts(&figures, &facts);
    let mut all = Merged::default();
    let mut warnings = Vec::new();
    let is_newer = |file: &&TableFile| file.schema.is_some_and(|schema| schema > SCHEMA);
    let newer = figures.iter().chain(&facts).filter(is_newer).count();
    if newer > 0 {
        warnings.push(format!(
            "Only the known columns were read of {} of a newer schema than {SCHEMA}. Use the vmtax that wrote them.",
            counted(newer as u64, "file")
        ));
    }
    let (mut problems, mut unusable) = (Vec::new(), 0);
    for mut part in parts {
        unusable += part.unusable;
        problems.append(&mut part.problems);
        all.add(&part);
    }
    let is_other_table = |(_, problem): &(_, Problem)| matches!(problem, Problem::Column(_));
    let (unsuitable, damaged): (Vec<_>, Vec<_>) = problems.into_iter().partition(is_other_table);
    let remedy = "Copy them again, or export their recordings again";
    warnings.extend(left_out("that cannot be read", &damaged, remedy));
    let remedy = "Move them out of the dataset";
    warnings.extend(left_out("that no vmtax wrote", &unsuitable, remedy));
    if unusable > 0 {
        warnings.push(format!(
            "Ignored {} that are 0, negative or not finite: their ratios are undefined.",
            counted(unusable, "figure")
        ));
    }
    let mut data = all.data(&mut warnings);
    warn_of_clocks(&data, today, &mut warnings);
    data.warnings = warnings;
    Ok(data)
}

/// Returns true if a recording in the dataset has figures: those of running VMs have none.
pub fn has_figures(dataset: &Path) -> bool {
    dataset.join("figures").is_dir()
}

/// Fewer files are read sooner than a thread starts.
const FEWEST_FILES: usize = 16;

/// Reads the files, each thread its share.
fn parts(figures: &[TableFile], facts: &[TableFile]) -> Vec<Part> {
    let most = thread::available_parallelism().map_or(1, usize::from);
    let threads = ((figures.len() + facts.len()) / FEWEST_FILES).clamp(1, most);
    if threads == 1 {
        return vec![Part::read(figures, facts)];
    }
    let share = |files: &'_ [TableFile], i: usize| {
        let part_start = |i: usize| files.len() * i / threads;
        part_start(i)..part_start(i + 1)
    };
    thread::scope(|scope| {
        let read = |i: usize| {
            let (figures, facts) = (&figures[share(figures, i)], &facts[share(facts, i)]);
            let thread = thread::Builder::new();
            let started = thread.spawn_scoped(scope, || Part::read(figures, facts));
            (started, figures, facts)
        };
        let started: Vec<_> = (0..threads).map(read).collect();
        // What no thread could read is read here.
        let part = |(thread, figures, facts): (io::Result<ScopedJoinHandle<Part>>, _, _)| {
            thread
                .ok()
                .and_then(|thread| thread.join().ok())
                .unwrap_or_else(|| Part::read(figures, facts))
        };
        started.into_iter().map(part).collect()
    })
}

/// Returns the warning about files that are left out; `which`: a clause about them.
fn left_out(which: &str, files: &[(String, Problem)], remedy: &str) -> Option<String> {
    let (path, problem) = files.first()?;
    let first: String = path.chars().rev().take(160).collect();
    let first: String = first.chars().rev().collect();
    Some(format!(
        "Left out {} {which}; the first: {first}: {problem}. {remedy}.",
        counted(files.len() as u64, "file")
    ))
}

/// Rows of all parts, under the same numbers.
#[derive(Default)]
struct Merged {
    texts: Texts,
    series: Vec<FleetSeries>,
    numbers: HashMap<FleetSeries, u32>,
    figures: Vec<Figure>,
    facts: Vec<Fact>,
}

impl Merged {
    fn add(&mut self, part: &Part) {
        let number = self.texts.merge(&part.texts);
        let text = |i: u32| number[i as usize];
        let series: Vec<u32> = part
            .series
            .iter()
            .map(|(texts, size)| {
                let [metric, unit, better, machine, variant, workload, settings] =
                    texts.map(|i| part.texts.get(i).to_owned());
                let better = match better.as_str() {
                    "higher" => Some(Better::Higher),
                    "lower" => Some(Better::Lower),
                    _ => None,
                };
                let series = FleetSeries {
                    metric,
                    machine,
                    variant,
                    size: *size,
                    workload,
                    settings,
                    unit,
                    better,
                };
                let next = self.series.len() as u32;
                let number = *self.numbers.entry(series.clone()).or_insert(next);
                if number == next {
                    self.series.push(series);
                }
                number
            })
            .collect();
        self.figures.extend(part.figures.iter().map(|f| Figure {
            run: text(f.run),
            host: text(f.host),
            date: text(f.date),
            series: series[f.series as usize],
            ..*f
        }));
        self.facts.extend(part.facts.iter().map(|f| Fact {
            run: text(f.run),
            name: text(f.name),
            value: text(f.value),
        }));
    }

    /// The runs with their facts, and each figure once.
    fn data(mut self, warnings: &mut Vec<String>) -> FleetData {
        self.drop_copies(warnings);
        let empty = self.texts.number("");
        let facts = self.facts_of_runs();
        let unknown: Arc<Facts> = Arc::default();
        let mut data = FleetData {
            series: self.series,
            ..FleetData::default()
        };
        let mut nameless = 0;
        for run in self.figures.chunk_by(|a, b| a.run == b.run) {
            let first = &run[0];
            let facts = facts.get(&first.run).unwrap_or(&unknown);
            let named = run.iter().find(|f| f.host != empty);
            let named = named.map(|f| self.texts.get(f.host).to_owned());
            // Without a name the machine ID says which host it is.
            let Some(host) = named.or_else(|| facts.get("host_id").cloned()) else {
                nameless += 1;
                continue;
            };
            let number = data.runs.len() as u32;
            data.figures.extend(run.iter().map(|f| FleetFigure {
                run: number,
                series: f.series,
                trial: f.trial,
                round: f.round,
                value: f.value,
            }));
            let id = self.texts.get(first.run).to_owned();
            let dated = run.iter().find(|f| f.date != empty);
            let date = match dated {
                Some(figure) => self.texts.get(figure.date).to_owned(),
                None => date_in(&id).unwrap_or_default(),
            };
            data.runs.push(FleetRun {
                id,
                host,
                date,
                facts: Arc::clone(facts),
            });
        }
        if nameless > 0 {
            warnings.push(format!(
                "Ignored {} without a known host, recorded by an older vmtax. Measure again.",
                counted(nameless, "run")
            ));
        }
        data
    }

    /// Keeps each figure once.
    fn drop_copies(&mut self, warnings: &mut Vec<String>) {
        let rows = self.figures.len();
        // A stable order: of two of the same the first read counts.
        self.figures.sort_by_key(|f| (f.run, f.series, f.trial));
        let empty = self.texts.number("");
        let mut twice = BTreeSet::new();
        self.figures.dedup_by(|later, first| {
            let is_same =
                (later.run, later.series, later.trial) == (first.run, first.series, first.trial);
            if is_same {
                twice.insert(later.run);
                // A copy may lie where no path names its host or its day.
                for (known, copied) in
                    [(&mut first.host, later.host), (&mut first.date, later.date)]
                {
                    if *known == empty {
                        *known = copied;
                    }
                }
            }
            is_same
        });
        if !twice.is_empty() {
            warnings.push(format!(
                "Counted once: {} of {} that the dataset has twice; the first run is {}. Keep a compacted copy in a directory of its own.",
                counted((rows - self.figures.len()) as u64, "figure"),
                counted(twice.len() as u64, "run"),
                twice.first().map_or("", |run| self.texts.get(*run)),
            ));
        }
    }

    /// Of each run its facts; runs with the same share them.
    fn facts_of_runs(&mut self) -> HashMap<u32, Arc<Facts>> {
        self.facts.sort_by_key(|fact| (fact.run, fact.name));
        self.facts.dedup_by_key(|fact| (fact.run, fact.name));
        let mut known: HashMap<Vec<(u32, u32)>, Arc<Facts>> = HashMap::new();
        let runs = self.facts.chunk_by(|a, b| a.run == b.run).map(|run| {
            let numbers = run.iter().map(|fact| (fact.name, fact.value)).collect();
            let text = |i: u32| self.texts.get(i).to_owned();
            let facts = known.entry(numbers);
            let facts = facts.or_insert_with(|| {
                let texts = run.iter().map(|fact| (text(fact.name), text(fact.value)));
                Arc::new(texts.collect())
            });
            (run[0].run, Arc::clone(facts))
        });
        runs.collect()
    }
}

/// The day in a run's ID: 2026-11-25 of 20261125T091310Z-quick-3f2a91bc0d1e.
fn date_in(id: &str) -> Option<String> {
    let digits = id.get(..8)?;
    let part = |range| digits.get(range).unwrap_or("");
    Some(format!("{}-{}-{}", part(0..4), part(4..6), part(6..8)))
}

/// Warns of runs on days that cannot be.
fn warn_of_clocks(data: &FleetData, today: Date, warnings: &mut Vec<String>) {
    let latest = today.tomorrow().unwrap_or(today);
    let is_wrong = |date: &str| {
        date.parse::<Date>()
            .map_or(true, |day| day > latest || day.year() < FIRST_YEAR)
    };
    let mut hosts: BTreeMap<&str, u64> = BTreeMap::new();
    for run in data.runs.iter().filter(|run| is_wrong(&run.date)) {
        *hosts.entry(&run.host).or_default() += 1;
    }
    if let Some((host, _)) = hosts.first_key_value() {
        warnings.push(format!(
            "Invalid dates: {} on {}, the first is {host}, whose clock was wrong. The figures count, since no order in time is used; set \
             the clocks (NTP) before querying drift.",
            counted(hosts.values().sum(), "run"),
            counted(hosts.len() as u64, "host"),
        ));
    }
}

/// A series by the numbers of its texts (metric, unit, better, machine, variant, workload, settings), and its size.
pub type SeriesKey = ([u32; 7], Option<i64>);

/// A row of `figures`: texts and series by number.
pub struct Figure {
    pub run: u32,
    /// The number of the empty text where it is not known.
    pub host: u32,
    pub date: u32,
    pub series: u32,
    pub trial: u32,
    pub round: u32,
    pub value: f64,
}

/// A row of `facts`.
pub struct Fact {
    pub run: u32,
    pub name: u32,
    pub value: u32,
}

#[derive(Default)]
pub struct Part {
    pub texts: Texts,
    pub series: Vec<SeriesKey>,
    numbers: HashMap<SeriesKey, u32>,
    pub figures: Vec<Figure>,
    pub facts: Vec<Fact>,
    /// Files that are left out, with the reason.
    pub problems: Vec<(String, Problem)>,
    /// Figures without a logarithm: 0, negative, not finite, null.
    pub unusable: u64,
}

impl Part {
    pub fn read(figures: &[TableFile], facts: &[TableFile]) -> Part {
        let mut part = Part::default();
        for file in figures {
            part.file(file, |part, group| part.figures(file, group));
        }
        for file in facts {
            part.file(file, |part, group| part.facts(group));
        }
        part
    }

    /// A file whole or not at all: what a damaged one gave before its end is forgotten.
    fn file(
        &mut self,
        file: &TableFile,
        mut read: impl FnMut(&mut Part, &mut Group) -> Result<(), Problem>,
    ) {
        let before = (self.figures.len(), self.facts.len(), self.unusable);
        if let Err(problem) = for_each_group(&file.path, |group| read(self, group)) {
            self.figures.truncate(before.0);
            self.facts.truncate(before.1);
            self.unusable = before.2;
            self.problems
                .push((file.path.display().to_string(), problem));
        }
    }

    fn figures(&mut self, file: &TableFile, group: &mut Group) -> Result<(), Problem> {
        let texts = &mut self.texts;
        let mut needed = |name| group.needed_texts(name, texts);
        let (run, metric, machine) = (needed("run")?, needed("metric")?, needed("machine")?);
        let values = group.floats("value")?;
        let empty = texts.number("");
        let mut optional = |name| -> Result<Vec<u32>, Problem> {
            let found = group.texts(name, texts)?;
            Ok(found.unwrap_or_else(|| vec![empty; group.rows]))
        };
        let [unit, better, variant, workload, settings] =
            ["unit", "better", "variant", "workload", "settings"].map(&mut optional);
        let (unit, better, variant, workload, settings) =
            (unit?, better?, variant?, workload?, settings?);
        let host = match &file.host {
            Some(host) => vec![texts.number(host); group.rows],
            // Of a compacted file.
            None => optional("host")?,
        };
        let date = file.date.as_ref().map_or(empty, |date| texts.number(date));
        let sizes = group.longs("size")?;
        let (trials, rounds) = (group.longs("trial")?, group.longs("round")?);
        for (i, value) in values.into_iter().enumerate() {
            let Some(value) = value.filter(|v| v.is_finite() && *v > 0.0) else {
                self.unusable += 1;
                continue;
            };
            let size = sizes.as_ref().and_then(|all| all[i]);
            let texts = [
                &metric, &unit, &better, &machine, &variant, &workload, &settings,
            ];
            let key = (texts.map(|column| column[i]), size);
            let series = self.number_of_series(key);
            let number = |all: &Option<Vec<Option<i64>>>| u32::try_from(all.as_ref()?[i]?).ok();
            let trial = number(&trials).unwrap_or(self.figures.len() as u32);
            let round = number(&rounds).unwrap_or(trial);
            self.figures.push(Figure {
                run: run[i],
                host: host[i],
                date,
                series,
                trial,
                round,
                value,
            });
        }
        Ok(())
    }

    /// The number of a series, a new one where it is not known.
    fn number_of_series(&mut self, key: SeriesKey) -> u32 {
        let next = self.series.len() as u32;
        let series = *self.numbers.entry(key).or_insert(next);
        if series == next {
            self.series.push(key);
        }
        series
    }

    fn facts(&mut self, group: &mut Group) -> Result<(), Problem> {
        let texts = &mut self.texts;
        let mut needed = |name| group.needed_texts(name, texts);
        let (run, name, value) = (needed("run")?, needed("name")?, needed("value")?);
        let empty = texts.number("");
        let machine = group.texts("machine", texts)?;
        let variant = group.texts("variant", texts)?;
        for i in 0..group.rows {
            // Of a comparison's variants there are several values.
            if variant.as_ref().is_some_and(|all| all[i] != empty) {
                continue;
            }
            let of = machine.as_ref().map_or(empty, |all| all[i]);
            let name = if of == empty {
                name[i]
            } else {
                let name = format!("{} ({})", texts.get(name[i]), texts.get(of));
                texts.number(&name)
            };
            self.facts.push(Fact {
                run: run[i],
                name,
                value: value[i],
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
