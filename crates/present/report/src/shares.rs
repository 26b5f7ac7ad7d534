//! `share`'s answer: which way to give a guest a tree of files.

pub use crate::html::shares::html;

use crate::number::{NONE, range, ratio, significant, value};
use crate::table::{self, right};
use crate::text::{Paint, cell, columns, plain, section, wrapped};
use crate::view::{by_workload, first_five, warnings, when};
use crate::{ReportError, Style, json::document};
use comfy_table::{Attribute, Cell, Color};
use vmtax_model::{Estimate, Keeping, ON_THE_HOST, ShareCell, ShareColumn, ShareFindings, ShareRow, Verdict};
use vmtax_recording::Recording;

/// The recording and its findings as one JSON document; docs/json.md describes it.
///
/// # Errors
/// [`ReportError::Json`] for a value JSON has no form for (a path that is not UTF-8).
pub fn json(recording: &Recording, findings: &ShareFindings) -> Result<String, ReportError> {
    document(recording, findings).map_err(|source| ReportError::Json { what: "report of the shares", source })
}

/// The answer for a terminal: the ways beside each other, then what took effect, warnings, advice. With `details` every
/// metric of every way.
pub fn terminal(recording: &Recording, findings: &ShareFindings, details: bool, style: Style) -> String {
    let width = style.width.max(40);
    let paint = Paint(style.color);
    let mut out = wrapped(&heading(recording, findings), width, "", "");
    out.push_str(&format!("\n{}\n", tournament(findings, width, style.color)));
    let base = findings.columns.get(findings.base).map_or_else(String::new, title);
    out.push_str(&wrapped(
        &format!(
            "×: cost over {base}, the geometric mean of a workload's figures; below ×1 is faster. CPU: seconds of guest, \
             QEMU and server in one round."
        ),
        width,
        "",
        "  ",
    ));
    if details {
        for (workload, rows) in by_workload(&findings.rows, |r| r.metric) {
            out.push_str(&format!("\n{}\n", paint.bold(workload.as_str())));
            out.push_str(&figures(findings, &rows, width, style.color));
        }
    }
    section(&mut out, &paint.bold("Not kept"), &not_kept(findings), "· ", width);
    section(&mut out, &paint.bold("In effect"), &effects(findings), "· ", width);
    section(&mut out, &paint.with("1;33", "Warnings"), &warnings(recording, &findings.warnings), "! ", width);
    section(&mut out, &paint.with("1;36", "Advice"), &first_five(&findings.advice), "→ ", width);
    out
}

pub(crate) fn heading(recording: &Recording, findings: &ShareFindings) -> String {
    let (host, plan) = (&recording.host, &recording.plan);
    let tree = plan.tree.as_ref().map_or_else(String::new, |tree| match &tree.path {
        Some(path) => format!("; tree {}", path.display()),
        None => format!("; a tree of {} files, {} MiB", tree.files, tree.bytes >> 20),
    });
    let plural = if findings.rounds_planned == 1 { "" } else { "s" };
    format!(
        "{} of {}, {} round{plural}; {}, Linux {}{tree}",
        plan.name,
        when(&recording.manifest.started),
        findings.rounds_planned,
        host.cpu.model,
        host.kernel
    )
}

/// A way's name for people.
pub(crate) fn title(column: &ShareColumn) -> String {
    let guest = if column.machine.is_guest() { &column.variant } else { column.machine.as_str() };
    plain(guest)
}

/// Seconds of all workloads in one round.
pub(crate) fn processor(column: &ShareColumn) -> Option<(f64, f64, f64)> {
    let seconds = || column.processor.iter().map(|(_, s)| s);
    let sum = |of: &dyn Fn(&vmtax_model::ProcessorSeconds) -> f64| seconds().map(of).sum::<f64>();
    (!column.processor.is_empty()).then(|| (sum(&|s| s.guest), sum(&|s| s.qemu), sum(&|s| s.server.unwrap_or(0.0))))
}

fn tournament(findings: &ShareFindings, width: usize, color: bool) -> String {
    let build = |room: usize, intervals: bool, color: bool| {
        let mut table = table::empty(color);
        let scores = findings.scores.iter().flat_map(|s| {
            let interval = intervals.then(|| right("95 %"));
            [Some(right(s.workload.as_str())), interval].into_iter().flatten()
        });
        table.set_header([Cell::new("way")].into_iter().chain(scores).chain([right("CPU s")]));
        for (i, column) in findings.columns.iter().enumerate() {
            let mut cells = vec![Cell::new(cell(&title(column), room))];
            for score in &findings.scores {
                let cost = score.cells.get(i).copied().flatten();
                cells.push(score_cell(cost, i == findings.base));
                if intervals {
                    cells.push(right(cost.and_then(|c| c.interval).map_or(String::new(), |i| range(&i))));
                }
            }
            let seconds = processor(column).map(|(guest, qemu, server)| guest + qemu + server);
            cells.push(right(seconds.map_or(NONE.to_owned(), significant)));
            table.add_row(cells);
        }
        table::lines(table)
    };
    let widest = |text: &str| text.lines().map(columns).max().unwrap_or(0);
    let room = findings.columns.iter().map(|c| columns(&title(c))).max().unwrap_or(0);
    let any = findings.scores.iter().flat_map(|s| &s.cells).flatten().any(|c| c.interval.is_some());
    let intervals = any && widest(&build(room, true, false)) <= width;
    let over = widest(&build(room, intervals, false)).saturating_sub(width);
    build(room.saturating_sub(over).max(12), intervals, color)
}

