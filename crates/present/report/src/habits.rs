//! The answer of `habits`: what each habit of guest kernels costs, and its cure.

pub use crate::html::habits::html;

use crate::json::document;
use crate::number::{NONE, nanoseconds, range, ratio};
use crate::table::{self, right};
use crate::text::{Paint, fit, section, wrapped};
use crate::{ReportError, Style};
use comfy_table::{Attribute, Cell};
use vmtax_model::{HabitFindings, HabitForm, HabitRow, MachineHabits};
use vmtax_recording::Recording;

/// Columns that the figures take beside the names.
const FIGURES: usize = 44;

/// The answer for a terminal.
pub fn terminal(findings: &HabitFindings, style: Style) -> String {
    let width = style.width.max(40);
    let paint = Paint(style.color);
    let mut out = String::new();
    for machine in &findings.machines {
        let title = format!("Habits of guest kernels and their cures, {}", machine.machine);
        out.push_str(&format!("{}\n{}\n", paint.bold(&title), rows(machine, width, style.color)));
        for note in notes(machine) {
            out.push_str(&wrapped(&note, width, "", "  "));
        }
        out.push('\n');
    }
    out.push_str(&wrapped(&findings.method, width, "", ""));
    let warnings: Vec<String> = findings.warnings.iter().map(ToString::to_string).collect();
    section(&mut out, &paint.with("1;33", "Warnings"), &warnings, "! ", width);
    out
}

/// The findings for scripts, beside the recording's trials; docs/json.md describes them.
///
/// # Errors
/// [`ReportError::Json`] for a value JSON has no form for.
pub fn json(recording: &Recording, findings: &HabitFindings) -> Result<String, ReportError> {
    document(recording, findings).map_err(|source| ReportError::Json { what: "report of habits", source })
}

fn rows(machine: &MachineHabits, width: usize, color: bool) -> String {
    let mut table = table::empty(color);
    table.set_header([Cell::new("habit, and cure"), right("one"), right("exits"), right("costs"), right("95 %")]);
    let room = width.saturating_sub(FIGURES).max(16);
    for row in &machine.rows {
        let mark = if row.emulated { " ‡" } else { "" };
        let name = |cured: bool| Cell::new(format!("{}{mark}", fit(row.habit.label(cured), room)));
        let interval = row.ratio.and_then(|r| r.interval);
        table.add_row([
            name(false),
            right(time(row.before.as_ref())),
            right(exits(row.before.as_ref())),
            right(row.ratio.map_or(NONE.to_owned(), |r| ratio(r.median))).add_attribute(Attribute::Bold),
            right(interval.map_or(NONE.to_owned(), |i| range(&i))),
        ]);
        table.add_row([name(true), right(time(row.after.as_ref())), right(exits(row.after.as_ref()))]);
    }
    table::lines(table)
}

pub(crate) fn time(form: Option<&HabitForm>) -> String {
    form.map_or(NONE.to_owned(), |form| nanoseconds(form.ns.median))
}

/// Exits of one, to the tenth: what is below is the host's own interrupts.
pub(crate) fn exits(form: Option<&HabitForm>) -> String {
    let Some(exits) = form.and_then(|form| form.exits) else { return NONE.to_owned() };
    let tenths = (exits * 10.0).round() / 10.0;
    if tenths.fract() == 0.0 { format!("{tenths:.0}") } else { format!("{tenths:.1}") }
}

/// What a mark stands for, and why a figure is missing.
pub(crate) fn notes(machine: &MachineHabits) -> Vec<String> {
    let mut notes = Vec::new();
    if machine.rows.iter().any(|row| row.emulated) {
        notes.push(
            "‡ one of the two runs where this host's KVM emulates the guest instruction by instruction: the emulation's cost."
                .to_owned(),
        );
    }
    let missing = |row: &HabitRow| format!("{}: {}.", row.habit.label(false), row.why.trim_end_matches('.'));
    notes.extend(machine.rows.iter().filter(|row| !row.why.is_empty()).map(missing));
    notes
}
