//! Opening a ledger, whatever became of it.

use super::connect::{Unfit, connect, connect_with, create};
use super::ledger::{FILE, Ledger, LedgerError, failed};
use super::repair::repair;
use rusqlite::Connection;
use rustix::fs::Access;
use std::path::Path;
use vmtax_recording::RecordingsFolder;

impl Ledger {
    /// Opens the ledger of a folder of recordings, and makes it where there is none. A damaged one is moved aside and made
    /// again from the recordings and from what can still be read of it: [`Ledger::notes`] say so.
    ///
    /// # Errors
    /// [`LedgerError`] when it is locked, of a newer version, or may not be written.
    pub fn open(runs: &RecordingsFolder) -> Result<Ledger, LedgerError> {
        let path = runs.path().join(FILE);
        match connect(&path) {
            Ok(connection) => Ok(Ledger {
                connection,
                path,
                notes: Vec::new(),
            }),
            Err(Unfit::Error(error)) => Err(error),
            Err(Unfit::Damaged(_)) => repair(runs.path(), path),
        }
    }

    /// Opens the history database for reading: if the directory cannot be written, runs that the database lacks are
    /// added in memory only.
    ///
    /// # Errors
    /// As [`Ledger::open`], when there is no such directory, and as [`RecordingsFolder::open`].
    pub fn open_to_read(runs: &Path) -> Result<Ledger, LedgerError> {
        let folder = RecordingsFolder::open(runs)?;
        if rustix::fs::access(runs, Access::WRITE_OK).is_ok() {
            return Ledger::open(&folder);
        }
        let path = runs.join(FILE);
        let memory = Connection::open_in_memory().and_then(|mut c| create(&mut c).map(|()| c));
        let mut ledger = Ledger {
            connection: memory.map_err(failed(&path))?,
            path: path.clone(),
            notes: Vec::new(),
        };
        if path.exists() {
            match connect_with(&path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY) {
                Ok(stored) => _ = ledger.take_over(&stored)?,
                Err(Unfit::Error(error)) => return Err(error),
                Err(Unfit::Damaged(why)) => ledger.notes.push(format!(
                    "{} is damaged ({why}) and its folder cannot be written: this is from the recordings alone",
                    path.display()
                )),
            }
        }
        Ok(ledger)
    }
}
