//! The answer for a terminal: a picture for each series, and a sentence for each change.

use super::plot::plot;
use super::words;
use crate::Style;
use crate::table::{self, right};
use crate::text::{Paint, cell, columns, section, wrapped};
use crate::view::when;
use comfy_table::Cell;
use vmtax_model::{HistoryEntry, HistoryFindings};

/// Series that a reader takes in; the page has all.
const DRAWN: usize = 6;

/// A metric over the runs. `notes`: what became of the ledger.
pub fn terminal(findings: &HistoryFindings, notes: &[String], style: Style) -> String {
    let width = style.width.max(40);
    let paint = Paint(style.color);
    let metric = findings.metric;
    let shared = words::shared(findings);
    let gap = if shared.is_empty() { "" } else { "; " };
    let mut out = cell(&format!("{} ({metric}) over the runs{gap}{shared}", metric.label()), width) + "\n";
    if let Some(split) = words::split(findings) {
        out.push_str(&wrapped(&split, width, "", ""));
    }
    for series in findings.series.iter().take(DRAWN) {
        let conditions = words::conditions(series, &findings.series);
        let gap = if conditions.is_empty() { "" } else { ": " };
        out.push('\n');
        // Settings are not broken at their hyphens.
        out.push_str(&paint.bold(&cell(&format!("{}{gap}{conditions}", words::place(series)), width)));
        out.push('\n');
        out.push_str(&plot(series, metric, width, paint));
        for (i, change) in series.changes.iter().enumerate() {
            out.push_str(&wrapped(&words::sentence(i + 1, change, series, metric), width, "→ ", "  "));
        }
        if series.changes.is_empty() {
            out.push_str(&wrapped(&words::unchanged(series), width, "", ""));
        }
        if let Some(deleted) = words::deleted(series) {
            out.push_str(&wrapped(&deleted, width, "", ""));
        }
    }
    if findings.series.len() > DRAWN {
        let more = findings.series.len() - DRAWN;
        out.push('\n');
        out.push_str(&wrapped(
            &format!("{more} more series: --html FILE draws all, --machine one machine's."),
            width,
            "",
            "",
        ));
    }
    out.push('\n');
    out.push_str(&wrapped(&findings.method, width, "", ""));
    section(&mut out, &paint.with("1;33", "Warnings"), notes, "! ", width);
    out
}

/// What a ledger holds, for a terminal.
pub fn listing(entries: &[HistoryEntry], notes: &[String], style: Style) -> String {
    let width = style.width.max(40);
    let mut out = String::new();
    if entries.is_empty() {
        out.push_str(&wrapped("No run has left a figure yet: `vmtax run --quick` does.", width, "", ""));
    } else {
        let made = [true, false].map(|both| entries_table(entries, both, style.color));
        let fits = |text: &&String| text.lines().all(|line| columns(line) <= width);
        out.push_str(made.iter().find(fits).unwrap_or(&made[1]));
        out.push_str("\n\n");
        out.push_str(&wrapped(
            "A series is what was measured under the same conditions: processors, variant, size, settings. `vmtax history METRIC` \
             draws a metric's.",
            width,
            "",
            "",
        ));
    }
    section(&mut out, &Paint(style.color).with("1;33", "Warnings"), notes, "! ", width);
    out
}

fn entries_table(entries: &[HistoryEntry], both: bool, color: bool) -> String {
    let mut table = table::empty(color);
    let mut header = vec![Cell::new("metric"), Cell::new("machine"), right("runs"), right("series")];
    header.extend(both.then(|| Cell::new("first")));
    header.push(Cell::new("last"));
    table.set_header(header);
    for e in entries {
        let mut row =
            vec![Cell::new(e.metric), Cell::new(e.machine), right(e.runs.to_string()), right(e.series.to_string())];
        row.extend(both.then(|| Cell::new(when(&e.first))));
        row.push(Cell::new(when(&e.last)));
        table.add_row(row);
    }
    table::lines(table)
}
