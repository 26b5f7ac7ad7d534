//! A published result beside what was measured, and the verdict: above everything else that a recording says.

use crate::ReportError;
use crate::engine::{Block, Cell, Column, Report, Section, Table, Tile, Tone};
use crate::number::{NONE, nanoseconds, percent, ratio, significant};
use serde_json::Value;
use vmtax_model::{ClaimRow, ClaimUnit, ClaimVerdict, ReproductionFindings};

/// Puts the published result and the verdict before the report of what was measured for it.
pub fn put_first(report: &mut Report, case: &ReproductionFindings) {
    let (_, class) = tone(case.verdict);
    let verdict = word(case.verdict);
    let tile = Tile {
        class,
        figure: format!("Verdict: {verdict}"),
        text: format!("{}: {} Verdict: {verdict}.", case.title, case.claim),
        limits: format!("Case {}, published in {}.", case.name, case.source),
    };
    report.tiles.insert(0, tile);
    let table = Table::of("Claims of the published result", &case.rows)
        .column(Column::words("claim").broken(20, 12), |row| row.what.as_str())
        .column(Column::words("published").broken(12, 8), |row| row.published.as_str())
        .column(Column::words("measured").broken(16, 10), |row| Cell::strong(measured(row)))
        .column(Column::words("verdict"), |row| Cell::from(word(row.verdict)).tone(tone(row.verdict).0))
        .column(Column::words("why").broken(20, 10), |row| row.why.as_str());
    report.sections.insert(0, Section::new(case.title.clone(), vec![Block::Table(table.done())]));
}

/// A report's JSON with the reproduction beside its findings.
///
/// # Errors
/// [`ReportError::Json`] for what has no form as JSON.
pub fn into_json(document: &str, case: &ReproductionFindings) -> Result<String, ReportError> {
    let mut value: Value = serde_json::from_str(document)?;
    value["case"] = serde_json::to_value(case)?;
    Ok(serde_json::to_string_pretty(&value)?)
}

fn measured(row: &ClaimRow) -> String {
    let Some(figure) = row.measured else { return NONE.to_owned() };
    let text = |v: f64| match row.unit {
        ClaimUnit::Ratio => ratio(v),
        ClaimUnit::Nanoseconds => nanoseconds(v),
        ClaimUnit::Percent => percent(v / 100.0),
        ClaimUnit::Count => significant(v),
    };
    let interval =
        figure.interval.map_or(String::new(), |i| format!(" (95 % interval {} to {})", text(i.low), text(i.high)));
    format!("{}{interval}", text(figure.median))
}

/// The colour of a cell, and the class of a tile.
fn tone(verdict: ClaimVerdict) -> (Tone, &'static str) {
    match verdict {
        ClaimVerdict::Reproduced => (Tone::Good, "faster"),
        ClaimVerdict::NotReproduced => (Tone::Bad, "slower"),
        ClaimVerdict::Inconclusive | ClaimVerdict::NotTestable => (Tone::Soft, "open"),
    }
}

/// The verdict in words.
fn word(verdict: ClaimVerdict) -> &'static str {
    match verdict {
        ClaimVerdict::Reproduced => "reproduced",
        ClaimVerdict::NotReproduced => "not reproduced",
        ClaimVerdict::Inconclusive => "inconclusive",
        ClaimVerdict::NotTestable => "not testable",
    }
}
