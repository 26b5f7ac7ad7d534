//! Requests of a command's guests to their disks, and packets of their network cards, beside the cost of the command.

use super::layers::{self, sentences};
use crate::engine::{Block, Section, Table, figures, words};
use crate::number::{bytes, count, nanoseconds, percent, value};
use crate::text::only_if;
use crate::view;
use vmtax_findings::{CommandLayers, DeviceUse, ExecFindings, KindUse, LayerColumn, UsedKinds};
use vmtax_model::{DeviceClass, Metric, Unit};

/// Each disk's use, then where the time of a request goes; the same of the network cards, direction by direction.
pub fn sections<'a>(found: &'a CommandLayers, exec: &ExecFindings) -> Vec<Section<'a>> {
    let device = |used| device(used, exec);
    let mut all: Vec<Section<'a>> = found.disks.iter().map(device).collect();
    all.extend(layers::brief(&found.layers, 1));
    all.extend(layers::details(&found.layers));
    if let Some(packets) = &found.packets {
        all.extend(packets.nics.iter().map(device));
        let directions = packets.nics.iter().flat_map(|nic| nic.kinds.all());
        let columns = packets.layers.columns.iter().zip(directions);
        let quality = columns.map(|(column, used)| quality(column, used));
        let (class, untraced) = (
            DeviceClass::Net,
            "not measured, the untraced runs do not time packets",
        );
        all.extend(layers::of_runs(&packets.layers, class, quality, untraced));
    }
    all
}

fn device<'a>(used: &DeviceUse, exec: &ExecFindings) -> Section<'a> {
    let what = match used.kinds {
        UsedKinds::Kinds(_) => "Requests to the scratch disk",
        UsedKinds::Directions(_) => "Packets of the NIC",
    };
    let title = format!("{what} on {} (one more run, traced)", used.machine);
    let table = (!used.kinds.all().is_empty()).then(|| Block::Table(table(used, &title)));
    let sentence = Block::Text(sentence(used, exec));
    Section::new(title, table.into_iter().chain([sentence]))
}

/// Returns a sentence on the part of the command's time in which requests were in flight.
fn sentence(used: &DeviceUse, exec: &ExecFindings) -> String {
    let took = took(used, exec);
    match &used.kinds {
        UsedKinds::Kinds(kinds) if kinds.is_empty() => {
            format!("No request reached the disk: the guest kept all in its memory. {took}")
        }
        UsedKinds::Directions(kinds) if kinds.is_empty() => {
            format!("No packet passed the NIC: the command did not use it. {took}")
        }
        UsedKinds::Kinds(_) => {
            let share = percent(used.under_way_s / used.observed_s.max(f64::MIN_POSITIVE));
            format!(
                "At least one request was in flight for {} ({share} of the time), so disk I/O accounts for at most {share} of it. \
                 {took}",
                seconds(used.under_way_s)
            )
        }
        UsedKinds::Directions(_) => took,
    }
}

/// Returns a sentence on the duration of a traced run, beside the untraced ones, and on the part of it that was
/// observed.
fn took(used: &DeviceUse, exec: &ExecFindings) -> String {
    let mut rows = exec.overheads.rows.iter();
    let row = rows.find(|row| row.metric == Metric::ExecWall);
    let spread = row.and_then(|row| view::column(row, used.machine)?.spread.as_ref());
    let untraced = spread.map_or(String::new(), |spread| {
        format!(", the untraced ones {} (median)", seconds(spread.median))
    });
    let part = only_if(
        used.observed_s < used.wall_s,
        format!(
            " Its first {} alone were observed: then the buffers for events were full.",
            seconds(used.observed_s)
        ),
    );
    format!("This run took {}{untraced}.{part}", seconds(used.wall_s))
}

fn seconds(s: f64) -> String {
    value(Unit::Seconds, s)
}

/// Returns the number of packets followed, how they were batched, and the accuracy.
fn quality(column: &LayerColumn, used: &KindUse) -> String {
    let corrected = sentences::corrected(column).map_or(String::new(), |text| {
        format!(" Corrected for tracing: {text}.")
    });
    format!(
        "{}, {}: {}.{} Clock error: {}.{corrected}",
        column.machine,
        used.kind.label(),
        sentences::matched(column, 1),
        sentences::batches(used.batching.as_deref().unwrap_or_default()),
        sentences::clock(column)
    )
}

fn table(used: &DeviceUse, title: &str) -> Table {
    let is_disk = matches!(used.kinds, UsedKinds::Kinds(_));
    let number = if is_disk { "requests" } else { "packets" };
    let table = Table::of(title, used.kinds.all())
        .column(words(""), |kind| kind.kind.label())
        .column(figures(number).samples(), |kind| count(kind.count.number()))
        .column(figures("bytes").spare(4), |kind| bytes(kind.bytes));
    let p50 = |kind: &&KindUse| nanoseconds(kind.time.p50_ns);
    let (table, notes) = if is_disk {
        let table = table
            .column(figures("each").spare(1), |kind| sizes(kind))
            .column(figures("p50"), p50);
        (table, Vec::new())
    } else {
        let table = table
            .column(figures("mean"), |kind| nanoseconds(kind.time.mean_ns))
            .column(figures("p50").spare(1), p50);
        let note = "Transmitted: from the guest's stack to QEMU's backend; received: from there to the guest's stack.";
        (table, vec![note.to_owned()])
    };
    table
        .column(figures("p99").spare(3), |one| nanoseconds(one.time.p99_ns))
        .column(figures("longest").spare(2), |one| {
            nanoseconds(one.time.max_ns)
        })
        .column(figures("matched"), |kind| count(kind.followed))
        .done()
        .notes(notes)
}

/// The shortest and the longest.
fn sizes(kind: &KindUse) -> String {
    match (kind.sizes.first(), kind.sizes.last()) {
        (Some((low, _)), Some((high, _))) if low == high => size(*low),
        (Some((low, _)), Some((high, _))) => format!("{}–{}", size(*low), size(*high)),
        _ => String::new(),
    }
}

/// Without a fraction of zeros: lengths are powers of two as a rule.
fn size(length: u64) -> String {
    let zeros = [".000 ", ".00 ", ".0 "];
    zeros
        .iter()
        .fold(bytes(length), |text, zeros| text.replace(zeros, " "))
}
