//! The runs of a history, and recordings that are missing in it.

use super::entry::{Entry, name};
use super::error::HistoryError;
use super::store::{MANY, Store, paths};
use jiff::Timestamp;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use vmtax_export::table::Problem;
use vmtax_recording::{RecordingError, RecordingsFolder};

/// The history of a folder of recordings.
#[derive(Debug)]
pub struct History {
    pub(super) store: Store,
    pub(super) runs: Vec<Entry>,
    /// Files that cannot be read, and why.
    damaged: Vec<(PathBuf, Problem)>,
    /// Notes for the user: what was damaged, which recording cannot be added.
    pub notes: Vec<String>,
}

impl History {
    /// Reads the history of a folder of recordings, without what is in damaged files.
    ///
    /// # Errors
    /// [`HistoryError`] when it is of a newer version, or may not be read.
    pub fn open(runs: &RecordingsFolder) -> Result<History, HistoryError> {
        let store = Store::open(runs.path())?;
        let content = store.read()?;
        Ok(History {
            store,
            runs: content.runs,
            damaged: content.damaged,
            notes: Vec::new(),
        })
    }

    /// Moves damaged files aside: [`History::notes`] say so.
    fn set_damaged_aside(&mut self) {
        let time = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        for (path, problem) in self.damaged.drain(..) {
            let aside = path.with_extension(format!("parquet.damaged-{time}"));
            let moved = match fs::rename(&path, &aside) {
                Ok(()) => format!("moved to {}", aside.display()),
                Err(error) => format!("it cannot be moved aside ({error})"),
            };
            let path = path.display();
            self.notes.push(format!(
                "{path} was damaged ({problem}): {moved}. Its runs are added again as far as there are recordings of them"
            ));
        }
    }

    /// Moves damaged files aside, and adds every finished recording of the folder that is not yet there, in memory only where the
    /// history cannot be written. Each of the first, and a recording that cannot be read, gets a note.
    ///
    /// # Errors
    /// [`HistoryError`] when the folder cannot be read, or the history not written.
    pub fn catch_up(&mut self) -> Result<(), HistoryError> {
        self.set_damaged_aside();
        let is_writable = self.store.is_writable();
        let recorded = self.runs.iter().filter(|run| self.store.is_recorded(run));
        let mut recorded: HashSet<_> = recorded.map(Entry::key).collect();
        for folders in self.unknown()?.chunks(MANY) {
            let entries = folders.iter().filter_map(|folder| self.entry(folder));
            let mut entries: Vec<Entry> = entries.collect();
            // A copy is the same run.
            entries.retain(|entry| recorded.insert(entry.key()));
            if is_writable {
                self.store.put(&entries)?;
            }
            self.runs.extend(entries);
        }
        self.store.each_once(&mut self.runs);
        Ok(())
    }

    /// Folders beside the history that it does not know, in order.
    fn unknown(&self) -> Result<Vec<PathBuf>, RecordingError> {
        let runs = &self.store.runs;
        let known: HashSet<&str> = self.runs.iter().map(|run| &*run.folder).collect();
        let mut folders = paths(runs).map_err(|source| RecordingError::Read {
            path: runs.clone(),
            source,
        })?;
        folders.retain(|path| path.is_dir() && !known.contains(&*name(path)));
        folders.sort();
        Ok(folders)
    }

    /// Returns the entry of a folder, if that is a finished recording: one without an end may be under way.
    fn entry(&mut self, folder: &Path) -> Option<Entry> {
        let entry = match vmtax_recording::open(folder) {
            Ok(recording) if recording.manifest.ended.is_some() => {
                Entry::of(&recording).map_err(HistoryError::from)
            }
            Ok(_) | Err(RecordingError::Foreign { .. }) => return None,
            Err(error) => Err(error.into()),
        };
        entry
            .map_err(|error| self.notes.push(error.to_string()))
            .ok()
    }
}
