//! Putting runs in.

use super::entry::{Entry, name};
use super::ledger::{Ledger, LedgerError, failed};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use std::collections::BTreeSet;
use std::path::Path;
use vmtax_recording::{Recording, RecordingError};

impl Ledger {
    /// Puts a run in; it replaces what is known of the same folder. Of one that lies elsewhere than beside the ledger the folder's whole
    /// path is its name. A tuning gets a note where the last one of the same workload or VM had another QEMU or kernel.
    ///
    /// # Errors
    /// [`LedgerError`] when the ledger is locked or cannot be written: then it is as it was.
    pub fn add(&mut self, recording: &Recording) -> Result<(), LedgerError> {
        let mut entry = Entry::of(recording);
        let (folder, runs) = (
            recording.folder.canonicalize(),
            self.path.parent().map(Path::canonicalize),
        );
        if let (Ok(folder), Some(Ok(runs))) = (folder, runs) {
            if folder.parent() != Some(&runs) {
                entry.folder = folder.to_string_lossy().into_owned();
            }
        }
        let since = self.since_last_tuning(&entry)?;
        self.notes.extend(since);
        self.put(&entry)
    }

    /// Puts in every finished recording of the folder that is not yet there, and returns how many these were. One that cannot
    /// be read gets a note.
    ///
    /// # Errors
    /// [`LedgerError`] when the folder cannot be read, or the ledger not written.
    pub fn catch_up(&mut self, runs: &Path) -> Result<usize, LedgerError> {
        let unreadable = |source| RecordingError::Read {
            path: runs.to_owned(),
            source,
        };
        let known: BTreeSet<String> = self.folders()?.into_iter().collect();
        let entries = std::fs::read_dir(runs)
            .map_err(unreadable)?
            .collect::<Result<Vec<_>, _>>()
            .map_err(unreadable)?;
        let mut folders: Vec<_> = entries
            .into_iter()
            .map(|e| e.path())
            .filter(|p| p.is_dir())
            .collect();
        folders.retain(|folder| !known.contains(&name(folder)));
        folders.sort();
        let mut added = 0;
        for folder in folders {
            match vmtax_recording::open(&folder) {
                // One without an end may be under way.
                Ok(recording) if recording.manifest.ended.is_some() => {
                    let entry = Entry::of(&recording);
                    self.forget_renamed(&entry, runs)?;
                    self.put(&entry)?;
                    added += 1;
                }
                Ok(_) | Err(RecordingError::Foreign { .. }) => {}
                Err(error) => self.notes.push(error.to_string()),
            }
        }
        Ok(added)
    }

    /// Takes over the runs of another ledger that are not in this one, as far as they can be read, and returns how many these
    /// were.
    pub(crate) fn take_over(&mut self, other: &Connection) -> Result<usize, LedgerError> {
        let known: BTreeSet<String> = self.folders()?.into_iter().collect();
        let mut taken = 0;
        for entry in super::read::entries(other)
            .into_iter()
            .filter(|e| !known.contains(&e.folder))
        {
            self.put(&entry)?;
            taken += 1;
        }
        Ok(taken)
    }

    pub(super) fn put(&mut self, entry: &Entry) -> Result<(), LedgerError> {
        let failed = failed(&self.path);
        // The lock is asked for at once: to get it half way would fail instead of wait.
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(&failed)?;
        insert(&transaction, entry).map_err(&failed)?;
        transaction.commit().map_err(&failed)
    }

    /// A recording whose folder has another name now is not another run.
    fn forget_renamed(&mut self, entry: &Entry, runs: &Path) -> Result<(), LedgerError> {
        let same = "SELECT folder FROM run WHERE started = ?1 AND name = ?2 AND command = ?3";
        let failed = failed(&self.path);
        let folders: Vec<String> = self
            .connection
            .prepare(same)
            .and_then(|mut s| {
                s.query_map([&entry.started, &entry.name, &entry.command], |row| {
                    row.get(0)
                })?
                .collect()
            })
            .map_err(&failed)?;
        for gone in folders.iter().filter(|folder| !runs.join(folder).exists()) {
            self.connection
                .execute("DELETE FROM run WHERE folder = ?1", [gone])
                .map_err(&failed)?;
        }
        Ok(())
    }
}

/// Replaces what is known of the same folder.
pub(super) fn insert(transaction: &Transaction, entry: &Entry) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM run WHERE folder = ?1", [&entry.folder])?;
    transaction.execute(
        "INSERT INTO run (folder, started, name, command, cpu, cpus) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![entry.folder, entry.started, entry.name, entry.command, entry.cpu, entry.cpus],
    )?;
    let run = transaction.last_insert_rowid();
    let mut fact =
        transaction.prepare("INSERT OR REPLACE INTO fact VALUES (?1, ?2, ?3, ?4, ?5)")?;
    for f in &entry.facts {
        fact.execute(params![run, f.machine, f.variant, f.name, f.value])?;
    }
    let mut figure = transaction.prepare(
        "INSERT OR REPLACE INTO figure VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?;
    for f in &entry.figures {
        let (value, i) = (f.value, f.value.interval);
        figure.execute(params![
            run,
            f.metric,
            f.machine,
            f.variant,
            f.step,
            f.settings,
            f.n,
            value.median,
            i.map(|i| i.low),
            i.map(|i| i.high),
            i.map(|i| i.coverage),
        ])?;
    }
    Ok(())
}
