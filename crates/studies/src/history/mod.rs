//! History of measurements: figures and facts of every run in a folder of Parquet files beside the recordings. The
//! recordings stay the truth: what is missing is added from them, and the figures of runs whose recordings were deleted are kept.

mod entry;
mod runs;
mod store;
mod table;

pub use runs::{History, ImportedRuns};
pub use store::{FOLDER, HistoryError};

use entry::Entry;
use std::path::Path;
use store::Store;
use vmtax_recording::RecordingsFolder;

/// Adds a recording that was just finished to the history of a folder of recordings. Of one that lies elsewhere the folder's
/// whole path is its name. Returns notes for whoever made it: where the last tuning of the same workload or VM had another QEMU
/// or kernel.
///
/// # Errors
/// [`HistoryError`], saying how to add it later; nothing is lost by it.
pub fn add(runs: &RecordingsFolder, recording: &Path) -> Result<Vec<String>, HistoryError> {
    let recording = vmtax_recording::open(recording)?;
    let mut entry = Entry::of(&recording)?;
    let folders = (recording.folder.canonicalize(), runs.path().canonicalize());
    if let (Ok(folder), Ok(runs)) = folders {
        if folder.parent() != Some(&runs) {
            entry.folder = folder.to_string_lossy().into();
        }
    }
    let mut notes = Vec::new();
    // Only a tuning is compared with what is there.
    if !entry.kept.is_empty() {
        let history = History::open(runs)?;
        notes.extend(history.since_last_tuning(&entry));
    }
    Store::open(runs.path())?.put(&[entry])?;
    Ok(notes)
}
