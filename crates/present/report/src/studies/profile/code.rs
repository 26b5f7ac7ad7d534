//! What a guest's vCPUs execute.

use super::share::percent;
use crate::engine::{Block, Cell, Column, Section, Table};
use crate::number::{count, counted, nanoseconds};
use vmtax_model::{CodePlace, GuestCode};

/// Addresses that a terminal shows without details, and that a page lists.
const SHOWN: (usize, usize) = (8, 40);

/// Where the vCPUs were.
pub fn section(code: &GuestCode) -> Section<'_> {
    let columns = vec![
        Column::words("address"),
        Column::words("in").spare(2),
        Column::figures("samples").spare(1),
        Column::figures("share"),
        Column::words("just done").cut(18, 12),
        Column::words("next").cut(18, 12),
    ];
    let row = |place: &CodePlace| {
        let cells: Vec<Cell> = vec![
            format!("{:#x}", place.address).into(),
            mode(place).into(),
            count(place.share.samples).into(),
            Cell::strong(percent(place.share.share)),
            place.done.as_str().into(),
            place.next.as_str().into(),
        ];
        cells
    };
    let title = format!("What the guest's vCPUs execute: {}", counted(code.looks, "sample"));
    let table =
        Table::new("Where the vCPUs were", columns).rows(code.places.iter().take(SHOWN.1).map(row)).most(SHOWN.0);
    let block = match code.places.is_empty() {
        true => Block::Text("The vCPUs were halted at each of them.".to_owned()),
        false => Block::Table(table),
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
