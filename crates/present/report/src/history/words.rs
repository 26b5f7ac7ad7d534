//! What history is called, for terminal and page.

use crate::number::{NONE, factor, value};
use crate::view::when;
use std::collections::BTreeMap;
use vmtax_analysis::FEWEST_RUNS;
use vmtax_model::{Change, FactChange, HistoryFindings, Metric, PastRun, SeriesFindings};

/// Where: "tcg, aio=native, seqread.depth=8".
pub fn place(series: &SeriesFindings) -> String {
    let key = &series.key;
    let words = [key.machine.as_str(), &key.variant, &key.rung];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ")
}

/// What a series was measured under that not all of them were; everything, where there is one alone.
pub fn conditions(series: &SeriesFindings, all: &[SeriesFindings]) -> String {
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

/// What all series were measured under; empty for one alone, which says it itself.
pub fn shared(findings: &HistoryFindings) -> String {
    let [first, rest @ ..] = &findings.series[..] else { return String::new() };
    if rest.is_empty() {
        return String::new();
    }
    let mut words = Vec::new();
    if rest.iter().all(|s| s.key.host == first.key.host) {
        words.push(first.key.host.clone());
    }
    let common = |(name, setting): &(&String, &String)| rest.iter().all(|s| s.key.settings.get(*name) == Some(setting));
    words.extend(first.key.settings.iter().filter(common).map(|(name, setting)| format!("{name}={setting}")));
    words.join(", ")
}

/// That not everything is one series, and why.
pub fn split(findings: &HistoryFindings) -> Option<String> {
    let count = findings.series.len();
    let hosts: BTreeMap<&str, ()> = findings.series.iter().map(|s| (s.key.host.as_str(), ())).collect();
    let processors =
        if hosts.len() > 1 { format!(" They are from {} kinds of processors.", hosts.len()) } else { String::new() };
    (count > 1).then(|| {
        format!(
            "{count} series: figures of other processors, machines, variants, sizes or settings are not held against each \
             other.{processors}"
        )
    })
}

/// "16 runs, 2026-11-20 14:02 UTC to 2026-11-21 09:10 UTC".
pub fn extent(series: &SeriesFindings) -> String {
    let (Some(first), Some(last)) = (series.figures.first(), series.figures.last()) else { return String::new() };
    let runs = runs(series.figures.len());
    match series.figures.len() {
        1 => format!("{runs}, {}", when(&first.run.started)),
        _ => format!("{runs}, {} to {}", when(&first.run.started), when(&last.run.started)),
    }
}

/// "1 run", "8 runs".
pub fn runs(count: usize) -> String {
    format!("{count} run{}", if count == 1 { "" } else { "s" })
}

/// What may be said where there is no change.
pub fn unchanged(series: &SeriesFindings) -> String {
    let count = series.figures.len();
    if count < FEWEST_RUNS {
        return format!("No change can be told from {} yet: it takes {FEWEST_RUNS}.", runs(count));
    }
    let older = if series.searched < count { format!(" in the last {}", runs(series.searched)) } else { String::new() };
    format!("No change shown{older}.")
}

/// "×1.25 slower", "×1.25 faster".
pub fn size(change: &Change) -> String {
    match change.ratio {
        None => NONE.to_owned(),
        Some(r) if r >= 1.0 => format!("×{} slower", factor(r)),
        Some(r) => format!("×{} faster", factor(1.0 / r)),
    }
}

/// A change in a sentence.
pub fn sentence(number: usize, change: &Change, series: &SeriesFindings, metric: Metric) -> String {
    let first = series.figures.get(change.at);
    let (at, folder) = first.map_or((String::new(), NONE), |f| (when(&f.run.started), f.run.folder.as_str()));
    let (before, after) = (value(metric.unit(), change.before), value(metric.unit(), change.after));
    format!(
        "Change {number}, from `{folder}` on ({at}): {}, {before} to {after} (medians of {} before and {} after, p = {:.3}). {}",
        size(change),
        runs(change.runs_before),
        runs(change.runs_after),
        change.p,
        facts(change, series),
    )
}

fn facts(change: &Change, series: &SeriesFindings) -> String {
    if change.facts.is_empty() {
        return "No fact that is recorded changed with it: neither kernels nor QEMU nor vmtax. Look at what else the host did, \
                its firmware, its neighbours."
            .to_owned();
    }
    let one = |f: &FactChange| {
        let text = |value: &Option<String>| value.as_deref().unwrap_or("unknown").to_owned();
        let run = series.figures.get(f.at).map_or(NONE, |figure| figure.run.folder.as_str());
        let at = if f.at == change.at { String::new() } else { format!(" (from `{run}` on)") };
        format!("{} {} → {}{at}", f.fact, text(&f.before), text(&f.after))
    };
    format!("With it changed: {}.", change.facts.iter().map(one).collect::<Vec<_>>().join("; "))
}

/// How many runs' recordings are gone.
pub fn deleted(series: &SeriesFindings) -> Option<String> {
    let gone = series.figures.iter().filter(|f| !f.run.recorded).count();
    (gone > 0).then(|| format!("○: the recordings of {} are gone; their figures are kept.", runs(gone)))
}

/// A run, with a mark where its recording is gone.
pub fn run(run: &PastRun) -> String {
    let gone = if run.recorded { "" } else { " (deleted)" };
    format!("{}{gone}", run.folder)
}
