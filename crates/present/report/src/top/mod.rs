//! Activity of running VMs, interval by interval: a table, CSV, OpenMetrics; and the counters, which are also columns
//! of the live screen.

mod counters;
mod csv;
mod host_disks;
mod openmetrics;
mod reason;
mod sentence;
mod unit;
mod unknown;

pub use counters::{VM_COUNTERS, VmCounter, top_columns};
pub use csv::{csv_head, csv_rows};
pub use host_disks::host_disks;
pub use openmetrics::openmetrics;
pub use sentence::{level_cost, sentence};
pub use unknown::unknown_columns;

use crate::engine::{Block, Notice, Report, Section, Table, figures, words};
use vmtax_model::number::{NONE, counted, percent};
use vmtax_model::{TopSample, VmRates};

/// The report. The answer is the finding that costs most.
pub fn top(sample: &TopSample) -> Report<'static> {
    let found = sample.vms.iter().filter(|vm| !vm.findings.is_empty());
    let lines: Vec<Block<'static>> = found.map(|vm| Block::Text(line(vm))).collect();
    let mut sections = Vec::new();
    if !sample.vms.is_empty() {
        sections.push(Section::new("", [table(&sample.vms)]));
    }
    if !lines.is_empty() {
        sections.push(Section::new("Findings", lines));
    }
    Report {
        study: "top",
        title: sample.time.clone(),
        answer: answer(sample),
        basis: [level_cost(sample)]
            .into_iter()
            .chain(host_disks(&sample.vms))
            .collect(),
        sections,
        notices: notes(sample),
        ..Report::default()
    }
}

/// A row for each VM.
pub(crate) fn table<'a>(vms: impl IntoIterator<Item = &'a VmRates>) -> Table {
    let mut table = Table::of("VMs", vms).column(words("VM").cut(16, 8), |vm| vm.label());
    for column in top_columns() {
        let head = figures(column.column).spare(column.spare);
        table = table.column(head, |vm| column.text(vm));
    }
    table
        .column(words("busiest thread").cut(20, 10), |vm| busiest(vm))
        .done()
        .naming_left_out()
}

/// The row of a single VM at a level, with what its columns mean, and why a figure is missing.
pub(crate) fn explained(vm: &VmRates, level: u8) -> Table {
    let mut table = table([vm]);
    for column in top_columns() {
        let shown = table
            .columns
            .iter_mut()
            .find(|shown| shown.name == column.column);
        let reason = match (column.value)(vm).is_none() {
            true => format!("; –: {}", (column.unknown)(vm, level)),
            false => String::new(),
        };
        shown.into_iter().for_each(|shown| {
            shown.note = Some(format!("{}: {}{reason}.", column.column, column.what))
        });
    }
    table
}

fn notes(sample: &TopSample) -> Vec<Notice> {
    let of_events = Notice::notes("Notes", sample.notes.clone());
    let of_unknown = Notice::notes("Not known (–)", unknown::of_all(&sample.vms, sample.level));
    [of_events, of_unknown]
        .into_iter()
        .filter(|notice| !notice.items.is_empty())
        .collect()
}

fn answer(sample: &TopSample) -> String {
    let worst = sample
        .vms
        .iter()
        .filter_map(|vm| Some((vm, vm.findings.first()?)));
    match worst.max_by(|a, b| a.1.gain.total_cmp(&b.1.gain)) {
        Some((vm, advice)) => format!("{}: {}", vm.label(), advice.finding),
        None if sample.vms.is_empty() => {
            "No VM runs on this host, or none that this user can see.".to_owned()
        }
        None => format!(
            "{}, no known problem in this interval{}.",
            counted(sample.vms.len() as u64, "VM"),
            not_known_to_run(&sample.vms)
        ),
    }
}

/// A clause that names the VMs whose vCPUs did not run and whose monitor does not tell why; empty without one.
fn not_known_to_run(vms: &[VmRates]) -> String {
    let may_be_paused = vms.iter().filter(|vm| vm.may_be_paused());
    let names: Vec<String> = may_be_paused.map(VmRates::label).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => format!("; whether {one} is halted or paused is not known"),
        several => format!(
            "; whether {} VMs are halted or paused is not known",
            several.len()
        ),
    }
}

fn line(vm: &VmRates) -> String {
    let (text, next) = sentence(vm);
    let next = next.map_or(String::new(), |next| format!(" Next: {next}"));
    format!("{}: {text}{next}", vm.label())
}

/// The busiest thread with its role.
fn busiest(vm: &VmRates) -> String {
    vm.busiest().map_or(NONE.to_owned(), |thread| {
        format!("{} {}", thread.role.label(), percent(thread.run))
    })
}
