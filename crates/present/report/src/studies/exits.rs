//! `exits`: what one VM exit of each kind costs.

use super::layers::unbroken;
use crate::charts::distributions::{MARKS_CAPTION, Mark, Marks};
use crate::engine::{Cell, Figure, Notice, Origin, Report, Section, Table, figures, words};
use crate::number::{count, nanoseconds};
use crate::text::{Joined, grouped, only_if, when};
use crate::view::{self, not_observed};
use maud::html;
use vmtax_findings::{
    ExitFindings, ExitKind, HANDLED_IN_KVM, HANDLED_IN_QEMU, INTERRUPT_CONTROLLER, MachineExits,
    NO_DEVICE, Summary,
};
use vmtax_model::{Accelerator, shell_line};

/// Makes the report of the costs of VM exits.
pub fn report(findings: &ExitFindings) -> Report<'_> {
    let about = [
        when(&findings.started),
        findings.cpu.clone(),
        format!("Linux {}", findings.kernel),
        findings.kvm.clone(),
    ];
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
            true => "No machine was measured.".to_owned(),
            false if answers.is_empty() => {
                "No exit by KVM or QEMU was measured: the tables have each kind.".to_owned()
            }
            false => answers.join(" "),
        },
        // Advice without a measurement would have figures of none.
        advice: only_if(!findings.machines.is_empty(), findings.advice.clone()),
        notices: vec![
            Notice::missing("Not measured", missing(findings)),
            Notice::warnings(view::in_words(&findings.warnings)),
        ],
        sections: findings.machines.iter().map(section).collect(),
        method: vec![findings.method.clone()],
        ..Report::default()
    }
}

/// Returns a sentence on the cost of exits by the layer that handles them; for TCG, which has no exits, on the cost of
/// accesses.
fn answer(machine: &MachineExits) -> Option<String> {
    let medians = |end: &str| {
        let is_plain = |kind: &&ExitKind| !kind.emulated && !kind.without_exit;
        let kinds = machine
            .kinds
            .iter()
            .filter(|kind| kind.label.ends_with(end));
        let mut all: Vec<f64> = kinds
            .filter(is_plain)
            .map(|kind| kind.time.p50_ns)
            .collect();
        all.sort_by(f64::total_cmp);
        let [low, high] = [*all.first()?, *all.last()?].map(unbroken);
        let to = only_if(low != high, format!(" to {high}"));
        Some(low + &to)
    };
    let kinds = match machine.machine.accelerator() {
        Some(Accelerator::Kvm) => [
            (HANDLED_IN_KVM, "a port or MMIO access handled in KVM"),
            (HANDLED_IN_QEMU, "one handled in QEMU"),
        ],
        _ => [
            (INTERRUPT_CONTROLLER, "an access to an interrupt controller"),
            (NO_DEVICE, "one to an unassigned port or address"),
        ],
    };
    let each = kinds.into_iter();
    let each = each.filter_map(|(end, what)| Some(format!("{what} takes {}", medians(end)?)));
    let (each, on) = (each.joined(", "), machine.machine);
    let without = match on.accelerator() {
        Some(Accelerator::Kvm) => "",
        _ => ", without VM exits,",
    };
    (!each.is_empty()).then(|| format!("On {on}{without} {each} (medians by kind)."))
}

/// The stamps' own cost first, then every kind.
fn all(machine: &MachineExits) -> impl Iterator<Item = &ExitKind> {
    [&machine.stamp].into_iter().chain(&machine.kinds)
}

fn section(machine: &MachineExits) -> Section<'_> {
    let marks = all(machine).enumerate().map(|(i, kind)| {
        let class = if i == 0 {
            "whole"
        } else {
            machine.machine.as_str()
        };
        Mark {
            name: kind.label.clone(),
            shown: html! { (label(kind)) },
            class,
            figure: &kind.time,
        }
    });
    let title = format!("{}, {}", machine.machine, machine.qemu);
    let stamps = all(machine).filter(|kind| kind.label.starts_with("no exit"));
    let stamps = stamps
        .map(|kind| format!("\"{}\"", kind.label))
        .joined(", ");
    let stamps = only_if(
        !stamps.is_empty(),
        format!(" {stamps}: two rdtsc alone, not subtracted."),
    );
    let figure = Figure {
        caption: format!("{MARKS_CAPTION}{stamps}"),
        table: Some(table(machine, &title)),
        below: true,
        ..Figure::new(Marks(marks.collect()))
    };
    Section::new(title, [figure])
}

fn label(kind: &ExitKind) -> String {
    let mark = match (kind.emulated, kind.without_exit) {
        (true, _) => " ‡",
        (false, true) => " †",
        (false, false) => "",
    };
    format!("{}{mark}", kind.label)
}

fn table(machine: &MachineExits, title: &str) -> Table {
    let time = |of: fn(&Summary) -> f64| move |kind: &&ExitKind| nanoseconds(of(&kind.time));
    Table::of(format!("Exits of {title}"), all(machine))
        .column(words("exit").broken(20, 10), |kind| label(kind))
        .column(figures("n").samples(), |kind| count(kind.time.n))
        .column(figures("min").spare(1), time(|t| t.min_ns))
        .column(figures("p50"), |kind| {
            Cell::strong(nanoseconds(kind.time.p50_ns))
        })
        .column(figures("p90").spare(2), time(|t| t.p90_ns))
        .column(figures("p99"), time(|t| t.p99_ns))
        .column(figures("max").spare(2), time(|t| t.max_ns))
        .column(figures("mean").spare(3), time(|t| t.mean_ns))
        .done()
        .notes(notes(machine))
}

/// Returns the meaning of the marks, and the notes of the exit kinds.
fn notes(machine: &MachineExits) -> Vec<String> {
    let emulated = all(machine).any(|k| k.emulated);
    let mark = emulated.then(|| {
        "‡ guest CPL 0, which this host's KVM emulates instruction by instruction: the emulation's cost, not an exit's.".to_owned()
    });
    let without_exit = all(machine).any(|kind| !kind.emulated && kind.without_exit);
    let by_cpu = without_exit.then(|| {
        "† less than a tenth of a cpuid: this host's CPUs do it without a VM exit, as with APICv or AVIC.".to_owned()
    });
    let noted = all(machine).filter(|kind| !kind.note.is_empty());
    let noted = grouped(noted.map(|kind| (kind.note.as_str(), kind.label.as_str())));
    let said = noted
        .iter()
        .map(|(note, labels)| format!("{}: {note}.", labels.join("; ")));
    mark.into_iter().chain(by_cpu).chain(said).collect()
}

/// The kinds that could not be measured.
fn missing(findings: &ExitFindings) -> Vec<String> {
    let of_machine = |machine: &MachineExits| {
        let place = format!(" ({})", machine.machine);
        let missing = machine.missing.iter();
        missing
            .map(|one| not_observed(one, &place))
            .collect::<Vec<_>>()
    };
    findings.machines.iter().flat_map(of_machine).collect()
}
