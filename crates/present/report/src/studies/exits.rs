//! `exits`: what one VM exit of each kind costs.

use crate::charts::marks::{self, Mark, Marks};
use crate::engine::{Block, Cell, Column, Figure, Notice, Origin, Report, Section, Table};
use crate::number::{count, nanoseconds};
use crate::text::when;
use crate::view;
use maud::html;
use vmtax_model::{ExitFindings, ExitKind, MachineExits, Missing, Summary, shell_line};

/// The report.
pub fn report(findings: &ExitFindings) -> Report<'_> {
    let about =
        [when(&findings.started), findings.cpu.clone(), format!("Linux {}", findings.kernel), findings.kvm.clone()];
    let answers: Vec<String> = findings.machines.iter().filter_map(answer).collect();
    Report {
        study: "exits",
        title: "What a VM exit costs".to_owned(),
        basis: about.into_iter().filter(|part| !part.is_empty()).collect(),
        origin: Origin {
            vmtax: findings.vmtax.clone(),
            started: findings.started.clone(),
            command: shell_line(&findings.command),
        },
        answer: match findings.machines.is_empty() {
            true => "No machine was measured: there is nothing to show.".to_owned(),
            false => answers.join(" "),
        },
        advice: findings.advice.clone(),
        notices: vec![
            Notice::missing("Not measured", missing(findings)),
            Notice::warnings(view::in_words(&findings.warnings)),
        ],
        sections: findings.machines.iter().map(section).collect(),
        method: vec![findings.method.clone()],
        ..Report::default()
    }
}

/// The cheapest and the dearest kind of a machine.
fn answer(machine: &MachineExits) -> Option<String> {
    let by_median = |a: &&ExitKind, b: &&ExitKind| a.time.p50_ns.total_cmp(&b.time.p50_ns);
    let measured = || machine.kinds.iter().filter(|kind| !kind.label.starts_with("no exit"));
    let cheapest = measured().min_by(by_median)?;
    let dearest = measured().max_by(by_median)?;
    let said = |kind: &ExitKind| format!("{} ({})", nanoseconds(kind.time.p50_ns), kind.label);
    Some(format!("One exit takes {} to {} on {}, medians.", said(cheapest), said(dearest), machine.machine))
}

/// The stamps' own cost first, then every kind.
fn all(machine: &MachineExits) -> impl Iterator<Item = &ExitKind> {
    [&machine.stamp].into_iter().chain(&machine.kinds)
}

fn section(machine: &MachineExits) -> Section<'_> {
    let marks = all(machine).enumerate().map(|(i, kind)| {
        let class = if i == 0 { "whole" } else { machine.machine.as_str() };
        Mark { name: kind.label.clone(), shown: html! { (label(kind)) }, class, figure: &kind.time }
    });
    let title = format!("{}, {}", machine.machine, machine.qemu);
    let figure = Figure {
        caption: format!("{} Raw: the first row is what the stamps themselves take.", marks::CAPTION),
        table: Some(table(machine, &title)),
        below: true,
        ..Figure::new(Marks(marks.collect()))
    };
    Section::new(title, vec![Block::Figure(figure)])
}

fn label(kind: &ExitKind) -> String {
    format!("{}{}", kind.label, if kind.emulated { " ‡" } else { "" })
}

fn table(machine: &MachineExits, title: &str) -> Table {
    let time = |of: fn(&Summary) -> f64| move |kind: &&ExitKind| nanoseconds(of(&kind.time));
    Table::of(format!("Exits of {title}"), all(machine))
        .column(Column::words("exit").broken(20, 10), |kind| label(kind))
        .column(Column::figures("n"), |kind| count(kind.time.n))
        .column(Column::figures("min").spare(1), time(|t| t.min_ns))
        .column(Column::figures("p50"), |kind| Cell::strong(nanoseconds(kind.time.p50_ns)))
        .column(Column::figures("p90").spare(2), time(|t| t.p90_ns))
        .column(Column::figures("p99"), time(|t| t.p99_ns))
        .column(Column::figures("max").spare(2), time(|t| t.max_ns))
        .column(Column::figures("mean").spare(3), time(|t| t.mean_ns))
        .done()
        .notes(notes(machine))
}

/// What the mark stands for, and what the kinds' makers say of them.
fn notes(machine: &MachineExits) -> Vec<String> {
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
fn missing(findings: &ExitFindings) -> Vec<String> {
    let one = |(machine, m): (&MachineExits, &Missing)| {
        let fix = if m.fix.is_empty() { String::new() } else { format!(" → {}", m.fix) };
        format!("{} ({}): {}.{fix}", m.what, machine.machine, m.why.trim_end_matches('.'))
    };
    findings.machines.iter().flat_map(|machine| machine.missing.iter().map(move |m| (machine, m))).map(one).collect()
}
