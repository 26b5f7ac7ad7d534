//! The reproduction of a published result: how many of its claims are reproduced, before the report of what was measured.

use crate::engine::{Block, Cell, Report, Section, Table, Tile, Tone, words};
use crate::number::{NONE, counted, nanoseconds, percent, ratio, significant};
use crate::text::Joined;
use crate::{ReportError, plain_json, view};
use serde_json::Value;
use std::collections::BTreeSet;
use vmtax_findings::{ClaimRow, ClaimUnit, ClaimVerdict, ReproductionFindings};
use vmtax_recording::Recording;

/// Puts the published result and the verdicts before the report of what was measured for it, whose answer becomes a tile.
pub fn put_first(report: &mut Report, case: &ReproductionFindings, recording: &Recording) {
    let own = std::mem::replace(&mut report.answer, answer(case));
    if !own.is_empty() {
        let tile = Tile {
            class: "open",
            text: own,
            ..Tile::default()
        };
        report.tiles.insert(0, tile);
    }
    report.title = format!("Reproduction of {}", case.title);
    report.basis.insert(0, case.source.clone());
    let rounds: BTreeSet<u32> = recording.trials.iter().map(|trial| trial.round).collect();
    let rounds = rounds.len() as u32;
    if let Some(more) = case.rows.iter().filter_map(|row| row.rounds_needed).max() {
        let again = view::with_rounds(recording, rounds + more);
        report.next = again.into_iter().collect();
    }
    let claim = Block::Text(format!("Published: {}", case.claim));
    let claims = Section::new("Claims", [claim, claims_table(case, recording).into()]);
    report.sections.insert(0, claims);
}

/// Makes the table of the claims, each with its figures, its result and the basis of it.
fn claims_table(case: &ReproductionFindings, recording: &Recording) -> Table {
    let shared = needed_by_all(&case.rows);
    let shared = shared.as_deref();
    let all = case.rows.iter().flat_map(|row| notes(row, recording));
    let all: BTreeSet<&str> = all.collect();
    let verdict = |row: &&ClaimRow| Cell::from(word(row.verdict)).tone(tone(row.verdict));
    Table::of("Claims of the published result", &case.rows)
        .column(words("claim").broken(20, 12), |row| row.what.as_str())
        .column(words("published").broken(12, 8), |row| {
            row.published.as_str()
        })
        .column(words("measured").broken(16, 10), |row| {
            Cell::strong(measured(row))
        })
        .column(words("result").broken(14, 10), verdict)
        .column(words("criterion").broken(20, 10), |row| {
            let needs = match needed(row) {
                Some(text) if shared.is_none() => format!("; {text}"),
                _ => String::new(),
            };
            with_marks(row.why.clone() + &needs, &notes(row, recording), &all)
        })
        .done()
        .notes(below_claims(case, shared, &all))
}

/// Appends to a text the numbers that its own notes have among all.
fn with_marks(text: String, own: &BTreeSet<&str>, all: &BTreeSet<&str>) -> String {
    let marks = all
        .iter()
        .enumerate()
        .filter(|(_, note)| own.contains(*note));
    marks.fold(text, |text, (i, _)| format!("{text} (note {})", i + 1))
}

/// Returns the notes below the claims: the need that they share, limits of the figures, and the trials' notes by number.
fn below_claims(
    case: &ReproductionFindings,
    shared: Option<&str>,
    all: &BTreeSet<&str>,
) -> Vec<String> {
    let without = case.rows.iter().any(|row| {
        row.verdict == ClaimVerdict::Inconclusive
            && row.measured.is_some_and(|figure| figure.interval.is_none())
    });
    let fewest = vmtax_model::FEWEST_ROUNDS;
    let without = without.then(|| format!("A figure has no interval below {fewest} rounds."));
    let shared = shared.map(|text| format!("Inconclusive claims: {text}."));
    let said_once = shared.into_iter().chain(without);
    let numbered = (1..).zip(all).map(|(i, note)| format!("Note {i}: {note}."));
    let paired = "Measured ratios (×): the median of the rounds' ratios (paired).".to_owned();
    said_once.chain([paired]).chain(numbered).collect()
}

/// Returns the number of claims with each result, and of all claims.
fn answer(case: &ReproductionFindings) -> String {
    use ClaimVerdict::{Inconclusive, NotReproduced, NotTestable, Reproduced};
    let counts = [Reproduced, NotReproduced, Inconclusive, NotTestable].into_iter();
    let counts = counts.filter_map(|verdict| {
        let rows = case
            .rows
            .iter()
            .filter(|row| row.verdict == verdict)
            .count();
        (rows > 0).then(|| format!("{rows} {}", word(verdict)))
    });
    let all = counted(case.rows.len() as u64, "claim");
    format!("{}: of {all} {}.", case.name, counts.joined(", "))
}

