//! A damaged ledger is moved aside and made again.

use super::connect::{Unfit, aside, connect};
use super::ledger::{Ledger, LedgerError, failed};
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Moves the ledger aside, and makes it again from the recordings and what can still be read of it.
pub(crate) fn repair(runs: &Path, path: PathBuf) -> Result<Ledger, LedgerError> {
    let stuck = |reason: &str, source| LedgerError::Stuck {
        path: path.clone(),
        reason: reason.to_owned(),
        source,
    };
    // One at a time; who comes second finds it repaired. Given up when the descriptor closes.
    let folder = File::open(runs).map_err(|e| stuck("it was not checked again", e))?;
    flock(&folder, FlockOperation::LockExclusive)
        .map_err(|e| stuck("it was not checked again", e.into()))?;
    let why = match connect(&path) {
        Ok(connection) => {
            return Ok(Ledger {
                connection,
                path,
                notes: Vec::new(),
            });
        }
        Err(Unfit::Error(error)) => return Err(error),
        Err(Unfit::Damaged(why)) => why,
    };
    let aside = aside(
        &path,
        &jiff::Timestamp::now()
            .strftime("%Y%m%dT%H%M%SZ")
            .to_string(),
    );
    fs::rename(&path, &aside).map_err(|e| stuck(&why, e))?;
    let beside = |path: &Path| PathBuf::from(format!("{}-journal", path.display()));
    // What was under way belongs to the old one; where there is none, nothing was.
    let _ = fs::rename(beside(&path), beside(&aside));
    let connection = match connect(&path) {
        Ok(connection) => connection,
        Err(Unfit::Error(error)) => return Err(error),
        Err(Unfit::Damaged(why)) => {
            return Err(stuck(
                &why,
                std::io::Error::other("a new one in its place is damaged too"),
            ));
        }
    };
    let mut ledger = Ledger {
        connection,
        path,
        notes: Vec::new(),
    };
    let recordings = ledger.catch_up(runs)?;
    let old = Connection::open_with_flags(&aside, OpenFlags::SQLITE_OPEN_READ_WRITE);
    // Nothing can be read of what is no database at all.
    let readable = old
        .map_err(failed(&aside))
        .and_then(|old| ledger.take_over(&old))
        .unwrap_or(0);
    ledger.notes.insert(
        0,
        format!(
            "{} was damaged ({why}): moved to {}, and made again from {recordings} recordings and {readable} runs without \
             one that could still be read in it",
            ledger.path.display(),
            aside.display()
        ),
    );
    Ok(ledger)
}
