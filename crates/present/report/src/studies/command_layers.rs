//! Requests of a command's guests to their disks, beside the cost of the command.

use super::layers;
use crate::engine::{Block, Column, Section, Table};
use crate::number::{bytes, count, nanoseconds, percent, value};
use vmtax_model::{CommandLayers, DiskUse, ExecFindings, KindUse, Machine, Metric, Unit};

/// Each disk's use, then where the time of a request goes.
pub fn sections<'a>(found: &'a CommandLayers, exec: &ExecFindings) -> Vec<Section<'a>> {
    let disks = found.disks.iter().map(|disk| {
        let title = format!(
            "Requests to the scratch disk on {} (one more run, traced)",
            disk.machine
        );
        let table = (!disk.kinds.is_empty()).then(|| Block::Table(table(disk, &title)));
        let blocks = table
            .into_iter()
            .chain([Block::Text(sentence(disk, exec))])
            .collect();
        Section::new(title, blocks)
    });
    disks
        .chain(layers::brief(&found.layers, 1))
        .chain(layers::details(&found.layers))
        .collect()
}

/// Returns a sentence on the part of the command's time in which requests were in flight.
fn sentence(disk: &DiskUse, exec: &ExecFindings) -> String {
    let took = took(disk.machine, disk.wall_s, disk.observed_s, exec);
    if disk.kinds.is_empty() {
        return format!("No request reached the disk: the guest kept all in its memory. {took}");
    }
    let share = percent(disk.under_way_s / disk.observed_s.max(f64::MIN_POSITIVE));
    format!(
        "At least one request was in flight for {} ({share} of the time), so disk I/O accounts for at most {share} of it. \
         {took}",
        seconds(disk.under_way_s)
    )
}

/// Returns a sentence on the duration of a traced run, beside the untraced ones, and on the part of it that was
/// observed.
pub(super) fn took(machine: Machine, wall_s: f64, observed_s: f64, exec: &ExecFindings) -> String {
    let row = exec
        .overheads
        .rows
        .iter()
        .find(|row| row.metric == Metric::ExecWall);
    let column = row.and_then(|row| row.machines.iter().find(|c| c.machine == machine));
    let untraced = column
        .and_then(|c| c.spread.as_ref())
        .map_or(String::new(), |spread| {
            format!(", the untraced ones {} (median)", seconds(spread.median))
        });
    let part = if observed_s < wall_s {
        format!(
            " Its first {} alone were observed: then the buffers for events were full.",
            seconds(observed_s)
        )
    } else {
        String::new()
    };
    format!("This run took {}{untraced}.{part}", seconds(wall_s))
}

fn seconds(s: f64) -> String {
    value(Unit::Seconds, s)
}

fn table(disk: &DiskUse, title: &str) -> Table {
    Table::of(title, &disk.kinds)
        .column(Column::words(""), |kind| kind.kind.label())
        .column(Column::figures("requests"), |kind| count(kind.requests))
        .column(Column::figures("bytes").spare(4), |kind| bytes(kind.bytes))
        .column(Column::figures("each").spare(1), |kind| sizes(kind))
        .column(Column::figures("p50"), |kind| nanoseconds(kind.time.p50_ns))
        .column(Column::figures("p99").spare(3), |kind| {
            nanoseconds(kind.time.p99_ns)
        })
        .column(Column::figures("longest").spare(2), |kind| {
            nanoseconds(kind.time.max_ns)
        })
        .column(Column::figures("matched"), |kind| count(kind.followed))
        .done()
}

/// The shortest and the longest.
fn sizes(kind: &KindUse) -> String {
    match (kind.sizes.first(), kind.sizes.last()) {
        (Some((low, _)), Some((high, _))) if low == high => size(*low),
        (Some((low, _)), Some((high, _))) => format!("{}–{}", size(*low), size(*high)),
        _ => String::new(),
    }
}

/// Without a invalid fraction: lengths are powers of two as a rule.
fn size(length: u64) -> String {
    bytes(length)
        .replace(".000 ", " ")
        .replace(".00 ", " ")
        .replace(".0 ", " ")
}
