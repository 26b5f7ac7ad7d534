//! `tune`: which changes helped, and by how much, of a running VM and of a guest that was booted for it.

pub mod guest;
pub mod vm;

use crate::charts::bars::{Pair, Pairs};
use crate::engine::{
    Block, Cell, Figure, Filled, Notice, Section, Table, Tone, alike, figures, words,
};
use crate::number::{self, NONE, bytes, counted, nanoseconds, percent, significant};
use crate::text::{Joined, only_if};
use crate::view::verdict::interval;
use std::collections::BTreeMap;
use vmtax_findings::{BeforeAfter, Comparison, TuneOutcome, TuneRow, TuneVerdict, Verdict};
use vmtax_model::{NotTried, Tried};

/// Returns what `kept` says of the changes that are kept and of their gain in all; else that nothing is, with a `bound` of what
/// the changes may save.
fn answer<C>(
    subject: &str,
    found: &TuneOutcome<C>,
    bound: &str,
    kept: impl FnOnce(&Comparison, Vec<&TuneRow<C>>) -> String,
) -> String {
    let rows: Vec<&TuneRow<C>> = found.kept().collect();
    if let Some(total) = found.total.filter(|_| !rows.is_empty()) {
        return kept(&total, rows);
    }
    let is_measured = |row: &&TuneRow<C>| row.screening.is_some();
    let measured: Vec<&TuneRow<C>> = found.candidates.iter().filter(is_measured).collect();
    // Time may have ended before anything was known of a change.
    let is_open = |row: &&TuneRow<C>| row.verdict == TuneVerdict::Inconclusive;
    let none = match (measured.len(), measured.iter().all(is_open)) {
        (0, _) => "no change was measured".to_owned(),
        (1, true) => "the change that was tried has no conclusive result".to_owned(),
        (n, true) => format!("none of {n} changes has a conclusive result"),
        (1, false) => "the change that was tried did not measurably help".to_owned(),
        (n, false) => format!("none of {n} changes measurably helped"),
    };
    format!("{subject}: {none}{bound}; nothing is kept.")
}

/// "time per operation ×0.418 (95 % CI 0.277–0.455)".
fn gain(comparison: &Comparison) -> String {
    let ratio = &comparison.ratio;
    let ci = ratio.interval.as_ref();
    let ci = ci.map_or(String::new(), |i| {
        format!(" (95\u{a0}% CI {})", number::range(i))
    });
    format!("time per operation {}{ci}", number::ratio(ratio.median))
}

/// "fell from 46.0 ms to 881 µs".
fn course(before: f64, after: f64, text: impl Fn(f64) -> String) -> String {
    let direction = if after < before { "fell" } else { "rose" };
    format!("{direction} from {} to {}", text(before), text(after))
}

/// Returns notes, what was not tried, and warnings, of which the last says why the run ended early.
fn notices<C>(
    found: &TuneOutcome<C>,
    mut notes: Vec<Notice>,
    mut warnings: Vec<String>,
) -> Vec<Notice> {
    let ended = found.ended.iter();
    warnings.extend(ended.map(|why| format!("{}.", capitalized(why.trim_end_matches('.')))));
    notes.extend([
        Notice::notes("Not tried", not_tried(&found.not_tried)),
        Notice::warnings(warnings),
    ]);
    notes
}

/// Returns the remedies that were not tried, those of one finding behind it: a remedy alone may say "the thread".
fn not_tried(all: &[NotTried]) -> Vec<String> {
    let remedy = |one: &NotTried| {
        let line = only_if(!one.line.is_empty(), format!(": `{}`", one.line));
        format!("{}: {}{line}", one.action, one.why)
    };
    let is_of_same = |a: &NotTried, b: &NotTried| !a.finding.is_empty() && a.finding == b.finding;
    let item = |of_finding: &[NotTried]| {
        let remedies = of_finding.iter().map(remedy).joined(". ");
        let is_sentence = of_finding.last().is_none_or(|last| last.line.is_empty());
        let end = only_if(is_sentence, ".");
        match of_finding.first().map_or("", |one| &one.finding) {
            "" => format!("{remedies}{end}"),
            finding => format!("{finding} {remedies}{end}"),
        }
    };
    all.chunk_by(is_of_same).map(item).collect()
}

