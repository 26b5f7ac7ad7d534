//! `history`: a metric over the runs, and where it changed.

use crate::charts::series::{Series, change_label, extent, run_label, runs, series_label};
use crate::engine::{
    Block, Cell, Figure, Notice, Origin, Report, Section, Table, Tile, figures, words,
};
use crate::number::{NONE, counted, value};
use crate::text::{Joined, only_if, when};
use std::collections::BTreeMap;
use vmtax_analysis::FEWEST_RUNS;
use vmtax_model::{
    Change, FactChange, HistoryEntry, HistoryFindings, Metric, PastFigure, SeriesFindings,
};

/// Series that a terminal draws without details.
const DRAWN: usize = 6;

/// A metric over the runs. `notes`: what became of the history; `vmtax`: the version that draws it; `command`: what makes it
/// again.
pub fn report<'a>(
    findings: &'a HistoryFindings,
    notes: &[String],
    vmtax: &str,
    command: &str,
) -> Report<'a> {
    let metric = findings.metric;
    let runs = findings
        .series
        .iter()
        .flat_map(|s| &s.figures)
        .map(|f| f.run.started.as_str());
    let last = runs.max().unwrap_or_default();
    let changes = findings
        .series
        .iter()
        .flat_map(|s| s.changes.iter().enumerate().map(move |(i, c)| (s, i, c)));
    let tiles: Vec<Tile> = changes
        .map(|(series, i, change)| Tile {
            class: series.key.machine.as_str(),
            figure: change_label(change),
            text: format!(
                "{}. {}",
                series_label(series),
                sentence(i + 1, change, series, metric)
            ),
            limits: String::new(),
        })
        .collect();
    let about = [
        metric.to_string(),
        format!("until {}", when(last)),
        shared(findings),
    ];
    let more = findings.series.len().saturating_sub(DRAWN);
    let more = (more > 0)
        .then(|| format!("{more} more series: -o FILE plots all, --machine one machine's."));
    let more = more.map(|text| Section::new("", [Block::Text(text)]));
    let intro = "Each dot is the median over one run's rounds, its stroke the 95 % interval; runs from left to right in order \
                 of time. A dashed line is a change, a level line the median between changes; a ring is a run whose \
                 recording is gone.";
    Report {
        study: "history",
        title: format!("{} over the runs", metric.label()),
        basis: about.into_iter().filter(|part| !part.is_empty()).collect(),
        origin: Origin {
            vmtax: vmtax.to_owned(),
            started: last.to_owned(),
            command: command.to_owned(),
        },
        answer: answer(findings, tiles.len()),
        tiles,
        notices: vec![Notice::warnings(notes.to_vec())],
        sections: findings
            .series
            .iter()
            .enumerate()
            .map(|(i, series)| section(findings, series, i))
            .chain(more)
            .collect(),
        method: split(findings)
            .into_iter()
            .chain([intro.to_owned(), findings.method.clone()])
            .collect(),
        ..Report::default()
    }
}

/// Returns the number of changes, and the last of them.
fn answer(findings: &HistoryFindings, changes: usize) -> String {
    let label = findings.metric.label();
    let last_change = |series: &'_ SeriesFindings| {
        series
            .changes
            .last()
            .map(|change| (change.at, change_label(change)))
    };
    let last = findings
        .series
        .iter()
        .filter_map(|series| Some((series, last_change(series)?)));
    let last = last.max_by_key(|(series, (at, _))| {
        series
            .figures
            .get(*at)
            .map(|figure| figure.run.started.clone())
    });
    match last {
        None => format!(
            "{label} did not change significantly ({} series).",
            findings.series.len()
        ),
        Some((series, (at, label_of_change))) => {
            let run = series.figures.get(at).map_or(String::new(), |figure| {
                format!(" in run {}", figure.run.folder)
            });
            let count = counted(changes as u64, "time");
            format!(
                "{label} changed {count}; last{run}: {label_of_change} ({}).",
                series_label(series)
            )
        }
    }
}

