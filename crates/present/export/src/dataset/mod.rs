//! Recordings of many hosts as one dataset: a folder of Parquet files that DuckDB, Polars, Spark and others read as tables.
//! docs/dataset.md is the schema.

#[cfg(test)]
mod engines_tests;
mod facts;
mod figures;
mod layout;
mod read;
#[cfg(test)]
mod tests;

use crate::joined::ObservedTrials;
use crate::table::{Change, Rows, write_whole};
use crate::{ExportError, Requests, Run, Segments};
use facts::Observed;
use layout::Partition;
pub use read::read as read_dataset;
use std::fs::File;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use vmtax_recording::{Recording, RecordingsFolder};

/// A folder of tables.
#[derive(Debug)]
pub struct Dataset {
    folder: PathBuf,
    hash_host: bool,
}

/// Changes by a recording.
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
        Ok(Dataset {
            folder: folder.to_owned(),
            hash_host,
        })
    }

    /// Adds a recording: a file in each table that has rows of it. The name of a file depends on the run alone, and it is
    /// replaced only by other content: adding a recording again changes nothing.
    ///
    /// # Errors
    /// [`ExportError`] when a file cannot be written, or the run has no date. Each file is there whole or not at all.
    pub fn add(&self, recording: &Recording) -> Result<Added, ExportError> {
        let run = Run::identify(recording, self.hash_host)?;
        let mut added = Added::default();
        let tables = [
            ("figures", figures::rows(recording, &run)),
            ("facts", facts::rows(recording, &run)),
            ("comparisons", figures::comparison_rows(recording, &run)),
        ];
        self.put_all(tables, &run, &mut added)?;
        // What was observed may be damaged, and then the others are there.
        let Observed { exits, samples } = Observed::read(recording, &run)?;
        self.put_all([("exits", exits), ("samples", samples)], &run, &mut added)?;
        Ok(added)
    }

    /// Adds the requests of a recording's observed trials, and their segments. Traces are read again each time.
    ///
    /// # Errors
    /// As [`Dataset::add`]; when a trace cannot be read.
    pub fn add_requests(&self, recording: &Recording) -> Result<Added, ExportError> {
        let run = Run::identify(recording, self.hash_host)?;
        let trials = ObservedTrials::read(recording)?;
        let mut added = Added::default();
        if trials.is_empty() {
            return Ok(added);
        }
        // Both in one pass: joining a trial's traces takes far longer than writing them.
        let requests = self.put("requests", &run, |file| {
            let mut requests = Requests::new(file)?;
            let segments = self.put("segments", &run, |file| {
                let mut segments = Segments::new(file)?;
                trials.for_each(|trial| {
                    requests.add(&trial)?;
                    segments.add(&trial)
                })?;
                segments.finish()
            })?;
            added.count(segments);
            requests.finish()
        })?;
        added.count(requests);
        Ok(added)
    }

    fn put_all<const N: usize>(
        &self,
        tables: [(&'static str, Rows); N],
        run: &Run,
        added: &mut Added,
    ) -> Result<(), ExportError> {
        for (table, rows) in tables.into_iter().filter(|(_, rows)| !rows.is_empty()) {
            added.count(self.put(table, run, |file| rows.write(table, file))?);
        }
        Ok(())
    }

    fn put(
        &self,
        table: &'static str,
        run: &Run,
        fill: impl FnOnce(File) -> Result<(), ExportError>,
    ) -> Result<Change, ExportError> {
        let partition = Partition {
            table,
            date: &run.date,
            host: run.host.as_deref(),
        };
        write_whole(&self.folder.join(partition.file(&run.id)), fill)
    }
}

impl Added {
    fn count(&mut self, change: Change) {
        match change {
            Change::Written => self.written += 1,
            Change::None => self.unchanged += 1,
        }
    }
}

impl AddAssign for Added {
    fn add_assign(&mut self, other: Added) {
        self.written += other.written;
        self.unchanged += other.unchanged;
    }
}
