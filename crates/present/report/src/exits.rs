//! `exits`' answer: what one VM exit of each kind costs.

pub use crate::html::exits::html;

use crate::number::{count, nanoseconds};
use crate::table::{self, right};
use crate::text::{Paint, cell, columns, plain, section, wrapped};
use crate::view::{first_five, when};
use crate::{ReportError, Style};
use comfy_table::{Attribute, Cell};
use vmtax_model::{ExitFindings, ExitKind, MachineExits};

/// A figure of a kind: its name, and where it stands.
type Column = (&'static str, fn(&ExitKind) -> f64);
const COLUMNS: [Column; 6] = [
    ("min", |k| k.min_ns),
    ("p50", |k| k.p50_ns),
    ("p90", |k| k.p90_ns),
    ("p99", |k| k.p99_ns),
    ("max", |k| k.max_ns),
    ("mean", |k| k.mean_ns),
];
/// Which of them a terminal of a width and more shows.
const WIDTHS: [(usize, &[usize]); 4] =
    [(100, &[0, 1, 2, 3, 4, 5]), (80, &[1, 2, 3, 4, 5]), (60, &[1, 3, 5]), (0, &[1, 3])];

/// The answer for a terminal.
pub fn terminal(findings: &ExitFindings, style: Style) -> String {
    let width = style.width.max(40);
    let paint = Paint(style.color);
    let mut out = wrapped(&heading(findings), width, "", "");
    for machine in &findings.machines {
        let title = wrapped(&title(machine), width, "", "");
        out.push_str(&format!("\n{}\n{}\n", paint.bold(title.trim_end()), kinds(machine, width, style.color)));
        for note in notes(machine) {
            out.push_str(&wrapped(&note, width, "", "  "));
        }
    }
    if findings.machines.is_empty() {
        out.push_str(&wrapped("No machine was measured: there is nothing to show.", width, "", ""));
    } else {
        out.push('\n');
        out.push_str(&wrapped(&findings.method, width, "", ""));
    }
    let warnings: Vec<String> = findings.warnings.iter().map(ToString::to_string).collect();
    section(&mut out, &paint.with("1;33", "Not measured"), &missing(findings), "– ", width);
    section(&mut out, &paint.with("1;33", "Warnings"), &warnings, "! ", width);
    section(&mut out, &paint.with("1;36", "Advice"), first_five(&findings.advice), "→ ", width);
    out
}

/// The findings for scripts; docs/json.md describes them.
///
/// # Errors
/// [`ReportError::Json`] for a value JSON has no form for.
pub fn json(findings: &ExitFindings) -> Result<String, ReportError> {
    serde_json::to_string_pretty(findings).map_err(|source| ReportError::Json { what: "report of the exits", source })
}

fn heading(findings: &ExitFindings) -> String {
    let kvm = if findings.kvm.is_empty() { String::new() } else { format!("; {}", findings.kvm) };
    format!("Cost of VM exits, {}; {}, Linux {}{kvm}", when(&findings.started), findings.cpu, findings.kernel)
}

/// "micro-kvm, QEMU 7.2.22".
pub(crate) fn title(machine: &MachineExits) -> String {
    format!("{}, {}", machine.machine, machine.qemu)
}

/// The stamps' own cost first, then every kind.
pub(crate) fn all(machine: &MachineExits) -> impl Iterator<Item = &ExitKind> {
    [&machine.stamp].into_iter().chain(&machine.kinds)
}

fn kinds(machine: &MachineExits, width: usize, color: bool) -> String {
    let shown = WIDTHS.iter().find(|(least, _)| width >= *least).map_or(WIDTHS[3].1, |(_, shown)| *shown);
    let build = |room: usize, color: bool| {
        let mut table = table::empty(color);
        let names = shown.iter().map(|i| right(COLUMNS[*i].0));
        table.set_header([Cell::new("exit"), right("n")].into_iter().chain(names));
        for kind in all(machine) {
            let label = Cell::new(cell(&marked(kind), room));
            let figures = shown.iter().map(|i| {
                let figure = right(nanoseconds(COLUMNS[*i].1(kind)));
                if COLUMNS[*i].0 == "p50" { figure.add_attribute(Attribute::Bold) } else { figure }
            });
            table.add_row([label, right(count(kind.n))].into_iter().chain(figures));
        }
        table::lines(table)
    };
    let room = all(machine).map(|k| columns(&marked(k))).max().unwrap_or(0);
    let widest = build(room, false).lines().map(columns).max().unwrap_or(0);
    build(room.saturating_sub(widest.saturating_sub(width)).max(10), color)
}

fn marked(kind: &ExitKind) -> String {
    format!("{}{}", plain(&kind.label), if kind.emulated { " ‡" } else { "" })
}

/// What the mark stands for, and what the kinds' makers say of them.
pub(crate) fn notes(machine: &MachineExits) -> Vec<String> {
    let emulated = all(machine).any(|k| k.emulated);
    let mark = emulated.then(|| {
        "‡ run where this host's KVM emulates the guest instruction by instruction: the emulation's cost, not an exit's.".to_owned()
    });
    let mut said: Vec<(&str, Vec<&str>)> = Vec::new();
    for kind in all(machine).filter(|k| !k.note.is_empty()) {
        match said.iter_mut().find(|(note, _)| *note == kind.note) {
            Some((_, labels)) => labels.push(&kind.label),
            None => said.push((&kind.note, vec![&kind.label])),
        }
    }
    mark.into_iter().chain(said.iter().map(|(note, labels)| format!("{}: {note}.", labels.join("; ")))).collect()
}

/// The kinds that could not be measured.
pub(crate) fn missing(findings: &ExitFindings) -> Vec<String> {
    let one = |(machine, m): (&MachineExits, &vmtax_model::Missing)| {
        let mend = if m.mend.is_empty() { String::new() } else { format!(" → {}", m.mend) };
        format!("{} ({}): {}.{mend}", m.what, machine.machine, m.why.trim_end_matches('.'))
    };
    findings.machines.iter().flat_map(|machine| machine.missing.iter().map(move |m| (machine, m))).map(one).collect()
}
