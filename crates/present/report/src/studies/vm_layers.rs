//! `layers --vm`: where the time of a running VM's requests goes, as its host sees them.

use super::layers::{self, largest_layers, largest_states, words};
use crate::engine::{Block, Cell, Column, Notice, Report, Section, Table};
use crate::number::{NONE, count, counted, nanoseconds};
use crate::text::when;
use crate::view::{host, origin, vm};
use vmtax_model::{LayerColumn, Missing, RequestKind, Summary, VmLayers, VmRequests};
use vmtax_recording::Recording;

/// Makes the report of the block requests of a running VM, layer by layer.
pub fn report<'a>(recording: &'a Recording, found: &'a VmLayers) -> Report<'a> {
    let main = found.requests.first().zip(found.layers.columns.first());
    Report {
        answer: main.map_or_else(
            || idle(found),
            |(requests, column)| answer(requests, column),
        ),
        sections: sections(found),
        ..traced(recording, found, "Block requests", "requests")
    }
}

/// Makes the parts of the report that every traced VM has: `title` and `traced` name the kind of operation that was
/// traced.
pub(super) fn traced<'a>(
    recording: &'a Recording,
    found: &'a VmLayers,
    title: &str,
    traced: &str,
) -> Report<'a> {
    let (origin, name) = (origin(recording), vm::name(&found.vm));
    let time = format!("traced for {:.1} s", found.seconds);
    let ended = || {
        format!(
            "{name} ended after {:.1} s: the figures are of the {traced} until then.",
            found.seconds
        )
    };
    Report {
        study: "layers",
        title: format!("{title} of {name}, by layer and state"),
        basis: [
            vm::basis(&found.vm),
            vec![time, when(&recording.manifest.started)],
            host(recording),
        ]
        .concat(),
        next: vec![
            format!("{} --details", origin.command),
            format!("vmtax profile --vm {}", found.vm.pid),
        ],
        advice: found.layers.advice.clone(),
        notices: vec![
            Notice::missing("Not observed", vm::missing(missing(found))),
            Notice::warnings(found.ended.then(ended).into_iter().collect()),
        ],
        method: if found.layers.columns.is_empty() {
            Vec::new()
        } else {
            vec![found.layers.method.clone()]
        },
        origin,
        ..Report::default()
    }
}

/// Returns the data that could not be observed of the VM's requests.
pub(super) fn missing(found: &VmLayers) -> impl Iterator<Item = &Missing> {
    found
        .layers
        .columns
        .iter()
        .flat_map(|column| &column.missing)
        .chain(&found.missing)
}

/// That there is nothing to follow is an answer, too.
fn idle(found: &VmLayers) -> String {
    let (name, seconds) = (vm::name(&found.vm), found.seconds);
    if found
        .missing
        .iter()
        .any(|missing| missing.what == VmLayers::REQUESTS)
    {
        return format!(
            "The requests of {name} cannot be followed in this build of QEMU: below is why."
        );
    }
    if !found.not_followed.is_empty() && found.idle.is_empty() {
        let disks = found.not_followed.join(", ");
        return format!(
            "The requests of {name} cannot be followed: the trace does not show those of {disks}."
        );
    }
    let why =
        vm::stopped(&found.vm, &name).unwrap_or_else(|| "none of its disks was used".to_owned());
    format!("No requests of {name} in {seconds:.1} s: {why}.")
}

/// "A read of vda takes 412 µs on the host (GAVG, mean): 250 µs at the device (DAVG), 162 µs above it (KAVG). …".
fn answer(requests: &VmRequests, column: &LayerColumn) -> String {
    let time = |ns: f64| nanoseconds(ns).replace(' ', "\u{a0}");
    let kind = one(requests.kind);
    let disk = &requests.disk;
    if requests.followed == 0 {
        return format!(
            "None of {} to {disk} could be followed: below is why.",
            requests.kind.label()
        );
    }
    let parts = requests
        .kavg
        .as_ref()
        .zip(requests.davg.as_ref())
        .map_or_else(
            || "; its time at the host's device is not observed".to_owned(),
            |(k, d)| {
                format!(
                    ": {} at the host's device (DAVG) and {} above it (KAVG)",
                    time(d.mean_ns),
                    time(k.mean_ns)
                )
            },
        );
    let (states, layers) = (largest_states(column), largest_layers(column));
    let gavg = time(requests.gavg.mean_ns);
    let scope = if column.from_host {
        "on the host (GAVG, mean)"
    } else {
        "from the guest's block layer on (GAVG, mean)"
    };
    // Where only the guest's trace shows them, the host's device does not.
    let parts = if column.from_host || requests.davg.is_some() {
        parts
    } else {
        String::new()
    };
    format!("{kind} of {disk} takes {gavg} {scope}{parts}. Of this {states}. {layers}")
}

