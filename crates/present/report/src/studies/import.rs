//! `import`: what traces of other tools say of a VM's exits and requests.

use super::layers::unbroken;
use super::profile::exits::per_s;
use super::{vm_exits, vm_layers};
use crate::engine::{Notice, Report, Section, Table, Tile, words};
use crate::number::{count, nanoseconds};
use crate::text::{Joined, only_if};
use crate::view::{origin, vm};
use vmtax_findings::{ImportFindings, VmLayers};
use vmtax_model::{ImportedFile, JoinedClock, TraceSide, VmFacts};
use vmtax_recording::Recording;

/// Makes the report of imported traces.
pub fn report<'a>(recording: &'a Recording, found: &'a ImportFindings) -> Report<'a> {
    let has_side = |side| found.facts.files.iter().any(|file| file.side == side);
    if let Some(layers) = found
        .layers
        .as_ref()
        .filter(|_| has_side(TraceSide::Unknown))
    {
        return of_disks(recording, found, layers);
    }
    let origin = origin(recording);
    let (exits, layers) = (found.exits.as_ref(), found.layers.as_ref());
    let of_vm = exits
        .map(|exits| &exits.vm)
        .or(layers.map(|layers| &layers.vm));
    let name = of_vm.map_or_else(|| "a VM".to_owned(), vm::name);
    let missing = exits.into_iter().flat_map(|exits| &exits.missing);
    let of_layers = layers.into_iter().flat_map(vm_layers::missing);
    let missing = vm::missing(missing.chain(of_layers).chain(&found.facts.missing));
    let layers = layers.map(|layers| vm_layers::report(recording, layers));
    let exits = exits.map(|exits| vm_exits::report(recording, exits));
    let parts: Vec<Report<'a>> = layers.into_iter().chain(exits).collect();
    let mut report = Report {
        study: "layers",
        title: format!("Imported traces of {name}"),
        basis: [of_vm.map_or_else(Vec::new, described), files(found)].concat(),
        answer: parts.first().map_or("", |part| &part.answer).to_owned() + &lost(found),
        next: vec![format!("{} --details", origin.command)],
        notices: vec![Notice::not_observed(missing)],
        method: found.facts.clocks.iter().map(clock).collect(),
        origin,
        ..Report::default()
    };
    for (number, part) in parts.into_iter().enumerate() {
        // The first one's is the report's answer.
        report.tiles.extend((number > 0).then(|| Tile {
            text: part.answer,
            ..Tile::default()
        }));
        report.tiles.extend(part.tiles);
        report.advice.extend(part.advice);
        report.sections.extend(part.sections);
        report.method.extend(part.method);
    }
    let files = Section::new("Files", [table(found)]);
    report.sections.push(files);
    report
}

/// The basis of a VM; without its name where the title has all that is known of it.
fn described(vm: &VmFacts) -> Vec<String> {
    let mut basis = vm::basis(vm);
    if vm.pid == 0 {
        basis.remove(0);
    }
    basis
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
                "{} of {} takes {} (mean) from issue to completion in the block layer.",
                vm_layers::one(first.traced.kind),
                first.disk,
                unbroken(first.gavg.mean_ns)
            )
        },
    );
    let requests = Table::of("Latency by disk", &layers.requests)
        .column(words("disk").broken(16, 8), |row| row.disk.clone())
        .column(words("requests"), |row| row.traced.kind.label())
        .figures(["per s", "in flight", "mean", "p50", "p99"], |row| {
            let [mean, p50, p99] =
                [row.gavg.mean_ns, row.gavg.p50_ns, row.gavg.p99_ns].map(nanoseconds);
            let rate = per_s(row.traced.per_s);
            [rate, format!("{:.2}", row.in_flight), mean, p50, p99]
        });
    Report {
        study: "layers",
        title: "Imported block trace".to_owned(),
        basis: files(found),
        answer: answer + &lost(found),
        next: vec![format!("{} --details", origin.command)],
        notices: vec![Notice::not_observed(vm::missing(
            found.facts.missing.iter(),
        ))],
        sections: vec![
            Section::new("Latency by disk", [requests.done()]),
            Section::new("Files", [table(found)]),
        ],
        method: vec![layers.layers.method.clone()],
        origin,
        ..Report::default()
    }
}

/// Returns sentences, behind a space, on the events that files lost; that of the VM exits says their number itself.
fn lost(found: &ImportFindings) -> String {
    let all: u64 = found.facts.files.iter().map(|file| file.lost).sum();
    let of_exits = found.exits.as_ref().map_or(0, |exits| exits.exits.lost);
    let remedy = only_if(all > 0, " Record again with larger buffers.");
    vm_exits::lost(all.saturating_sub(of_exits)) + remedy
}

/// "imported from host.dat, guest.dat".
fn files(found: &ImportFindings) -> Vec<String> {
    let names = found.facts.files.iter().map(|file| file.file.as_str());
    vec![format!("imported from {}", names.joined(", "))]
}

fn clock(joined: &JoinedClock) -> String {
    let bound = joined.bound_ns.map(|ns| format!("±{}", nanoseconds(ns)));
    let bound = bound.unwrap_or("unknown error".to_owned());
    format!("Clock of {}: {} ({bound}).", joined.file, joined.method)
}

fn table(found: &ImportFindings) -> Table {
    let clock = |file: &&ImportedFile| match file.clock.as_str() {
        "" => "not stated".to_owned(),
        clock => clock.to_owned(),
    };
    Table::of("Files", &found.facts.files)
        .column(words("file").cut(30, 12), |file| file.file.clone())
        .column(words("format"), |file| file.format.clone())
        .column(words("of"), |file| side(file.side))
        .column(words("clock"), clock)
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
