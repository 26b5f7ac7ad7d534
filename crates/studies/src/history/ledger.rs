//! The ledger, and why it cannot be used.

use rusqlite::{Connection, ErrorCode};
use std::path::{Path, PathBuf};
use std::time::Duration;
use vmtax_recording::RecordingError;

/// The ledger of a folder of recordings.
#[derive(Debug)]
pub struct Ledger {
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
    /// Notes for the user: that the database was damaged and rebuilt, or that nothing can be added.
    pub notes: Vec<String>,
}

/// Name of the history database in the directory of recordings.
pub const FILE: &str = "ledger.sqlite";
/// The version of its tables. A newer vmtax changes those of an older one; an older one leaves a newer one's alone.
pub(super) const VERSION: i64 = 1;
/// SQLite's mark for whose file it is: "vmtx".
pub(super) const APPLICATION: i64 = 0x766d_7478;
/// Longest time to wait for another program's lock.
pub(super) const WAIT: Duration = Duration::from_secs(5);

/// A ledger cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Another program holds it.
    #[error("{path} has been locked by another program for {} s: `vmtax history --dir {runs}` adds what is missing once it is free",
        WAIT.as_secs(), path = .path.display(), runs = runs(.path))]
    Locked {
        /// Path of the history database.
        path: PathBuf,
    },
    /// A newer vmtax changed it.
    #[error("{path} has version {version}, this vmtax knows up to {VERSION} and leaves it alone: update vmtax, then `vmtax history --dir {runs}` adds what is missing",
        path = .path.display(), runs = runs(.path))]
    TooNew {
        /// Path of the history database.
        path: PathBuf,
        /// Version in the file.
        version: i64,
    },
    /// A link, a folder, a pipe.
    #[error("{path} is not a regular file: move it away, then `vmtax history --dir {runs}` makes the ledger again",
        path = .path.display(), runs = runs(.path))]
    NotAFile {
        /// Path of the history database.
        path: PathBuf,
    },
    /// SQLite said no.
    #[error("{path}: {source}; see to its owner, its permissions and the room on its disk, then `vmtax history --dir {runs}` adds what is missing",
        path = .path.display(), runs = runs(.path))]
    Failed {
        /// Path of the history database.
        path: PathBuf,
        /// Error of SQLite.
        source: rusqlite::Error,
    },
    /// It is damaged, and cannot be moved aside.
    #[error("{path} is damaged ({reason}) and cannot be moved aside ({source}): move it away, then `vmtax history --dir {runs}` makes it again",
        path = .path.display(), runs = runs(.path))]
    Stuck {
        /// Path of the history database.
        path: PathBuf,
        /// Description of the damage.
        reason: String,
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// The folder of recordings, or one of them.
    #[error(transparent)]
    Recording(#[from] RecordingError),
}

/// The folder of recordings that a ledger belongs to.
fn runs(ledger: &Path) -> String {
    vmtax_model::shell_line(&[ledger.parent().unwrap_or(ledger).display().to_string()])
}

/// Converts an error of SQLite into a [`LedgerError`].
pub(super) fn failed(path: &Path) -> impl Fn(rusqlite::Error) -> LedgerError + '_ {
    move |source| match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => LedgerError::Locked {
            path: path.to_owned(),
        },
        _ => LedgerError::Failed {
            path: path.to_owned(),
            source,
        },
    }
}
