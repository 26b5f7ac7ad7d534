//! Tables for a terminal: a line under the header, no other lines, columns one blank apart.

use comfy_table::{Cell, CellAlignment, Table, TableComponent, presets};

/// An empty table; without `color` its cells' colours are not written.
pub fn empty(color: bool) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_style(TableComponent::HeaderLines, '─');
    table.set_style(TableComponent::MiddleHeaderIntersections, '─');
    if color {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table
}

/// A cell for figures.
pub fn right(text: impl Into<String>) -> Cell {
    Cell::new(text.into()).set_alignment(CellAlignment::Right)
}

/// The table as lines.
pub fn lines(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    table.trim_fmt()
}