fn section<'a>(
    findings: &'a HistoryFindings,
    series: &'a SeriesFindings,
    at: usize,
) -> Section<'a> {
    let conditions = conditions(series, &findings.series);
    let gap = only_if(!conditions.is_empty(), ": ");
    let unchanged = series.changes.is_empty().then(|| unchanged(series));
    let said = unchanged
        .into_iter()
        .chain(deleted(series))
        .map(Block::Text);
    let figure = Figure {
        caption: format!("{}.", extent(series)),
        ..Figure::new(Series {
            series,
            metric: findings.metric,
        })
    };
    let every = Block::folded("Every run", [table(series, findings)]);
    let blocks = [Block::Figures("wide", vec![figure])]
        .into_iter()
        .chain(said)
        .chain([every]);
    Section {
        detail: at >= DRAWN,
        ..Section::new(format!("{}{gap}{conditions}", series_label(series)), blocks)
    }
}

fn table(series: &SeriesFindings, findings: &HistoryFindings) -> Table {
    let unit = findings.metric.unit();
    let columns = vec![
        words("run").cut(24, 16),
        words("began").spare(2),
        figures("rounds"),
        figures("median"),
        figures("95 % interval").spare(1),
        words("changed since the run before").broken(24, 10),
    ];
    let mut table = Table::new(format!("Runs of {}", series_label(series)), columns);
    for (i, f) in series.figures.iter().enumerate() {
        let change = series.changes.iter().position(|c| c.at == i);
        let interval = f.value.interval;
        let mut otherwise: Vec<String> = change
            .map(|n| format!("change {}: {}", n + 1, change_label(&series.changes[n])))
            .into_iter()
            .collect();
        otherwise.extend(
            (i > 0)
                .then(|| others(&series.figures[i - 1], f))
                .filter(|text| !text.is_empty()),
        );
        let cells: Vec<Cell> = vec![
            run_label(&f.run).into(),
            when(&f.run.started).into(),
            f.n.to_string().into(),
            value(unit, f.value.median).into(),
            interval
                .map_or(NONE.to_owned(), |i| {
                    format!("{} to {}", value(unit, i.low), value(unit, i.high))
                })
                .into(),
            Cell {
                strong: change.is_some(),
                ..otherwise.join("\n").into()
            },
        ];
        if change.is_some() {
            table.first(cells)
        } else {
            table.row(cells)
        }
    }
    table
}

fn others(before: &PastFigure, after: &PastFigure) -> String {
    let differ = after
        .facts
        .iter()
        .filter(|(name, value)| before.facts.get(*name) != Some(value));
    differ
        .map(|(name, value)| format!("{name} {value}"))
        .joined("; ")
}

/// Makes the report of what the history has.
pub fn listing(entries: &[HistoryEntry], notes: &[String]) -> Report<'static> {
    let table = Table::of("Metrics of the runs", entries)
        .column(words("metric").cut(20, 14), |e| e.metric.to_string())
        .column(words("machine"), |e| e.machine.to_string())
        .figures(["runs", "series"], |e| {
            [e.runs, e.series].map(|n| n.to_string())
        })
        .column(words("first").spare(1), |e| when(&e.first))
        .column(words("last").spare(2), |e| when(&e.last));
    let note = "A series is what was measured under the same conditions: CPUs, variant, size, settings. \
                `vmtax history METRIC` draws a metric's.";
    let block = match entries.is_empty() {
        true => Block::Text("No run has left a figure yet: `vmtax run --quick` does.".to_owned()),
        false => Block::Table(table.done().notes(vec![note.to_owned()])),
    };
    Report {
        study: "history",
        title: "Metrics of the runs".to_owned(),
        notices: vec![Notice::warnings(notes.to_vec())],
        sections: vec![Section::new("", vec![block])],
        ..Report::default()
    }
}

