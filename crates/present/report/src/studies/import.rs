//! `import`: what traces of other tools say of a VM's exits and requests.

use super::{vm_exits, vm_layers};
use crate::engine::{Notice, Report, Section, Table, words};
use crate::number::{count, nanoseconds};
use crate::text::Joined;
use crate::view::{origin, vm};
use vmtax_model::{ImportFindings, ImportedFile, JoinedClock, TraceSide};
use vmtax_recording::Recording;

/// Makes the report of imported traces.
pub fn report<'a>(recording: &'a Recording, found: &'a ImportFindings) -> Report<'a> {
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
        answer: parts.iter().map(|part| part.answer.as_str()).joined(" "),
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
    report.sections.push(Section::new("Files", [table(found)]));
    report
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
    }
}
