//! Opening a ledger, whatever became of it.

use crate::ledger::{APPLICATION, FILE, Ledger, LedgerError, VERSION, WAIT, failed};
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use rustix::fs::Access;
use std::path::{Path, PathBuf};

const TABLES: &str = "
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    folder TEXT NOT NULL UNIQUE,
    started TEXT NOT NULL,
    name TEXT NOT NULL,
    command TEXT NOT NULL,
    cpu TEXT NOT NULL,
    cpus INTEGER NOT NULL
) STRICT;
CREATE TABLE fact (
    run INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
    machine TEXT NOT NULL,
    variant TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (run, machine, variant, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE figure (
    run INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
    metric TEXT NOT NULL,
    machine TEXT NOT NULL,
    variant TEXT NOT NULL,
    rung TEXT NOT NULL,
    settings TEXT NOT NULL,
    n INTEGER NOT NULL,
    median REAL NOT NULL,
    low REAL,
    high REAL,
    coverage REAL,
    PRIMARY KEY (run, metric, machine, variant, rung)
) STRICT, WITHOUT ROWID;
CREATE INDEX figure_of_metric ON figure (metric, machine);
";
/// That each table has what it should, without reading a row.
const LOOKS: [&str; 3] = [
    "SELECT id, folder, started, name, command, cpu, cpus FROM run LIMIT 0",
    "SELECT run, machine, variant, name, value FROM fact LIMIT 0",
    "SELECT run, metric, machine, variant, rung, settings, n, median, low, high, coverage FROM figure LIMIT 0",
];

/// Why a file is not taken as a ledger.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// What is wrong with it: it can be made again.
    Damaged(String),
    /// It must stay as it is.
    Error(LedgerError),
}

impl Ledger {
    /// Opens the ledger of a folder of recordings, and makes it where there is none. A damaged one is moved aside and made
    /// again from the recordings and from what can still be read of it: [`Ledger::notes`] say so.
    ///
    /// # Errors
    /// [`LedgerError`] when it is locked, of a newer version, or may not be written.
    pub fn open(runs: &Path) -> Result<Ledger, LedgerError> {
        let path = runs.join(FILE);
        match connect(&path) {
            Ok(connection) => Ok(Ledger { connection, path, notes: Vec::new() }),
            Err(Unfit::Error(error)) => Err(error),
            Err(Unfit::Damaged(_)) => crate::ledger::mend::mend(runs, path),
        }
    }

    /// The same for one who only wants to read: where the folder cannot be written, what the ledger lacks is added in memory
    /// alone.
    ///
    /// # Errors
    /// As [`Ledger::open`], and when there is no such folder.
    pub fn open_to_read(runs: &Path) -> Result<Ledger, LedgerError> {
        if !runs.is_dir() {
            return Err(vmtax_recording::RecordingError::NoFolder(runs.to_owned()).into());
        }
        if rustix::fs::access(runs, Access::WRITE_OK).is_ok() {
            return Ledger::open(runs);
        }
        let path = runs.join(FILE);
        let memory = Connection::open_in_memory().and_then(|mut c| create(&mut c).map(|()| c));
        let mut ledger = Ledger { connection: memory.map_err(failed(&path))?, path: path.clone(), notes: Vec::new() };
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

/// The ledger at `path`; a new one where there is no file.
pub(crate) fn connect(path: &Path) -> Result<Connection, Unfit> {
    connect_with(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE | rusqlite::OpenFlags::SQLITE_OPEN_CREATE)
}

fn connect_with(path: &Path, flags: rusqlite::OpenFlags) -> Result<Connection, Unfit> {
    let unfit = |error: rusqlite::Error| unfit(path, error);
    let mut connection = Connection::open_with_flags(path, flags).map_err(unfit)?;
    connection.busy_timeout(WAIT).map_err(unfit)?;
    // Its text may be a stranger's: what is in it is data, never to be run.
    connection
        .execute_batch("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA foreign_keys = ON;")
        .map_err(unfit)?;
    let number = |c: &Connection, pragma: &str| c.query_row(pragma, [], |row| row.get::<_, i64>(0));
    let objects = number(&connection, "SELECT count(*) FROM sqlite_schema").map_err(unfit)?;
    if objects == 0 && number(&connection, "PRAGMA user_version").map_err(unfit)? == 0 {
        create(&mut connection).map_err(unfit)?;
    }
    if number(&connection, "PRAGMA application_id").map_err(unfit)? != APPLICATION {
        return Err(Unfit::Damaged("it is another program's database".to_owned()));
    }
    let version = number(&connection, "PRAGMA user_version").map_err(unfit)?;
    if version > VERSION {
        return Err(Unfit::Error(LedgerError::TooNew { path: path.to_owned(), version }));
    }
    for look in LOOKS {
        connection.prepare(look).map(drop).map_err(|e| match unfit(e) {
            Unfit::Error(LedgerError::Failed { source, .. }) => Unfit::Damaged(source.to_string()),
            other => other,
        })?;
    }
    let sound: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(unfit)?;
    if sound != "ok" {
        return Err(Unfit::Damaged(sound));
    }
    Ok(connection)
}

/// Makes the tables, unless another program was faster.
fn create(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let objects: i64 = transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if objects == 0 {
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    transaction.commit()
}

fn unfit(path: &Path, error: rusqlite::Error) -> Unfit {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Unfit::Damaged(error.to_string()),
        _ => Unfit::Error(failed(path)(error)),
    }
}

/// Where a damaged ledger is moved to: a name that is free.
pub(crate) fn aside(path: &Path, time: &str) -> PathBuf {
    let name = |number: u32| {
        let more = if number == 1 { String::new() } else { format!("-{number}") };
        path.with_file_name(format!("{FILE}.damaged-{time}{more}"))
    };
    (1..).map(name).find(|free| !free.exists()).unwrap_or_else(|| name(1))
}