/// A sentence's beginning; names of settings stay as they are.
fn capitalized(text: &str) -> String {
    let word = text.split(' ').next().unwrap_or_default();
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if !word.contains('=') => first.to_uppercase().chain(letters).collect(),
        _ => text.to_owned(),
    }
}

/// Begins the table of the changes.
fn changes<C: Tried>(found: &TuneOutcome<C>) -> Filled<&TuneRow<C>> {
    let name = |row: &&TuneRow<C>| row.candidate.name().to_owned();
    Table::of("Changes", &found.candidates).column(words("change").broken(28, 16), name)
}

/// Adds what was measured of each change, in so many pairs or rounds (`unit`), and its result.
fn measured<'a, C>(table: Filled<&'a TuneRow<C>>, unit: &'static str) -> Filled<&'a TuneRow<C>> {
    let ratio = |name| figures(name).broken(16, 12);
    table
        .column(ratio("screening"), move |row| {
            of_ratio(row.screening.as_ref(), unit)
        })
        .column(ratio("confirmation"), move |row| {
            of_ratio(row.confirmation.as_ref(), unit)
        })
        .column(words("result"), |row| result(row))
}

/// A measurement of a change, in so many pairs or rounds (`unit`).
fn of_ratio(comparison: Option<&Comparison>, unit: &str) -> String {
    comparison.map_or(NONE.to_owned(), |found| {
        let range = match found.ratio.interval {
            Some(_) => interval(&found.ratio),
            None => counted(found.rounds.into(), unit),
        };
        format!("{} ({range})", number::ratio(found.ratio.median))
    })
}

/// The cell of a change's result.
fn result<C>(row: &TuneRow<C>) -> Cell {
    let tone = match row.verdict {
        TuneVerdict::Keep => Tone::Good,
        TuneVerdict::Reject => Tone::Bad,
        TuneVerdict::Refused => Tone::Warn,
        TuneVerdict::Inconclusive | TuneVerdict::NotMeasured => Tone::Soft,
    };
    // Inconclusive is what ran out of time; what was left out for a reason, which a note gives, was stopped early.
    let text = match (row.verdict, &row.why) {
        (TuneVerdict::Inconclusive, Some(_)) => "stopped early".to_owned(),
        (verdict, _) => verdict.to_string(),
    };
    Cell::from(text).tone(tone)
}

/// Meaning of the ratios of the changes, each the median of so many pairs or rounds (`unit`).
fn of_ratios(unit: &str) -> String {
    format!(
        "Time per operation with the change ÷ without it (for a rate, inverted): the median of the {unit}s' ratios, 95 % CI; below ×1 \
         is faster."
    )
}

/// Returns the notes below the table of the changes: the `meaning` of its columns, on top of which others they were screened, `more`,
/// and why they are not kept.
fn notes<C: Tried>(found: &TuneOutcome<C>, meaning: String, more: Option<String>) -> Vec<String> {
    let mut beside: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in &found.candidates {
        if let Some(others) = &row.beside {
            let names = beside.entry(others).or_default();
            names.push(row.candidate.name());
        }
    }
    let beside = beside
        .into_iter()
        .map(|(others, names)| format!("Screened on top of {others}: {}.", names.join(", ")));
    let why = |row: &TuneRow<C>| {
        let why = row.why.as_ref()?.trim_end_matches('.');
        Some(format!("{}: {why}.", row.candidate.name()))
    };
    let whys = found.candidates.iter().filter_map(why);
    let first = [meaning].into_iter().chain(beside);
    first.chain(more).chain(whys).collect()
}

/// A figure in its unit.
fn value(row: &BeforeAfter, value: f64) -> String {
    match row.unit.as_str() {
        "ns" => nanoseconds(value),
        "fraction" => percent(value),
        "bytes per second" => format!("{}/s", bytes(value as u64)),
        _ => format!("{}/s", significant(value)),
    }
}

const BLKAVG: &str = "BLKAVG: mean time in QEMU's block layer and below (query-blockstats).";

