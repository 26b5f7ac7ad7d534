//! `layers --device net --vm`: where the time of a running VM's packets goes, as its host sees them.

use super::layers::{self, largest_layers, largest_states, words};
use super::vm_layers::{rate, traced};
use crate::engine::{Block, Cell, Column, Report, Section, Table};
use crate::number::{count, counted, nanoseconds};
use crate::view::vm;
use vmtax_model::{LayerColumn, RequestKind, VmLayers, VmPackets};
use vmtax_recording::Recording;

/// Makes the report of the packets of a running VM, layer by layer.
pub fn report<'a>(recording: &'a Recording, found: &'a VmLayers) -> Report<'a> {
    Report {
        answer: answer(found),
        sections: sections(found),
        ..traced(recording, found, "Packets", "packets")
    }
}

/// A sentence or two for each direction of the card with most packet time.
fn answer(found: &VmLayers) -> String {
    let (name, seconds) = (vm::name(&found.vm), found.seconds);
    let Some(first) = found.packets.first() else {
        let why = vm::stopped(&found.vm, &name).map_or(String::new(), |why| format!(": {why}"));
        return format!("No packet of {name} passed its taps in {seconds:.1} s{why}.");
    };
    let of_card = found
        .packets
        .iter()
        .zip(&found.layers.columns)
        .filter(|(packets, _)| packets.tap == first.tap);
    of_card
        .map(|(packets, column)| direction(packets, column))
        .collect::<Vec<_>>()
        .join(" ")
}

/// "A packet that the guest sends takes 62 µs on the host, from the doorbell to the host's stack (vnet0, mean). Of this …".
fn direction(packets: &VmPackets, column: &LayerColumn) -> String {
    let tap = &packets.tap;
    if packets.followed == 0 {
        return format!(
            "None of the {} of {tap} could be followed: below is why.",
            packets.kind.label()
        );
    }
    let way = match packets.kind {
        RequestKind::Transmit => {
            "sends takes {} on the host, from the doorbell to the host's stack"
        }
        _ => "receives takes {} on the host, from its stack to the interrupt",
    };
    let time = nanoseconds(packets.time.mean_ns).replace(' ', "\u{a0}");
    let (states, layers) = (largest_states(column), largest_layers(column));
    format!(
        "A packet that the guest {} ({tap}, mean). Of this {states}. {layers}",
        way.replace("{}", &time)
    )
}

fn sections(found: &VmLayers) -> Vec<Section<'_>> {
    if found.packets.is_empty() {
        return Vec::new();
    }
    let mut all = vec![Section::new(
        "Latency by tap",
        vec![Block::Table(latencies(found))],
    )];
    all.extend(layers::pictures(&found.layers));
    let others = found.layers.columns.iter().skip(1);
    all.extend(others.flat_map(|column| layers::sums_and_segments(column)));
    let quality = found
        .packets
        .iter()
        .zip(&found.layers.columns)
        .map(|(packets, column)| {
            let thread = if packets.thread.is_empty() {
                String::new()
            } else {
                format!(" ({})", packets.thread)
            };
            let batches = packets
                .batching
                .iter()
                .map(|batching| format!("{:.2} {}", batching.mean(), batching.kind.label()));
            let batches = batches.collect::<Vec<_>>().join(", ");
            let batches = if batches.is_empty() {
                batches
            } else {
                format!(" Packets: {batches}.")
            };
            Block::Text(format!(
                "{}{thread}: {}.{batches}",
                column.variant,
                words::matched(column, 1)
            ))
        });
    let control = Block::Text(
        "Tracing overhead: not measured, a running VM has no untraced run of the same packets."
            .to_owned(),
    );
    all.push(Section::new("", quality.chain([control]).collect()));
    all.extend(layers::details(&found.layers));
    all
}

/// The short form: a line for each card and direction.
fn latencies(found: &VmLayers) -> Table {
    let mut table = Table::new(
        "Latency by tap",
        vec![
            Column::words("tap").broken(16, 8),
            Column::words(""),
            Column::figures("packets"),
            Column::figures("per s"),
            Column::figures("mean"),
            Column::figures("p50").spare(2),
            Column::figures("p99").spare(1),
        ],
    );
    for packets in &found.packets {
        let times = [
            packets.time.mean_ns,
            packets.time.p50_ns,
            packets.time.p99_ns,
        ]
        .map(nanoseconds);
        let words = [
            packets.tap.clone(),
            packets.kind.label().to_owned(),
            count(packets.packets),
        ];
        let cells = words.into_iter().chain([rate(packets.per_s)]).chain(times);
        table.row(cells.map(Cell::from).collect::<Vec<_>>());
    }
    let mut notes = vec![
        "Transmitted: from the doorbell to the receipt by the host's stack; received: from the tap's queue to the interrupt's delivery. \
         The guest's own part is outside."
            .to_owned(),
    ];
    if !found.idle.is_empty() {
        notes.push(format!(
            "{} without packets: {}.",
            counted(found.idle.len() as u64, "tap"),
            found.idle.join(", ")
        ));
    }
    table.notes(notes)
}
