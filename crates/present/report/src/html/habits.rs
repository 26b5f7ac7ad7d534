//! The page of `habits`: a table for each machine.

use super::notices::notices;
use super::{Head, document};
use crate::habits::{exits, notes, time};
use crate::number::{NONE, range, ratio};
use crate::view::when;
use maud::{Markup, html as markup};
use vmtax_model::{HabitFindings, MachineHabits, shell_line};
use vmtax_recording::Recording;

/// The report as one HTML file.
pub fn html(recording: &Recording, findings: &HabitFindings) -> String {
    let manifest = &recording.manifest;
    let title = format!("Habits of guest kernels, {}", when(&manifest.started));
    let warnings: Vec<String> = findings.warnings.iter().map(ToString::to_string).collect();
    let body = markup! {
        header {
            p.kicker { (when(&manifest.started)) }
            h1 { "Habits of guest kernels, and their cures" }
            p.where { (recording.host.cpu.model) " · Linux " (recording.host.kernel) }
        }
        div.notices { (notices("What to know", "warnings", &warnings)) }
        @for machine in &findings.machines { (section_of(machine)) }
        p.method { b { "Method. " } (findings.method) }
    };
    let command = shell_line(&manifest.command);
    let head = Head { title: &title, vmtax: &manifest.vmtax, started: &manifest.started, command };
    document(&head, "", &body)
}

fn section_of(machine: &MachineHabits) -> Markup {
    markup! {
        section {
            h2 { (machine.machine) }
            div.scroll tabindex="0" role="region" aria-label={ "Habits on " (machine.machine) } {
                table.taxes {
                    thead { tr {
                        th scope="col" { "habit" } th.number scope="col" { "one" } th.number scope="col" { "exits" }
                        th scope="col" { "cure" } th.number scope="col" { "one" } th.number scope="col" { "exits" }
                        th.number scope="col" { "habit over cure" } th.number scope="col" { "95 %" }
                    } }
                    tbody { @for row in &machine.rows { tr {
                        th scope="row" { (row.habit.label(false)) @if row.emulated { " ‡" } }
                        td.number { (time(row.before.as_ref())) } td.number { (exits(row.before.as_ref())) }
                        td { (row.habit.label(true)) }
                        td.number { (time(row.after.as_ref())) } td.number { (exits(row.after.as_ref())) }
                        td.number { (row.ratio.map_or(NONE.to_owned(), |r| ratio(r.median))) }
                        td.number { (row.ratio.and_then(|r| r.interval).map_or(NONE.to_owned(), |i| range(&i))) }
                    } } }
                }
            }
            @for note in notes(machine) { p.intro { (note) } }
        }
    }
}
