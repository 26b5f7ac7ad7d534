//! `history`: a metric over the runs, and where it changed.

use crate::charts::series::{Series, change_label, extent, run_label, runs, series_label};
use crate::engine::{
    Block, Cell, Figure, Notice, Origin, Report, Section, Table, Tile, figures, words,
};
use crate::number::{NONE, counted, value};
use crate::text::{Joined, only_if, when};
use std::collections::BTreeSet;
use vmtax_analysis::FEWEST_RUNS;
use vmtax_findings::{
    Change, FactChange, HistoryEntry, HistoryFindings, PastFigure, SeriesFindings,
};
use vmtax_model::Metric;

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
    let figures = findings.series.iter().flat_map(|series| &series.figures);
    let last = figures
        .map(|figure| figure.run.started.as_str())
        .max()
        .unwrap_or_default();
    let tiles: Vec<Tile> = findings
        .series
        .iter()
        .flat_map(|one| tiles(one, metric))
        .collect();
    let about = [
        metric.to_string(),
        format!("until {}", when(last)),
        shared(findings),
    ];
    let more = findings.series.len().saturating_sub(DRAWN);
    let more_text =
        format!("{more} more series: -o FILE plots all, --machine those of one machine.");
    let more = (more > 0).then(|| Section::new("", [Block::Text(more_text)]));
    let sections = findings.series.iter().enumerate();
    let sections = sections.map(|(i, series)| section(findings, series, i));
    let intro = "Each dot is the median over one run's rounds, its error bar the 95 % interval; runs from left to right in order \
                 of time. A dashed line is a change, a level line the median between changes; a ring is a run whose \
                 recording was deleted.";
    let method = split(findings).into_iter();
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
        sections: sections.chain(more).collect(),
        method: method
            .chain([intro.to_owned(), findings.method.clone()])
            .collect(),
        ..Report::default()
    }
}

/// A tile for each change of a series.
fn tiles(series: &SeriesFindings, metric: Metric) -> impl Iterator<Item = Tile> + '_ {
    series.changes.iter().enumerate().map(move |(i, change)| {
        let (label, sentence) = (
            series_label(series),
            sentence(i + 1, change, series, metric),
        );
        Tile {
            class: series.key.machine.as_str(),
            figure: change_label(change),
            text: format!("{label}. {sentence}"),
            limits: String::new(),
        }
    })
}

/// Returns the number of changes, and the last of them.
fn answer(findings: &HistoryFindings, changes: usize) -> String {
    let label = findings.metric.label();
    let last = findings.series.iter().filter_map(|series| {
        let change = series.changes.last()?;
        Some((
            series,
            change,
            series.figures.get(change.at).map(|figure| &figure.run),
        ))
    });
    let last = last.max_by_key(|(.., run)| run.map(|run| &run.started));
    let Some((series, change, run)) = last else {
        return unchanged_metric(findings);
    };
    let run = run.map_or(String::new(), |run| format!(" in run {}", run.folder));
    let count = counted(changes as u64, "time");
    let (change, place) = (change_label(change), series_label(series));
    format!("{label} changed {count}; last{run}: {change} ({place}).")
}

/// The answer about a metric without a change: that it has none, or that it has too few runs to find one.
fn unchanged_metric(findings: &HistoryFindings) -> String {
    let label = findings.metric.label();
    let (all, most) = (&findings.series, most_runs(findings));
    if most < FEWEST_RUNS {
        let runs = match all.as_slice() {
            [_] => runs(most),
            _ => format!("at most {} in each of {} series", runs(most), all.len()),
        };
        return format!("{label}: {runs}, too few to find a change ({FEWEST_RUNS} needed).");
    }
    let short = all
        .iter()
        .filter(|series| series.figures.len() < FEWEST_RUNS);
    let short = match short.count() {
        0 => String::new(),
        n => format!("; {n} of them with too few runs to find a change"),
    };
    format!(
        "{label} did not change significantly ({} series{short}).",
        all.len()
    )
}