/// Returns the number of further rounds that would decide an inconclusive claim, or that more rounds are not likely
/// to; `None` for any other claim.
fn needed(row: &ClaimRow) -> Option<String> {
    match (row.verdict, row.rounds_needed) {
        (ClaimVerdict::Inconclusive, Some(n)) => {
            let rounds = counted(u64::from(n), "round");
            Some(format!("about {rounds} more would decide"))
        }
        (ClaimVerdict::Inconclusive, None) => {
            Some("more rounds are not likely to decide".to_owned())
        }
        _ => None,
    }
}

/// Returns the common need of all claims that are inconclusive; `None` if it differs, or if there are fewer than two.
fn needed_by_all(rows: &[ClaimRow]) -> Option<String> {
    let all: Vec<String> = rows.iter().filter_map(needed).collect();
    let (first, others) = all.split_first()?;
    (!others.is_empty() && others.iter().all(|other| other == first)).then(|| first.clone())
}

/// Returns the notes of the trials of a claim's workload.
fn notes<'a>(row: &ClaimRow, recording: &'a Recording) -> BTreeSet<&'a str> {
    let workload = row.metric.map(|metric| metric.workload());
    let trials = recording.trials.iter();
    let trials = trials.filter(|trial| Some(trial.workload.name) == workload);
    let results = trials.filter_map(|trial| trial.result());
    results
        .flat_map(|result| &result.notes)
        .map(String::as_str)
        .collect()
}

/// A report's JSON with the reproduction beside its findings.
///
/// # Errors
/// [`ReportError::Json`] for what has no form as JSON.
pub fn into_json(document: &str, case: &ReproductionFindings) -> Result<String, ReportError> {
    let mut value: Value = serde_json::from_str(document)?;
    value["case"] = serde_json::to_value(case)?;
    plain_json(&value)
}

fn measured(row: &ClaimRow) -> String {
    let Some(figure) = row.measured else {
        return NONE.to_owned();
    };
    let text = |v: f64| match row.unit {
        ClaimUnit::Ratio => ratio(v),
        ClaimUnit::Nanoseconds if v < 0.0 => format!("−{}", nanoseconds(-v)),
        ClaimUnit::Nanoseconds => nanoseconds(v),
        ClaimUnit::Percent => percent(v / 100.0),
        ClaimUnit::Count => format!("{} exits saved per operation", significant(v)),
        ClaimUnit::Exponent => format!("n^{v:.1}"),
    };
    let interval = figure.interval.map_or(String::new(), |i| {
        format!(" (95 % CI {} to {})", text(i.low), text(i.high))
    });
    format!("{}{interval}", text(figure.median))
}

fn tone(verdict: ClaimVerdict) -> Tone {
    match verdict {
        ClaimVerdict::Reproduced => Tone::Good,
        ClaimVerdict::NotReproduced => Tone::Bad,
        ClaimVerdict::Inconclusive | ClaimVerdict::NotTestable => Tone::Soft,
    }
}

fn word(verdict: ClaimVerdict) -> &'static str {
    match verdict {
        ClaimVerdict::Reproduced => "reproduced",
        ClaimVerdict::NotReproduced => "not reproduced",
        ClaimVerdict::Inconclusive => "inconclusive",
        ClaimVerdict::NotTestable => "not testable",
    }
}

#[cfg(test)]
mod tests {
    use super::needed_by_all;
    use vmtax_findings::{ClaimRow, ClaimUnit, ClaimVerdict};

    fn row(verdict: ClaimVerdict, rounds_needed: Option<u32>) -> ClaimRow {
        let (what, published, why) = (String::new(), String::new(), String::new());
        ClaimRow {
            what,
            published,
            measured: None,
            unit: ClaimUnit::Ratio,
            verdict,
            why,
            rounds_needed,
            metric: None,
        }
    }

    #[test]
    fn what_all_inconclusive_claims_need_is_said_once() {
        use ClaimVerdict::{Inconclusive, Reproduced};
        let (three, four) = (row(Inconclusive, Some(3)), row(Inconclusive, Some(4)));
        let done = row(Reproduced, None);
        let same = [three.clone(), done.clone(), three.clone()];
        assert_eq!(
            needed_by_all(&same).unwrap(),
            "about 3 rounds more would decide"
        );
        assert_eq!(
            needed_by_all(&[three.clone(), four]),
            None,
            "each needs its own"
        );
        assert_eq!(
            needed_by_all(&[three, done.clone()]),
            None,
            "one alone says it itself"
        );
        assert_eq!(needed_by_all(&[done]), None);
    }
}