/// Returns a warning for each figure that is shown to be worse with what is kept.
fn guards_that_cost(rows: &[BeforeAfter]) -> impl Iterator<Item = String> + '_ {
    with_verdict(rows, Verdict::Slower).map(|row| {
        format!(
            "The kept changes make another metric worse: {}, {}.",
            row.name,
            arrow(row)
        )
    })
}

/// Returns a note for each figure that is shown to differ with what is kept, and of which neither direction is better.
fn differing(rows: &[BeforeAfter]) -> Vec<String> {
    let text = |row: &BeforeAfter| format!("{} changes: {}.", capitalized(&row.name), arrow(row));
    with_verdict(rows, Verdict::Differs).map(text).collect()
}

fn with_verdict(rows: &[BeforeAfter], verdict: Verdict) -> impl Iterator<Item = &BeforeAfter> {
    let has_it = move |found: Comparison| found.verdict == verdict;
    rows.iter()
        .filter(move |row| row.comparison.is_some_and(has_it))
}

/// "5.9 % → 13 %".
fn arrow(row: &BeforeAfter) -> String {
    let [before, after] = [row.before, row.after].map(|median| value(row, median));
    format!("{before} → {after}")
}

/// Figures without and with what is kept; `None` where there are none.
fn before_after<'a>(title: &'static str, rows: &[BeforeAfter]) -> Option<Section<'a>> {
    let of_comparison = |row: &BeforeAfter, text: fn(&Comparison) -> String| {
        row.comparison.as_ref().map_or(NONE.to_owned(), text)
    };
    let note =
        "Medians of the measurements; ratio: the median of the paired ratios, with ÷ without.";
    let has_blkavg = rows.iter().any(|row| row.name.contains("BLKAVG"));
    let blkavg = has_blkavg.then_some(BLKAVG);
    let table = Table::of(title, rows)
        .column(words("metric"), |row| row.name.clone())
        .column(figures("without"), |row| value(row, row.before))
        .column(figures("with"), |row| value(row, row.after))
        .column(figures("ratio"), |row| {
            of_comparison(row, |found| number::ratio(found.ratio.median))
        })
        .column(figures("95 % CI").spare(2), |row| {
            of_comparison(row, |found| interval(&found.ratio))
        })
        .done()
        .of_metrics()
        .notes(
            [note]
                .into_iter()
                .chain(blkavg)
                .map(str::to_owned)
                .collect(),
        );
    let pairs = Figure::new(Pairs(rows.iter().map(pair).collect()));
    let blocks: [Block<'_>; 2] = [pairs.into(), table.into()];
    (!rows.is_empty()).then(|| Section::new(title, blocks))
}

/// A row as two bars.
fn pair(row: &BeforeAfter) -> Pair {
    let values = [row.before, row.after];
    let texts = alike(&values.map(|one| value(row, one)));
    let mut texts = texts.into_iter();
    Pair {
        name: row.name.clone(),
        values,
        texts: [(); 2].map(|()| texts.next().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_begins_with_a_capital_unless_a_setting_does() {
        assert_eq!(capitalized("without a limit"), "Without a limit");
        assert_eq!(capitalized("cache=none"), "cache=none");
        assert_eq!(capitalized(""), "");
    }

    #[test]
    fn remedies_that_were_not_tried_are_behind_their_finding() {
        let untried = |finding: &str, action: &str, line: &str| NotTried {
            finding: finding.to_owned(),
            action: action.to_owned(),
            line: line.to_owned(),
            why: "set it yourself".to_owned(),
        };
        let waits = "The main loop (TID 7) waits.";
        let all = [
            untried(waits, "Pin the thread", "taskset 7"),
            untried(waits, "Stop others", ""),
            untried("", "Pin", ""),
            untried("", "Pin", ""),
        ];
        assert_eq!(
            not_tried(&all),
            [
                "The main loop (TID 7) waits. Pin the thread: set it yourself: `taskset 7`. Stop others: set it yourself.",
                "Pin: set it yourself.",
                "Pin: set it yourself."
            ]
        );
    }
}