/// Returns the conditions of a series that not all of them have; all conditions if there is one series alone.
fn conditions(series: &SeriesFindings, all: &[SeriesFindings]) -> String {
    let differs = |same: &dyn Fn(&SeriesFindings) -> bool| all.len() == 1 || !all.iter().all(same);
    let mut words = Vec::new();
    if differs(&|s| s.key.host == series.key.host) {
        words.push(series.key.host.clone());
    }
    for (name, setting) in &series.key.settings {
        if differs(&|s| s.key.settings.get(name) == Some(setting)) {
            words.push(format!("{name}={setting}"));
        }
    }
    words.join(", ")
}

/// Returns the conditions that all series have; empty for one alone, which names them itself.
fn shared(findings: &HistoryFindings) -> String {
    let [first, rest @ ..] = &findings.series[..] else {
        return String::new();
    };
    if rest.is_empty() {
        return String::new();
    }
    let mut words = Vec::new();
    if rest.iter().all(|s| s.key.host == first.key.host) {
        words.push(first.key.host.clone());
    }
    let common = |(name, setting): &(&String, &String)| {
        rest.iter()
            .all(|s| s.key.settings.get(*name) == Some(setting))
    };
    words.extend(
        first
            .key
            .settings
            .iter()
            .filter(common)
            .map(|(name, setting)| format!("{name}={setting}")),
    );
    words.join(", ")
}

/// That not everything is one series, and why.
fn split(findings: &HistoryFindings) -> Option<String> {
    let count = findings.series.len();
    let hosts: BTreeMap<&str, ()> = findings
        .series
        .iter()
        .map(|s| (s.key.host.as_str(), ()))
        .collect();
    let cpus = only_if(
        hosts.len() > 1,
        format!(" They are from {} kinds of CPUs.", hosts.len()),
    );
    (count > 1).then(|| {
        format!(
            "{count} series: figures of other CPUs, machines, variants, sizes or settings are not compared with each \
             other.{cpus}"
        )
    })
}

/// Returns a sentence for a series without a change.
fn unchanged(series: &SeriesFindings) -> String {
    let count = series.figures.len();
    if count < FEWEST_RUNS {
        return format!(
            "No change can be found in {} yet: it takes {FEWEST_RUNS}.",
            runs(count)
        );
    }
    let older = only_if(
        series.searched < count,
        format!(" in the last {}", runs(series.searched)),
    );
    format!("No change shown{older}.")
}

/// A change in a sentence.
fn sentence(number: usize, change: &Change, series: &SeriesFindings, metric: Metric) -> String {
    let first = series.figures.get(change.at);
    let (at, folder) = first.map_or((String::new(), NONE), |f| {
        (when(&f.run.started), f.run.folder.as_str())
    });
    let (before, after) = (
        value(metric.unit(), change.before),
        value(metric.unit(), change.after),
    );
    format!(
        "Change {number}, from `{folder}` on ({at}): {}, {before} to {after} (medians of {} before and {} after, p = {:.3}). {}",
        change_label(change),
        runs(change.runs_before),
        runs(change.runs_after),
        change.p,
        facts(change, series),
    )
}

fn facts(change: &Change, series: &SeriesFindings) -> String {
    if change.facts.is_empty() {
        return "No fact that is recorded changed with it: neither kernels nor QEMU nor vmtax. Check what else the host did, \
                its firmware, its neighbours."
            .to_owned();
    }
    let one = |f: &FactChange| {
        let text = |value: &Option<String>| value.as_deref().unwrap_or("unknown").to_owned();
        let run = series
            .figures
            .get(f.at)
            .map_or(NONE, |figure| figure.run.folder.as_str());
        let at = only_if(f.at != change.at, format!(" (from `{run}` on)"));
        format!("{} {} → {}{at}", f.fact, text(&f.before), text(&f.after))
    };
    format!(
        "With it changed: {}.",
        change.facts.iter().map(one).joined("; ")
    )
}

/// Returns the number of runs whose recordings are gone; `None` if all are there.
fn deleted(series: &SeriesFindings) -> Option<String> {
    let gone = series.figures.iter().filter(|f| !f.run.recorded).count();
    (gone > 0).then(|| {
        format!(
            "○: the recordings of {} are gone; their figures are kept.",
            runs(gone)
        )
    })
}
