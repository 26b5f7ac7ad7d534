//! `exec`'s answer: how the command ended, what it cost on each machine, and where the difference goes.

use crate::json::document;
use crate::number::{difference, percent, value};
use crate::table::{self, right};
use crate::text::{Paint, wrapped};
use crate::{ReportError, Style, command_layers, row, view};
use comfy_table::Cell;
use serde::Serialize;
use vmtax_model::{Breakdown, CommandLayers, ExecFindings, Plan, Statuses, Unit, shell_line};
use vmtax_recording::Recording;

pub use crate::html::exec::html;

/// The findings, with what was found of requests to the guests' disks, where that was asked for.
#[derive(Serialize)]
struct Both<'a> {
    #[serde(flatten)]
    findings: &'a ExecFindings,
    #[serde(flatten)]
    layers: Option<&'a CommandLayers>,
}

/// The answer for a terminal.
pub fn terminal(
    recording: &Recording,
    findings: &ExecFindings,
    layers: Option<&CommandLayers>,
    style: Style,
) -> String {
    let width = style.width.max(40);
    let mut more = String::new();
    for breakdown in &findings.breakdowns {
        more +=
            &format!("\n{}\n{}", Paint(style.color).bold(&title(breakdown)), table(breakdown, &recording.plan, style));
    }
    for line in about(&recording.plan, findings) {
        more += &wrapped(&line, width, "", "  ");
    }
    let command = wrapped(&format!("$ {}", command(&recording.plan)), width, "", "  ");
    let ended = wrapped(&ended(findings), width, "", "  ");
    let rows = row::with_printed(&findings.taxes, &findings.printed);
    let table = crate::terminal::with(recording, &findings.taxes, &rows, &warnings(recording, findings), &more, style);
    let layers = layers.map(|layers| command_layers::terminal(recording, layers, findings, style)).unwrap_or_default();
    format!("{command}{ended}{table}{layers}")
}

/// The recording and its findings as one JSON document.
///
/// # Errors
/// [`ReportError::Json`] for a value JSON has no form for.
pub fn json(
    recording: &Recording,
    findings: &ExecFindings,
    layers: Option<&CommandLayers>,
) -> Result<String, ReportError> {
    document(recording, &Both { findings, layers }).map_err(|source| ReportError::Json { what: "report", source })
}

pub(crate) fn command(plan: &Plan) -> String {
    plan.command().map_or(String::new(), |command| shell_line(&command.words))
}

/// How it ended, for people.
pub(crate) fn ended(findings: &ExecFindings) -> String {
    let words = |statuses: &[i32]| statuses.iter().map(|s| status(*s)).collect::<Vec<_>>().join(" or ");
    let (ran, not): (Vec<&Statuses>, Vec<_>) = findings.statuses.iter().partition(|s| !s.statuses.is_empty());
    match ran.first() {
        None => "The command ended nowhere.".to_owned(),
        Some(first) if not.is_empty() && !findings.differs() => {
            format!("It ended everywhere with {}.", words(&first.statuses))
        }
        Some(_) => {
            let all: Vec<String> = ran.iter().map(|s| format!("{} with {}", s.machine, words(&s.statuses))).collect();
            let nowhere: Vec<String> = not.iter().map(|s| format!(" It did not run on {}.", s.machine)).collect();
            format!("It ended on {}.{}", all.join(", on "), nowhere.concat())
        }
    }
}

fn status(status: i32) -> String {
    match status {
        signal @ 129..=192 => format!("status {status} (ended by signal {})", signal - 128),
        other => format!("status {other}"),
    }
}

/// What weakens the figures, the command's own end first.
pub(crate) fn warnings(recording: &Recording, findings: &ExecFindings) -> Vec<String> {
    let mut all = Vec::new();
    if findings.differs() {
        all.push("the command did not end alike everywhere: what it cost is not the cost of the same work.".to_owned());
    } else if findings.status().is_some_and(|status| status != 0) {
        all.push("the command failed: what it cost is what failing costs.".to_owned());
    }
    all.extend(findings.notes.iter().cloned());
    all.extend(view::warnings(recording, &findings.taxes.warnings));
    all
}

