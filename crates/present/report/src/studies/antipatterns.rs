//! `guest-antipatterns`: what each antipattern of guest kernels costs, and its fix.

use crate::engine::{Cell, Notice, Origin, Report, Section, Table, figures, words};
use crate::number::{self, NONE, nanoseconds};
use crate::text::{Joined, only_if, when};
use crate::view;
use crate::view::verdict::{interval, paired_median};
use crate::view::{host, origin};
use vmtax_findings::{AntipatternFindings, AntipatternForm, AntipatternRow, MachineAntipatterns};
use vmtax_model::shell_line;
use vmtax_recording::Recording;

/// Makes the report of guest kernel antipatterns and their fixes.
pub fn report<'a>(recording: &'a Recording, findings: &'a AntipatternFindings) -> Report<'a> {
    let manifest = &recording.manifest;
    Report {
        study: "antipatterns",
        title: "Guest kernel antipatterns and their fixes".to_owned(),
        basis: [vec![when(&manifest.started)], host(recording)].concat(),
        origin: Origin {
            command: shell_line(&manifest.command),
            ..origin(recording)
        },
        answer: findings.machines.iter().filter_map(answer).joined(" "),
        notices: vec![Notice::warnings(view::in_words(&findings.warnings))],
        sections: findings.machines.iter().map(section).collect(),
        method: vec![findings.method.clone()],
        ..Report::default()
    }
}

/// The antipattern that costs most beside its fix.
fn answer(machine: &MachineAntipatterns) -> Option<String> {
    let measured = machine
        .rows
        .iter()
        .filter_map(|row| Some((row, row.ratio?)));
    let (row, most) = measured.max_by(|a, b| a.1.at_least().total_cmp(&b.1.at_least()))?;
    let (antipattern, fix) = (row.antipattern.label(false), row.antipattern.label(true));
    let [before, after] = [&row.before, &row.after].map(|form| time(form.as_ref()));
    let (machine, ratio) = (machine.machine, paired_median(&most));
    Some(format!(
        "Largest cost on {machine}: “{antipattern}” takes {before} instead of {after} (“{fix}”), {ratio}."
    ))
}

fn section(machine: &MachineAntipatterns) -> Section<'_> {
    let columns = vec![
        words("antipattern, → fix").cut(36, 16),
        figures("time each"),
        figures("exits each").spare(2),
        figures("paired ratio"),
        figures("95 % CI").spare(1),
    ];
    let mut table = Table::new(format!("Antipatterns on {}", machine.machine), columns);
    for row in &machine.rows {
        let mark = only_if(row.emulated, " ‡");
        let ratio = row.ratio.as_ref();
        table.first(vec![
            format!("{}{mark}", row.antipattern.label(false)).into(),
            time(row.before.as_ref()).into(),
            exits(row.before.as_ref()).into(),
            Cell::strong(ratio.map_or(NONE.to_owned(), |one| number::ratio(one.median))),
            ratio.map_or(NONE.to_owned(), interval).into(),
        ]);
        let fix = format!("→ {}{mark}", row.antipattern.label(true));
        table.row(vec![
            fix,
            time(row.after.as_ref()),
            exits(row.after.as_ref()),
        ]);
    }
    Section::new(machine.machine.as_str(), [table.notes(notes(machine))])
}

fn time(form: Option<&AntipatternForm>) -> String {
    form.map_or(NONE.to_owned(), |form| nanoseconds(form.ns.median))
}

/// Exits of one, to the tenth: what is below is the host's own interrupts.
fn exits(form: Option<&AntipatternForm>) -> String {
    let Some(exits) = form.and_then(|form| form.exits) else {
        return NONE.to_owned();
    };
    let tenths = (exits * 10.0).round() / 10.0;
    if tenths.fract() == 0.0 {
        format!("{tenths:.0}")
    } else {
        format!("{tenths:.1}")
    }
}

/// Returns the meaning of a mark, and the reasons for missing figures.
fn notes(machine: &MachineAntipatterns) -> Vec<String> {
    let mut notes = Vec::new();
    if machine.rows.iter().any(|row| row.emulated) {
        notes.push(
            "‡ one of the two runs at CPL 0, which this host's KVM emulates: the times are the emulation's.".to_owned(),
        );
    }
    let missing = |row: &AntipatternRow| {
        let which = row.antipattern.label(row.before.is_some());
        format!("{which}: {}.", row.why.trim_end_matches('.'))
    };
    let without = machine.rows.iter().filter(|row| !row.why.is_empty());
    notes.extend(without.map(missing));
    notes
}
