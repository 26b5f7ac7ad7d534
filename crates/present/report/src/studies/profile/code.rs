//! What a guest's vCPUs execute.

use super::share::percent;
use crate::engine::{Block, Cell, Column, Section, Table};
use crate::number::{count, counted, nanoseconds};
use vmtax_model::{CodePlace, GuestCode};

/// Addresses that a terminal shows without details, and that a page lists.
const SHOWN: (usize, usize) = (8, 40);

/// Where the vCPUs were.
pub fn section(code: &GuestCode) -> Section<'_> {
    let title = format!("What the guest's vCPUs execute: {}", counted(code.looks, "sample"));
    let table = Table::of("Where the vCPUs were", code.places.iter().take(SHOWN.1))
        .column(Column::words("address"), |place| format!("{:#x}", place.address))
        .column(Column::words("in").spare(2), |place| mode(place))
        .column(Column::figures("samples").spare(1), |place| count(place.share.samples))
        .column(Column::figures("share"), |place| Cell::strong(percent(place.share.share)))
        .column(Column::words("just done").cut(18, 12), |place| place.done.as_str())
        .column(Column::words("next").cut(18, 12), |place| place.next.as_str());
    let block = match code.places.is_empty() {
        true => Block::Text("The vCPUs were halted at each of them.".to_owned()),
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

/// How it was seen.
pub fn method(code: &GuestCode) -> String {
    let halted = if code.halted.samples == 0 {
        String::new()
    } else {
        format!(", {} of them at a halted one", percent(code.halted.share))
    };
    format!(
        "{} of the guest's vCPUs through QEMU's monitor{halted}; each was answered in {} at the median.",
        counted(code.looks, "sample"),
        nanoseconds(code.look_ns)
    )
}