fn score_cell(cost: Option<Estimate>, base: bool) -> Cell {
    let Some(cost) = cost else { return right(NONE) };
    let cell = right(ratio(cost.median));
    match cost.interval {
        _ if base => cell,
        Some(i) if i.high < 1.0 => cell.fg(Color::DarkGreen).add_attribute(Attribute::Bold),
        Some(i) if i.low > 1.0 => cell.fg(Color::DarkYellow),
        _ => cell,
    }
}

/// A table for each few columns that the width holds.
fn figures(findings: &ShareFindings, rows: &[&ShareRow], width: usize, color: bool) -> String {
    const LABEL: usize = 26;
    const COLUMN: usize = 22;
    let each = (width.saturating_sub(LABEL) / COLUMN).max(1);
    let all: Vec<usize> = (0..findings.columns.len()).collect();
    let mut out = String::new();
    for some in all.chunks(each) {
        let mut table = table::empty(color);
        let names = some.iter().map(|i| right(cell(&title(&findings.columns[*i]), COLUMN - 2)));
        table.set_header([Cell::new("")].into_iter().chain(names));
        for row in rows {
            let cells = some.iter().map(|i| right(row.cells.get(*i).map_or(NONE.to_owned(), |c| figure(row, c))));
            table.add_row([Cell::new(row.metric.label())].into_iter().chain(cells));
        }
        out.push_str(&table::lines(table));
        out.push('\n');
    }
    out
}

/// "12.3 MiB/s ×0.41".
fn figure(row: &ShareRow, cell: &ShareCell) -> String {
    match (&cell.spread, &cell.against) {
        (Some(s), Some(cost)) => {
            let mark = if cost.verdict == Verdict::NoDifferenceShown { "~" } else { "" };
            format!("{} {mark}{}", value(row.metric.unit(), s.median), ratio(cost.ratio.median))
        }
        (Some(s), None) => value(row.metric.unit(), s.median),
        (None, _) if cell.unsupported.is_some() => "none".to_owned(),
        (None, _) => NONE.to_owned(),
    }
}

/// What each way loses or refuses, in a line for each, and what it keeps for the guest alone.
fn not_kept(findings: &ShareFindings) -> Vec<String> {
    let of = |column: &ShareColumn| {
        let with = |keeping: Keeping| {
            let guests = column.kept.iter().filter(|k| !k.what.ends_with(ON_THE_HOST));
            guests.filter(move |k| k.keeping == keeping).map(|k| plain(&k.what))
        };
        let guest: Vec<String> = with(Keeping::Kept).collect();
        let host = column.kept.iter().filter(|k| k.keeping != Keeping::Kept).filter_map(|k| {
            let what = plain(k.what.strip_suffix(ON_THE_HOST)?);
            guest.contains(&what).then_some(what)
        });
        let said = |word: &str, what: Vec<String>| (!what.is_empty()).then(|| format!("{word} {}", what.join(", ")));
        let parts = [
            said("loses", with(Keeping::Lost).collect()),
            said("refuses", with(Keeping::Refused).collect()),
            said("the host does not see", host.collect()),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!column.kept.is_empty()).then(|| match parts.is_empty() {
            true => format!("{}: keeps all that was tried", title(column)),
            false => format!("{}: {}", title(column), parts.join("; ")),
        })
    };
    findings.columns.iter().filter_map(of).collect()
}

/// What took effect of each way, and why one has no figures.
pub(crate) fn effects(findings: &ShareFindings) -> Vec<String> {
    let of = |column: &ShareColumn| {
        let name = title(column);
        if let Some(reason) = &column.failed {
            return Some(format!("{name}: {}", reason.lines().next().unwrap_or_default()));
        }
        let facts = column.facts.as_ref()?;
        let msize = facts.msize.map_or(String::new(), |bytes| format!("messages of {bytes} bytes agreed; "));
        let image = facts
            .image
            .as_ref()
            .map_or(String::new(), |i| format!("{} MiB made in {:.1} s; ", i.bytes >> 20, i.seconds));
        Some(format!("{name}: {msize}{image}{}", facts.mount))
    };
    findings.columns.iter().filter_map(of).collect()
}
