//! `run`'s answer on a terminal: one table, then the warnings, then at most five lines of advice.

use crate::Style;
use crate::number::{NONE, half_width, percent, plus_minus, range, ratio, value};
use crate::row::{self, Row};
use crate::table::{self, right};
use crate::text::{Paint, columns, section, wrapped};
use crate::view::{self, guests, machines};
use comfy_table::{Attribute, Cell, CellAlignment, Color};
use vmtax_model::{Findings, Machine, MachineColumn, Spread, Tax, Verdict};
use vmtax_recording::Recording;

/// The answer for a terminal. Nothing from a guest reaches the terminal as a control character.
pub fn terminal(recording: &Recording, findings: &Findings, style: Style) -> String {
    with(recording, findings, &row::of(findings), &view::warnings(recording, &findings.warnings), "", style)
}

/// The same with `more` below the table, and these warnings.
pub(crate) fn with(
    recording: &Recording,
    findings: &Findings,
    rows: &[Row],
    warnings: &[String],
    more: &str,
    style: Style,
) -> String {
    let width = style.width.max(40);
    let paint = Paint(style.color);
    let mut out = wrapped(&heading(recording, findings), width, "", "");
    out.push('\n');
    if rows.is_empty() {
        out.push_str(&wrapped("No trial gave a value: there is nothing to compare.", width, "", ""));
    } else {
        let detail = Detail::widest_within(width, findings, rows);
        out.push_str(&table(findings, rows, detail, style.color));
        out.push('\n');
        for note in notes(findings, rows, detail) {
            out.push_str(&wrapped(&note, width, "", "  "));
        }
    }
    out.push_str(more);
    section(&mut out, &paint.with("1;33", "Warnings"), warnings, "! ", width);
    section(&mut out, &paint.with("1;36", "Advice"), &view::first_five(&findings.advice), "→ ", width);
    out
}

fn heading(recording: &Recording, findings: &Findings) -> String {
    let host = &recording.host;
    let cpus = recording.plan.guest.cpus;
    let plural = if cpus == 1 { "" } else { "s" };
    format!(
        "{} of {}, {}; {}, Linux {}; every machine with {cpus} CPU{plural}, {} MiB",
        recording.plan.name,
        view::when(&recording.manifest.started),
        view::rounds_text(findings),
        host.cpu.model,
        host.kernel,
        recording.plan.guest.memory_mib,
    )
}

/// Which columns a table has: as many as the width holds.
#[derive(Clone, Copy)]
struct Detail {
    native: bool,
    guest_median: bool,
    spread: bool,
    interval: Option<Ends>,
    verdict: bool,
}

/// How an interval is written.
#[derive(Clone, Copy, PartialEq)]
enum Ends {
    /// `1.26–1.31`
    Both,
    /// `±2 %`
    HalfWidth,
}

impl Detail {
    /// From everything down to the ratios alone; the first that fits is taken.
    fn widest_within(width: usize, findings: &Findings, rows: &[Row]) -> Detail {
        let all = Detail { native: true, guest_median: true, spread: true, interval: Some(Ends::Both), verdict: true };
        let least = Detail { native: false, guest_median: false, spread: false, interval: None, verdict: false };
        let steps = [
            all,
            Detail { spread: false, ..all },
            Detail { verdict: false, ..all },
            Detail { verdict: false, spread: false, ..all },
            Detail { verdict: false, spread: false, interval: Some(Ends::HalfWidth), ..all },
            Detail { native: true, interval: Some(Ends::HalfWidth), ..least },
            Detail { native: true, ..least },
        ];
        let fits = |d: &Detail| table(findings, rows, *d, false).lines().all(|l| columns(l) <= width);
        let intervals = view::has_intervals(findings);
        steps
            .into_iter()
            .map(|d| Detail { interval: d.interval.filter(|_| intervals), ..d })
            .find(fits)
            .unwrap_or(least)
    }
}

fn table(findings: &Findings, rows: &[Row], detail: Detail, color: bool) -> String {
    let mut table = table::empty(color);
    let mut header = vec![Cell::new("")];
    for machine in machines(findings) {
        if if machine.is_guest() { detail.guest_median } else { detail.native } {
            header.push(right(machine.as_str()));
            if detail.spread {
                header.push(right("spread"));
            }
        }
        if machine.is_guest() {
            header.push(right(if detail.guest_median { "tax" } else { machine.as_str() }));
            match detail.interval {
                Some(Ends::Both) => header.push(right("95 % interval")),
                Some(Ends::HalfWidth) => header.push(right("95 %")),
                None => {}
            }
            if detail.verdict {
                header.push(Cell::new("verdict"));
            }
        }
    }
    table.set_header(header);
    for (group, rows) in row::groups(rows) {
        table.add_row(vec![Cell::new(group).add_attribute(Attribute::Bold)]);
        for row in rows {
            table.add_row(cells(row, &machines(findings), detail));
        }
    }
    table::lines(table)
}

