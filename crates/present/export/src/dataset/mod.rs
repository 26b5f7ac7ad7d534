//! Recordings of many hosts as one dataset: a folder of Parquet files that DuckDB, Polars, Spark and others read as tables.
//! docs/dataset.md is the schema.

#[cfg(test)]
mod engines_tests;
mod read;
mod tables;
#[cfg(test)]
mod tests;

pub use read::{has_figures, read as read_dataset};

use crate::joined::ObservedTrials;
use crate::table::{Change, Rows, write_whole};
use crate::{ExportError, Requests, Run, Segments};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use tables::{Observed, comparison_rows, fact_rows, figure_rows};
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
            ("figures", figure_rows(recording, &run)),
            ("facts", fact_rows(recording, &run)),
            ("comparisons", comparison_rows(recording, &run)),
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

/// Columns may be added within a schema; none is removed, and none changes its meaning.
pub const SCHEMA: u32 = 1;
/// Hive's name for a partition whose value is not known: engines read it as null.
pub const UNKNOWN: &str = "__HIVE_DEFAULT_PARTITION__";

/// The folder of a table that a file belongs into.
#[derive(Debug, Clone, Copy)]
pub struct Partition<'a> {
    pub table: &'static str,
    pub date: &'a str,
    pub host: Option<&'a str>,
}

impl Partition<'_> {
    /// Returns the path of a run's file in the dataset.
    pub fn file(&self, run: &str) -> PathBuf {
        self.folder().join(format!("{}.parquet", encode(run)))
    }

    fn folder(&self) -> PathBuf {
        let host = self.host.map_or_else(|| UNKNOWN.to_owned(), encode);
        let parts = [
            self.table,
            &format!("schema={SCHEMA}"),
            &format!("date={}", encode(self.date)),
            &format!("host={host}"),
        ];
        parts.iter().collect()
    }
}

/// A value as part of a path: letters, digits, `.`, `_` and `-` stay, every other byte becomes `%XX`. Hive does the same, and
/// engines decode it.
fn encode(value: &str) -> String {
    let mut encoded = String::new();
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => {
                encoded.push(char::from(byte))
            }
            _ => _ = write!(encoded, "%{byte:02X}"),
        }
    }
    encoded
}

/// Folders within folders: three of a partition, and a few that somebody collected them in.
const DEEPEST: usize = 8;

/// A file of a table.
pub struct TableFile {
    pub path: PathBuf,
    /// As far as the path has it.
    pub schema: Option<u32>,
    pub date: Option<String>,
    pub host: Option<String>,
}

/// The files of a table in the order of their paths. What engines pass over is passed over: names that begin with a dot.
pub fn files(dataset: &Path, table: &str) -> Result<Vec<TableFile>, ExportError> {
    let folder = dataset.join(table);
    if !folder.is_dir() {
        return Err(ExportError::NoTable {
            dataset: dataset.to_owned(),
            table: table.to_owned(),
        });
    }
    let mut files = Vec::new();
    walk(&folder, DEEPEST, &mut |path| {
        let mut file = TableFile {
            path: path.to_owned(),
            schema: None,
            date: None,
            host: None,
        };
        for part in path.strip_prefix(&folder).unwrap_or(path).iter() {
            match part.to_string_lossy().split_once('=') {
                Some(("schema", value)) => file.schema = value.parse().ok(),
                Some(("date", value)) => file.date = Some(decode(value)),
                Some(("host", value)) if value != UNKNOWN => file.host = Some(decode(value)),
                _ => {}
            }
        }
        files.push(file);
    })?;
    Ok(files)
}

fn walk(folder: &Path, depth: usize, found: &mut impl FnMut(&Path)) -> Result<(), ExportError> {
    let failed = |source| ExportError::ReadFolder {
        path: folder.to_owned(),
        source,
    };
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut entries = entries.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    entries.sort_by_cached_key(|entry| entry.path());
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type());
        let name = entry.file_name().to_string_lossy().into_owned();
        // A link to a folder may lead in a circle.
        if name.starts_with('.') {
            continue;
        } else if kind.is_ok_and(|kind| kind.is_dir()) {
            if depth > 0 {
                walk(&path, depth - 1, found)?;
            }
        } else if name.ends_with(".parquet") && fs::metadata(&path).is_ok_and(|file| file.is_file())
        {
            found(&path);
        }
    }
    Ok(())
}

/// A value of a path, without its percent-encoding.
fn decode(value: &str) -> String {
    let bytes = value.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let code = code.and_then(|hex| std::str::from_utf8(hex).ok());
        let code = code.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        decoded.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}