pub(crate) fn title(breakdown: &Breakdown) -> String {
    let plural = if breakdown.rounds == 1 { "" } else { "s" };
    format!("Where the time goes on {} (means of {} round{plural})", breakdown.machine, breakdown.rounds)
}

/// One line of the breakdown: what, natively, on the machine, the difference, its share of the whole difference.
pub(crate) struct Line {
    pub label: &'static str,
    pub native: String,
    pub machine: String,
    pub difference: String,
    pub share: String,
}

/// The parts, what none accounts for, and the sum.
pub(crate) fn lines(breakdown: &Breakdown) -> Vec<Line> {
    let whole = breakdown.native_s.map(|native| breakdown.machine_s - native);
    let line = |label, native: Option<f64>, machine: f64| {
        // What only a guest has is all difference.
        let more = breakdown.native_s.map(|_| machine - native.unwrap_or(0.0));
        let share = more.zip(whole.filter(|w| w.abs() > 1e-6)).map(|(more, whole)| more / whole);
        Line {
            label,
            native: native.map_or(String::new(), seconds),
            machine: seconds(machine),
            difference: more.map_or(String::new(), |s| difference(Unit::Seconds, s)),
            share: share.map_or(String::new(), signed_percent),
        }
    };
    let parts = breakdown.rows.iter().map(|row| line(row.part.label(), row.native_s, row.machine_s));
    let unexplained = line("unexplained", None, breakdown.unexplained_s);
    let sum = line("sum", breakdown.native_s, breakdown.machine_s);
    parts.chain([unexplained, sum]).collect()
}

fn signed_percent(share: f64) -> String {
    if share < 0.0 { format!("−{}", percent(-share)) } else { percent(share) }
}

fn seconds(s: f64) -> String {
    if s < 0.0 { difference(Unit::Seconds, s) } else { value(Unit::Seconds, s) }
}

fn table(breakdown: &Breakdown, plan: &Plan, style: Style) -> String {
    let mut table = table::empty(style.color);
    let compared = breakdown.native_s.is_some();
    let mut header = vec![Cell::new(unit(plan)), right(breakdown.machine.as_str())];
    if compared {
        header.extend([right("native"), right("difference"), right("share")]);
    }
    table.set_header(header);
    for line in lines(breakdown) {
        let mut cells = vec![Cell::new(line.label), right(line.machine)];
        if compared {
            cells.extend([right(line.native), right(line.difference), right(line.share)]);
        }
        table.add_row(cells);
    }
    table::lines(table) + "\n"
}

/// What the seconds are of.
pub(crate) fn unit(plan: &Plan) -> String {
    match plan.guest.cpus {
        1 => "wall time".to_owned(),
        cpus => format!("wall time × {cpus} CPUs"),
    }
}

/// How the guests had the host's files, and what the parts mean.
pub(crate) fn about(plan: &Plan, findings: &ExecFindings) -> Vec<String> {
    let mut all = Vec::new();
    if !findings.breakdowns.is_empty() {
        all.push(
            "User and kernel: the command's own, by its machine's account; what translation, nested paging and exits add \
             to them is in them. Waiting for threads: at most, as long as these worked."
                .to_owned(),
        );
    }
    let layer = match plan.command().and_then(|command| command.scratch_mib) {
        Some(mib) => format!("on a disk of {mib} MiB"),
        None => "in their memory".to_owned(),
    };
    all.extend(findings.root.as_ref().map(|root| {
        format!(
            "Guests had the host's files by {} ({}), read-only, below a layer {layer}: its cost is the share's, not the \
             processor's.",
            root.method, root.mount
        )
    }));
    all
}
