//! `import`: what traces of other tools say of a VM's exits and requests.

use super::{vm_exits, vm_layers};
use crate::engine::{Block, Column, Notice, Report, Section, Table};
use crate::number::{count, nanoseconds};
use crate::view::{origin, vm};
use vmtax_model::{ImportFindings, ImportedFile, JoinedClock, TraceSide, VmLayers};
use vmtax_recording::Recording;

/// Makes the report of imported traces.
pub fn report<'a>(recording: &'a Recording, found: &'a ImportFindings) -> Report<'a> {
    let of = |side| found.facts.files.iter().any(|file| file.side == side);
    if let Some(layers) = found.layers.as_ref().filter(|_| of(TraceSide::Unknown)) {
        return of_disks(recording, found, layers);
    }
    let origin = origin(recording);
    let exits = found
        .exits
        .as_ref()
        .map(|exits| vm_exits::report(recording, exits));
    let layers = found
        .layers
        .as_ref()
        .map(|layers| vm_layers::report(recording, layers));
    let of_vm = found
        .exits
        .as_ref()
        .map(|exits| &exits.vm)
        .or(found.layers.as_ref().map(|layers| &layers.vm));
    let name = of_vm.map_or_else(|| "a VM".to_owned(), vm::name);
    let missing = found.exits.iter().flat_map(|exits| &exits.missing);
    let of_layers = found.layers.iter().flat_map(vm_layers::missing);
    let missing = vm::missing(missing.chain(of_layers).chain(&found.facts.missing));
    let parts: Vec<Report<'a>> = layers.into_iter().chain(exits).collect();
    let mut report = Report {
        study: "layers",
        title: format!("Imported traces of {name}"),
        basis: [of_vm.map_or_else(Vec::new, vm::basis), files(found)].concat(),
        answer: parts
            .iter()
            .map(|part| part.answer.as_str())
            .collect::<Vec<_>>()
            .join(" ")
            + &lost(found),
        next: vec![format!("{} --details", origin.command)],
        notices: vec![Notice::missing("Not observed", missing)],
        method: found.facts.clocks.iter().map(clock).collect(),
        origin,
        ..Report::default()
    };
    for part in parts {
        report.advice.extend(part.advice);
        report.sections.extend(part.sections);
        report.method.extend(part.method);
    }
    report
        .sections
        .push(Section::new("Files", vec![Block::Table(table(found))]));
    report
}

/// The report of a kernel's block requests of which nothing says that the kernel is a VM's or its host's.
fn of_disks<'a>(
    recording: &'a Recording,
    found: &'a ImportFindings,
    layers: &'a VmLayers,
) -> Report<'a> {
    let origin = origin(recording);
    let answer = layers.requests.first().map_or_else(
        || "No block request of the trace is complete.".to_owned(),
        |first| {
            format!(
                "{} of {} takes {} (mean), from the block layer taking it to its completion.",
                vm_layers::one(first.traced.kind),
                first.disk,
                vm_layers::time(first.gavg.mean_ns)
            )
        },
    );
    let requests = Table::of("Latency by disk", &layers.requests)
        .column(Column::words("disk").broken(16, 8), |row| row.disk.clone())
        .column(Column::words("requests"), |row| row.traced.kind.label())
        .figures(["per s", "in flight", "mean", "p50", "p99"], |row| {
            let [mean, p50, p99] =
                [row.gavg.mean_ns, row.gavg.p50_ns, row.gavg.p99_ns].map(nanoseconds);
            let per_s = vm_layers::rate(row.traced.per_s);
            [per_s, format!("{:.2}", row.in_flight), mean, p50, p99]
        });
    Report {
        study: "layers",
        title: "Imported block trace".to_owned(),
        basis: files(found),
        answer: answer + &lost(found),
        next: vec![format!("{} --details", origin.command)],
        notices: vec![Notice::missing(
            "Not observed",
            vm::missing(found.facts.missing.iter()),
        )],
        sections: vec![
            Section::new("Latency by disk", vec![Block::Table(requests.done())]),
            Section::new("Files", vec![Block::Table(table(found))]),
        ],
        method: vec![layers.layers.method.clone()],
        origin,
        ..Report::default()
    }
}

/// Returns a sentence, behind a space, on the events that files lost; those of the VM exits have their own.
fn lost(found: &ImportFindings) -> String {
    let all: u64 = found.facts.files.iter().map(|file| file.lost).sum();
    let of_exits = found.exits.as_ref().map_or(0, |exits| exits.exits.lost);
    vm_exits::lost(all.saturating_sub(of_exits))
}

/// "imported from host.dat, guest.dat".
fn files(found: &ImportFindings) -> Vec<String> {
    let names: Vec<&str> = found
        .facts
        .files
        .iter()
        .map(|file| file.file.as_str())
        .collect();
    vec![format!("imported from {}", names.join(", "))]
}

fn clock(joined: &JoinedClock) -> String {
    let bound = joined.bound_ns.map_or_else(
        || "unknown error".to_owned(),
        |ns| format!("±{}", nanoseconds(ns)),
    );
    format!("Clock of {}: {} ({bound}).", joined.file, joined.method)
}

fn table(found: &ImportFindings) -> Table {
    let clock = |file: &&ImportedFile| {
        if file.clock.is_empty() {
            "not stated".to_owned()
        } else {
            file.clock.clone()
        }
    };
    Table::of("Files", &found.facts.files)
        .column(Column::words("file").cut(30, 12), |file| file.file.clone())
        .column(Column::words("format"), |file| file.format.clone())
        .column(Column::words("of"), |file| side(file.side))
        .column(Column::words("clock"), clock)
        .figures(["events", "lost", "not read"], |file| {
            [count(file.events), count(file.lost), count(file.unknown)]
        })
        .done()
}

fn side(side: TraceSide) -> &'static str {
    match side {
        TraceSide::Host => "host kernel",
        TraceSide::Guest => "guest kernel",
        TraceSide::Qemu => "QEMU",
        TraceSide::Unknown => "unknown kernel",
    }
}