/// Runs of the series that has most.
fn most_runs(findings: &HistoryFindings) -> usize {
    let runs = findings.series.iter().map(|series| series.figures.len());
    runs.max().unwrap_or_default()
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
    let metric = findings.metric;
    let figure = Figure {
        caption: format!("{}.", extent(series)),
        ..Figure::new(Series { series, metric })
    };
    let every = Block::folded("Every run", [table(series, findings)]);
    let drawn = [Block::Figures("wide", vec![figure])].into_iter();
    let blocks = drawn.chain(said).chain([every]);
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
        let interval = f.value.interval.map_or(NONE.to_owned(), |i| {
            format!("{} to {}", value(unit, i.low), value(unit, i.high))
        });
        let changed =
            change.map(|n| format!("change {}: {}", n + 1, change_label(&series.changes[n])));
        let others = (i > 0).then(|| others(&series.figures[i - 1], f));
        let others = others.filter(|text| !text.is_empty());
        let strong = change.is_some();
        let cells: Vec<Cell> = vec![
            run_label(&f.run).into(),
            when(&f.run.started).into(),
            f.n.to_string().into(),
            value(unit, f.value.median).into(),
            interval.into(),
            Cell {
                strong,
                ..changed.into_iter().chain(others).joined("\n").into()
            },
        ];
        match strong {
            true => table.first(cells),
            false => table.row(cells),
        }
    }
    table
}

fn others(before: &PastFigure, after: &PastFigure) -> String {
    let facts = after.facts.iter();
    let differ = facts.filter(|(name, value)| before.facts.get(*name) != Some(value));
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
                `vmtax history METRIC` plots one metric.";
    let block = match entries.is_empty() {
        true => Block::Text(
            "No run with metrics yet (recordings of running VMs have none): `vmtax run --quick` adds one."
                .to_owned(),
        ),
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
    let key = &first.key;
    let common = |(name, setting): &(&String, &String)| {
        rest.iter()
            .all(|s| s.key.settings.get(*name) == Some(setting))
    };
    let host = rest
        .iter()
        .all(|s| s.key.host == key.host)
        .then(|| key.host.clone());
    let settings = key.settings.iter().filter(common);
    let settings = settings.map(|(name, setting)| format!("{name}={setting}"));
    only_if(
        !rest.is_empty(),
        host.into_iter().chain(settings).joined(", "),
    )
}

/// That not everything is one series, and why.
fn split(findings: &HistoryFindings) -> Option<String> {
    let count = findings.series.len();
    let hosts: BTreeSet<&str> = findings
        .series
        .iter()
        .map(|s| s.key.host.as_str())
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
        let runs = runs(count);
        return format!("{runs}: too few to find a change ({FEWEST_RUNS} needed).");
    }
    let older = only_if(
        series.searched < count,
        format!(" in the last {}", runs(series.searched)),
    );
    format!("No significant change{older}.")
}

/// A change in a sentence.
fn sentence(number: usize, change: &Change, series: &SeriesFindings, metric: Metric) -> String {
    let first = series.figures.get(change.at);
    let (at, folder) = first.map_or((String::new(), NONE), |f| {
        (when(&f.run.started), f.run.folder.as_str())
    });
    let [before, after] = [change.before, change.after].map(|v| value(metric.unit(), v));
    let [runs_before, runs_after] = [change.runs_before, change.runs_after].map(runs);
    let (label, p, facts) = (change_label(change), change.p, facts(change, series));
    format!(
        "Change {number}, from `{folder}` on ({at}): {label}, {before} to {after} (medians of {runs_before} before and {runs_after} after, p = {p:.3}). {facts}"
    )
}

fn facts(change: &Change, series: &SeriesFindings) -> String {
    if change.facts.is_empty() {
        return "No recorded property (fact) changed with it: neither kernels nor QEMU nor vmtax. Check other load on the host, \
                its firmware, and, in a VM, its neighbors."
            .to_owned();
    }
    let one = |f: &FactChange| {
        let [before, after] =
            [&f.before, &f.after].map(|value| value.as_deref().unwrap_or("unknown"));
        let figure = series.figures.get(f.at);
        let run = figure.map_or(NONE, |figure| figure.run.folder.as_str());
        let at = only_if(f.at != change.at, format!(" (from `{run}` on)"));
        format!("{} {before} → {after}{at}", f.fact)
    };
    let facts = change.facts.iter().map(one).joined("; ");
    format!("With it changed: {facts}.")
}

/// Returns the number of runs whose recordings are gone; `None` if all are there.
fn deleted(series: &SeriesFindings) -> Option<String> {
    let gone = series.figures.iter().filter(|f| !f.run.recorded).count();
    let runs = runs(gone);
    let recordings = if gone == 1 { "recording" } else { "recordings" };
    (gone > 0).then(|| format!("○: {recordings} of {runs} deleted; figures kept."))
}
