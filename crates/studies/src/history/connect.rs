//! A connection to a ledger that is sound, or why there is none.

use super::ledger::{APPLICATION, FILE, LedgerError, VERSION, WAIT, failed};
use super::time_limit::TimeLimit;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::time::Duration;

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
const COLUMNS: [&str; 3] = [
    "SELECT id, folder, started, name, command, cpu, cpus FROM run LIMIT 0",
    "SELECT run, machine, variant, name, value FROM fact LIMIT 0",
    "SELECT run, metric, machine, variant, rung, settings, n, median, low, high, coverage FROM figure LIMIT 0",
];

/// Longest time to check a history database: one with a hundred thousand runs takes seconds.
const CHECK_TIME: Duration = Duration::from_secs(30);

/// Why a file is not taken as a ledger.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// The file is damaged, for this reason; it can be rebuilt.
    Damaged(String),
    /// It must stay as it is.
    Error(LedgerError),
}

/// The ledger at `path`; a new one where there is no file.
pub(crate) fn connect(path: &Path) -> Result<Connection, Unfit> {
    connect_with(
        path,
        rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE | rusqlite::OpenFlags::SQLITE_OPEN_CREATE,
    )
}

pub(crate) fn connect_with(path: &Path, flags: rusqlite::OpenFlags) -> Result<Connection, Unfit> {
    // A link would have SQLite make or change the file that it leads to, a pipe would be waited for.
    if path.symlink_metadata().is_ok_and(|file| !file.is_file()) {
        return Err(Unfit::Error(LedgerError::NotAFile {
            path: path.to_owned(),
        }));
    }
    let unfit = |error: rusqlite::Error| unfit(path, error);
    let mut connection = Connection::open_with_flags(path, flags).map_err(unfit)?;
    connection.busy_timeout(WAIT).map_err(unfit)?;
    let _limit = TimeLimit::start(&connection, CHECK_TIME);
    // Its text may be a stranger's: what is in it is data, never to be run.
    connection
        .execute_batch(
            "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA foreign_keys = ON;",
        )
        .map_err(unfit)?;
    let number = |c: &Connection, pragma: &str| c.query_row(pragma, [], |row| row.get::<_, i64>(0));
    let objects = number(&connection, "SELECT count(*) FROM sqlite_schema").map_err(unfit)?;
    if objects == 0 && number(&connection, "PRAGMA user_version").map_err(unfit)? == 0 {
        create(&mut connection).map_err(unfit)?;
    }
    if number(&connection, "PRAGMA application_id").map_err(unfit)? != APPLICATION {
        return Err(Unfit::Damaged(
            "it is another program's database".to_owned(),
        ));
    }
    let version = number(&connection, "PRAGMA user_version").map_err(unfit)?;
    if version > VERSION {
        return Err(Unfit::Error(LedgerError::TooNew {
            path: path.to_owned(),
            version,
        }));
    }
    for columns in COLUMNS {
        connection
            .prepare(columns)
            .map(drop)
            .map_err(|e| match unfit(e) {
                Unfit::Error(LedgerError::Failed { source, .. }) => {
                    Unfit::Damaged(source.to_string())
                }
                other => other,
            })?;
    }
    let sound: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(unfit)?;
    if sound != "ok" {
        return Err(Unfit::Damaged(sound));
    }
    Ok(connection)
}

/// Makes the tables, unless another program was faster.
pub(crate) fn create(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let objects: i64 =
        transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if objects == 0 {
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    transaction.commit()
}

fn unfit(path: &Path, error: rusqlite::Error) -> Unfit {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            Unfit::Damaged(error.to_string())
        }
        _ => Unfit::Error(failed(path)(error)),
    }
}

/// Where a damaged ledger is moved to: a name that is free.
pub(crate) fn aside(path: &Path, time: &str) -> PathBuf {
    let name = |number: u32| {
        let more = if number == 1 {
            String::new()
        } else {
            format!("-{number}")
        };
        path.with_file_name(format!("{FILE}.damaged-{time}{more}"))
    };
    (1..)
        .map(name)
        .find(|free| !free.exists())
        .unwrap_or_else(|| name(1))
}
