//! The packets of the network cards of a command's guests, beside what the command cost.

use super::command_layers::took;
use super::layers::{self, words};
use crate::engine::{Block, Column, Section, Table};
use crate::number::{bytes, count, nanoseconds};
use vmtax_model::{CommandPackets, ExecFindings, LayerColumn, NicUse, PacketUse};

/// Each card's use, then where the time of a packet goes, direction by direction.
pub fn sections<'a>(found: &'a CommandPackets, exec: &ExecFindings) -> Vec<Section<'a>> {
    let nics = found.nics.iter().map(|nic| {
        let title = format!(
            "Packets of the network card on {} (one more run, traced)",
            nic.machine
        );
        let table = (!nic.directions.is_empty()).then(|| Block::Table(table(nic, &title)));
        let blocks = table
            .into_iter()
            .chain([Block::Text(sentence(nic, exec))])
            .collect();
        Section::new(title, blocks)
    });
    let mut all: Vec<Section<'a>> = nics.collect();
    if found.layers.columns.is_empty() {
        return all;
    }
    all.extend(layers::pictures(&found.layers));
    all.extend(
        found
            .layers
            .columns
            .iter()
            .skip(1)
            .flat_map(layers::sums_and_segments),
    );
    let directions = found.nics.iter().flat_map(|nic| &nic.directions);
    let quality = found
        .layers
        .columns
        .iter()
        .zip(directions)
        .map(|(column, used)| Block::Text(quality(column, used)));
    let overhead =
        "Tracing overhead: not measured, the untraced runs do not time packets.".to_owned();
    all.push(Section::new(
        "",
        quality.chain([Block::Text(overhead)]).collect(),
    ));
    all.extend(layers::details(&found.layers));
    all
}

fn sentence(nic: &NicUse, exec: &ExecFindings) -> String {
    let took = took(nic.machine, nic.wall_s, nic.observed_s, exec);
    if nic.directions.is_empty() {
        return format!("No packet passed the network card: the command did not use it. {took}");
    }
    took
}

/// Returns the number of packets followed, how they were batched, and the accuracy.
fn quality(column: &LayerColumn, used: &PacketUse) -> String {
    let batched = used
        .batching
        .iter()
        .map(|batching| format!("{:.2} {}", batching.mean(), batching.kind.label()));
    let batched = batched.collect::<Vec<_>>().join(", ");
    let batched = if batched.is_empty() {
        batched
    } else {
        format!(" Packets: {batched}.")
    };
    let corrected = words::corrected(column).map_or(String::new(), |text| {
        format!(" Corrected for tracing: {text}.")
    });
    format!(
        "{}, {}: {}.{batched} Clock error: {}.{corrected}",
        column.machine,
        used.kind.label(),
        words::matched(column, 1),
        words::clock(column)
    )
}

fn table(nic: &NicUse, title: &str) -> Table {
    Table::of(title, &nic.directions)
        .column(Column::words(""), |used| used.kind.label())
        .column(Column::figures("packets"), |used| count(used.packets))
        .column(Column::figures("bytes").spare(4), |used| bytes(used.bytes))
        .column(Column::figures("mean"), |used| nanoseconds(used.time.mean_ns))
        .column(Column::figures("p50").spare(1), |used| nanoseconds(used.time.p50_ns))
        .column(Column::figures("p99").spare(3), |used| nanoseconds(used.time.p99_ns))
        .column(Column::figures("longest").spare(2), |used| nanoseconds(used.time.max_ns))
        .column(Column::figures("matched"), |used| count(used.followed))
        .done()
        .notes(vec![
            "Transmitted: from the guest's stack to QEMU's backend; received: from there to the guest's stack."
                .to_owned(),
        ])
}
