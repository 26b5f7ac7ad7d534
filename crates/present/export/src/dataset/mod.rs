//! Recordings of many hosts as one dataset: a folder of Parquet files that DuckDB, Polars, Spark and others read as tables.
//! docs/dataset.md is the schema.

mod comparisons;
mod facts;
mod figures;
mod layout;
mod rows;
mod run;
#[cfg(test)]
mod tests;

use crate::ExportError;
use layout::{Change, Partition};
use run::Run;
use std::path::{Path, PathBuf};
use vmtax_recording::{Recording, RecordingsFolder};

/// A folder of tables.
#[derive(Debug)]
pub struct Dataset {
    folder: PathBuf,
    hash_host: bool,
}

/// What a recording changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Added {
    /// Files that are new, or have other content than before.
    pub written: u32,
    /// Files that were there already, with the same content.
    pub unchanged: u32,
}

impl Dataset {
    /// Opens the folder, and makes it where there is none, closed to other users. With `hash_host` hosts are named by a hash
    /// alone.
    ///
    /// # Errors
    /// [`ExportError::Folder`] when it cannot be made, or this is root and another user can change the path.
    pub fn create(folder: &Path, hash_host: bool) -> Result<Dataset, ExportError> {
        RecordingsFolder::create(folder)?;
        Ok(Dataset { folder: folder.to_owned(), hash_host })
    }

    /// Adds a recording: a file in each table that has rows of it. The name of a file depends on the run alone, and it is
    /// replaced only by other content: adding a recording again changes nothing.
    ///
    /// # Errors
    /// [`ExportError`] when a file cannot be written, or the run has no date. Each file is there whole or not at all.
    pub fn add(&self, recording: &Recording) -> Result<Added, ExportError> {
        let run = Run::of(recording, self.hash_host)?;
        let mut added = Added::default();
        let tables = [
            ("figures", figures::rows(recording, &run)),
            ("facts", facts::rows(recording, &run)),
            ("comparisons", comparisons::rows(recording, &run)),
        ];
        for (table, rows) in tables.into_iter().filter(|(_, rows)| !rows.is_empty()) {
            let partition = Partition { table, date: &run.date, host: run.host.as_deref() };
            match layout::put(&self.folder, &partition, &run.id, |file| rows.write(table, file))? {
                Change::Written => added.written += 1,
                Change::None => added.unchanged += 1,
            }
        }
        Ok(added)
    }
}