fn cells(row: &Row, machines: &[Machine], detail: Detail) -> Vec<Cell> {
    let indent = if detail.native { "  " } else { "" };
    let mut cells = vec![Cell::new(format!("{indent}{}", row.label))];
    for machine in machines {
        let found = row.column(*machine);
        let spread = found.and_then(|c| c.spread.as_ref());
        if if machine.is_guest() { detail.guest_median } else { detail.native } {
            cells.push(right(median(row, found, spread)));
            if detail.spread {
                cells.push(right(spread.and_then(|s| s.relative_spread).map_or(String::new(), plus_minus)));
            }
        }
        if machine.is_guest() {
            tax_cells(&mut cells, found.and_then(|c| c.tax.as_ref()), detail);
        }
    }
    cells
}

fn median(row: &Row, found: Option<&MachineColumn>, spread: Option<&Spread>) -> String {
    match (found, spread) {
        (_, Some(s)) => value(row.unit, s.median),
        (Some(c), None) if c.unsupported.is_some() => "none".to_owned(),
        _ => NONE.to_owned(),
    }
}

fn tax_cells(cells: &mut Vec<Cell>, tax: Option<&Tax>, detail: Detail) {
    let colour = tax.and_then(|t| match t.verdict {
        Verdict::Costs if t.ratio.median >= 2.0 => Some(Color::Red),
        Verdict::Costs => Some(Color::DarkYellow),
        Verdict::Gains => Some(Color::DarkGreen),
        Verdict::Differs | Verdict::NoDifferenceShown | Verdict::TooFewRounds => None,
    });
    let painted = |text: String| {
        let cell = Cell::new(text).set_alignment(CellAlignment::Right);
        if let Some(colour) = colour { cell.fg(colour) } else { cell }
    };
    let undecided = tax.is_some_and(|t| t.verdict == Verdict::NoDifferenceShown);
    let mark = if undecided && !detail.verdict { "~" } else { "" };
    cells.push(painted(tax.map_or(NONE.to_owned(), |t| format!("{mark}{}", ratio(t.ratio.median)))));
    let ends = tax.and_then(|t| t.ratio.interval.map(|i| (t.ratio.median, i)));
    match detail.interval {
        Some(Ends::Both) => cells.push(painted(ends.map_or(String::new(), |(_, i)| range(&i)))),
        Some(Ends::HalfWidth) => cells.push(painted(ends.map_or(String::new(), |(m, i)| half_width(m, &i)))),
        None => {}
    }
    if detail.verdict {
        cells.push(
            painted(tax.map_or(String::new(), |t| view::verdict(t.verdict).to_owned()))
                .set_alignment(CellAlignment::Left),
        );
    }
}

/// What the table's signs mean and what it leaves out.
fn notes(findings: &Findings, rows: &[Row], detail: Detail) -> Vec<String> {
    let mut notes = Vec::new();
    if !guests(findings).is_empty() {
        let mut tax = "Medians over rounds. Tax: cost over native's, above ×1 slower.".to_owned();
        if view::has_intervals(findings) && !detail.verdict {
            tax.push_str(" ~: no difference shown, the 95 % interval holds ×1.");
        }
        if !view::has_intervals(findings) {
            tax.push_str(" Too few rounds for a 95 % interval: it takes six, so no verdict.");
        }
        notes.push(tax);
    }
    if !detail.spread {
        let each: Vec<String> = machines(findings).into_iter().filter_map(|m| spread_note(rows, m)).collect();
        notes.push(format!("Spread (half the quartiles' distance over the median): {}.", each.join("; ")));
    }
    notes.extend(fewer_rounds(findings, rows));
    notes.extend(row::undirected(rows));
    let columns = rows.iter().flat_map(|r| r.machines.iter().map(move |c| (r.label, c)));
    for (label, c) in columns.filter(|(_, c)| c.spread.is_none() && c.unsupported.is_some()) {
        notes.push(format!("No figure for {label} on {}: {}.", c.machine, view::absence(c)));
    }
    notes
}

fn spread_note(rows: &[Row], machine: Machine) -> Option<String> {
    let spread = |r: &Row| r.column(machine)?.spread.as_ref()?.relative_spread;
    let mut all: Vec<(f64, &str)> = rows.iter().filter_map(|r| Some((spread(r)?, r.label))).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (largest, where_) = *all.last()?;
    let typical = all[all.len() / 2].0;
    Some(format!("{machine} typically {}, at most {} ({where_})", percent(typical), percent(largest)))
}

/// The figures that rest on fewer rounds than the rest.
fn fewer_rounds(findings: &Findings, rows: &[Row]) -> Option<String> {
    let mut fewer = Vec::new();
    for row in rows {
        for c in row.machines {
            if let Some(s) = c.spread.as_ref().filter(|s| s.n < findings.rounds_planned) {
                fewer.push(format!("{} on {} ({})", row.label, c.machine, s.n));
            }
        }
    }
    let more = if fewer.len() > 4 { format!(", and {} more", fewer.len() - 4) } else { String::new() };
    fewer.truncate(4);
    (!fewer.is_empty()).then(|| format!("Fewer than {} rounds: {}{more}.", findings.rounds_planned, fewer.join(", ")))
}