/// A request of a kind, at the begin of a sentence.
fn one(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Read => "A read",
        RequestKind::Write => "A write",
        RequestKind::Flush => "A flush",
        RequestKind::Discard => "A discard",
        RequestKind::Other | RequestKind::Transmit | RequestKind::Receive => "A request",
    }
}

fn sections(found: &VmLayers) -> Vec<Section<'_>> {
    if found.requests.is_empty() {
        return Vec::new();
    }
    let mut all = vec![Section::new(
        "Latency by disk",
        vec![Block::Table(latencies(found))],
    )];
    all.extend(layers::pictures(&found.layers));
    let quality = found
        .requests
        .iter()
        .zip(&found.layers.columns)
        .map(|(requests, column)| {
            let thread = if requests.thread.is_empty() {
                String::new()
            } else {
                format!(" ({})", requests.thread)
            };
            let clock = if column.from_host {
                String::new()
            } else {
                format!(" Clock error: {}.", words::clock(column))
            };
            Block::Text(format!(
                "{}{thread}: {}.{clock}",
                column.variant,
                words::matched(column, 1)
            ))
        });
    let control = Block::Text(
        "Tracing overhead: not measured, a running VM has no untraced run of the same requests."
            .to_owned(),
    );
    all.push(Section::new("", quality.chain([control]).collect()));
    all.extend(layers::details(&found.layers));
    all
}

/// The short form: a line for each disk and kind.
pub(super) fn latencies(found: &VmLayers) -> Table {
    let columns = vec![
        Column::words("disk").broken(16, 8),
        Column::words("requests"),
        Column::figures("per s"),
        Column::figures("in flight").spare(3),
    ];
    let averages = ["GAVG", "KAVG", "DAVG"].map(|name| {
        [
            Column::figures(format!("{name} mean")),
            Column::figures("p50").spare(2),
            Column::figures("p99").spare(1),
        ]
    });
    let mut table = Table::new(
        "Latency by disk",
        columns
            .into_iter()
            .chain(averages.into_iter().flatten())
            .collect(),
    )
    .naming_left_out();
    for requests in &found.requests {
        let latency_cells = |average: Option<&Summary>| {
            average.map_or([NONE.to_owned(), NONE.to_owned(), NONE.to_owned()], |a| {
                [a.mean_ns, a.p50_ns, a.p99_ns].map(nanoseconds)
            })
        };
        let words = [
            requests.disk.clone(),
            requests.kind.label().to_owned(),
            rate(requests.per_s),
        ];
        let figures = [
            latency_cells(Some(&requests.gavg)),
            latency_cells(requests.kavg.as_ref()),
            latency_cells(requests.davg.as_ref()),
        ]
        .concat();
        let cells = words
            .into_iter()
            .chain([format!("{:.2}", requests.in_flight)])
            .chain(figures);
        table.row(cells.map(Cell::from).collect::<Vec<_>>());
    }
    table.notes(notes(found))
}

pub(super) fn rate(per_s: f64) -> String {
    if per_s < 10.0 {
        format!("{per_s:.1}")
    } else {
        count(per_s.round() as u64)
    }
}

/// Returns the meaning of the columns, a description of the disks, and the disks that were not used.
fn notes(found: &VmLayers) -> Vec<String> {
    let is_from_host = found
        .layers
        .columns
        .first()
        .is_none_or(|column| column.from_host);
    let scope = if is_from_host {
        "GAVG = KAVG + DAVG: from the guest's kick to the interrupt's delivery, as far as they are seen; DAVG the part at the host's device, KAVG the rest: \
         notification, QEMU, host kernel, interrupt. The guest's own part is outside."
    } else if found
        .requests
        .iter()
        .any(|requests| requests.davg.is_some())
    {
        "GAVG = KAVG + DAVG: from the guest's block layer taking a request to its completion there; DAVG the part at the host's \
         device, KAVG the rest: guest kernel, notification, QEMU, host kernel, interrupt."
    } else {
        "GAVG: from the guest's block layer taking a request to its completion there."
    };
    let mut notes = vec![scope.to_owned()];
    let mut disks: Vec<&VmRequests> = Vec::new();
    for requests in &found.requests {
        if !disks.iter().any(|known| known.disk == requests.disk) {
            disks.push(requests);
        }
    }
    let named = disks.into_iter().filter_map(|requests| {
        let format = requests
            .format
            .as_ref()
            .map_or(String::new(), |format| format!(" ({format})"));
        Some(format!(
            "{}: {}{format}.",
            requests.disk,
            requests.file.as_ref()?
        ))
    });
    notes.extend(named);
    if !found.idle.is_empty() {
        let disks = counted(found.idle.len() as u64, "disk");
        notes.push(format!(
            "{disks} without requests: {}.",
            found.idle.join(", ")
        ));
    }
    notes
}
