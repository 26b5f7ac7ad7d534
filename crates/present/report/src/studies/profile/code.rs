//! Code that a guest's vCPUs execute.

use super::share::percent;
use crate::engine::{Block, Cell, Column, Section, Table};
use crate::number::{count, counted, nanoseconds};
use vmtax_model::{CodePlace, GuestCode};

/// Addresses that a terminal shows without details, and that a page lists.
const SHOWN: (usize, usize) = (8, 40);

/// Where the vCPUs were.
pub fn section(code: &GuestCode) -> Section<'_> {
    let title = format!("Guest code of the vCPUs: {}", counted(code.looks, "sample"));
    let table = Table::of("Where the vCPUs were", code.places.iter().take(SHOWN.1))
        .column(Column::words("address"), |place| {
            format!("{:#x}", place.address)
        })
        .column(Column::words("in").spare(2), |place| mode(place))
        .column(Column::figures("samples").spare(1), |place| {
            count(place.share.samples)
        })
        .column(Column::figures("of all"), |place| {
            Cell::strong(percent(place.share.share))
        })
        .column(Column::words("previous").cut(18, 12), |place| {
            place.done.as_str()
        })
        .column(Column::words("next").cut(18, 12), |place| {
            place.next.as_str()
        });
    let block = match code.places.is_empty() {
        true => Block::Text("The vCPUs were halted at each sample.".to_owned()),
        false => Block::Table(table.done().most(SHOWN.0)),
    };
    Section::new(title, vec![block])
}

/// Whose code it is.
fn mode(place: &CodePlace) -> String {
    match place.level {
        0 => "kernel".to_owned(),
        3 => "program".to_owned(),
        ring => format!("ring {ring}"),
    }
}

/// Returns the method of sampling: number of samples, halted vCPUs, time of a query.
pub fn method(code: &GuestCode) -> String {
    let halted = if code.halted.samples == 0 {
        String::new()
    } else {
        format!(", {} of them of a halted vCPU", percent(code.halted.share))
    };
    format!(
        "Guest code: {} of the vCPUs through QEMU's monitor{halted}; a query took {} (median).",
        counted(code.looks, "sample"),
        nanoseconds(code.look_ns)
    )
}
