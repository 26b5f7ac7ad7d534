//! Rows of a table, before they are written.

use super::write::{Cell, Column, Table};
use crate::ExportError;
use parquet::data_type::ByteArray;
use std::fs::File;

/// Columns, and rows with a cell for each.
pub struct Rows {
    columns: Vec<(&'static str, Column)>,
    rows: Vec<Vec<Cell>>,
}

impl Rows {
    /// Makes a table of these columns.
    pub fn new(columns: Vec<(&'static str, Column)>) -> Rows {
        Rows {
            columns,
            rows: Vec::new(),
        }
    }

    /// Adds a row: a cell for each column, in their order.
    pub fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    /// Returns true if there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Writes them as Parquet; `what` they are, for errors and readers.
    ///
    /// # Errors
    /// [`ExportError`] if the file cannot be written, or a cell is not of its column's type.
    pub fn write(self, what: &'static str, file: File) -> Result<(), ExportError> {
        let mut table = Table::new(what, file, self.columns)?;
        self.rows.into_iter().try_for_each(|row| table.push(row))?;
        table.finish()
    }
}

/// A cell of text.
pub fn words(text: &str) -> Cell {
    Cell::Text(ByteArray::from(text))
}

/// A cell of text that may be missing.
pub fn maybe(text: Option<&str>) -> Cell {
    Cell::MaybeText(text.map(ByteArray::from))
}
