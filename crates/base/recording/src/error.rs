//! Why a recording cannot be written or read.

use std::path::PathBuf;
use vmtax_model::{PlanError, SCHEMA, limit_remedy};
use vmtax_trust::Untrusted;

/// Returns the remedy for a failed write.
fn write_remedy(error: &std::io::Error) -> &'static str {
    match limit_remedy(error) {
        "" => "; choose a folder you may write to, on a disk with free space",
        remedy => remedy,
    }
}

/// Returns the remedy for a failed read.
fn read_remedy(error: &std::io::Error) -> &'static str {
    match limit_remedy(error) {
        "" => "; check its owner and permissions",
        remedy => remedy,
    }
}

/// A recording cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The folder or a file in it cannot be written.
    #[error("cannot write {path}: {source}{}", write_remedy(.source))]
    Write {
        /// File or folder that could not be written.
        path: PathBuf,
        /// Error from the system.
        source: std::io::Error,
    },
    /// This is root, and another user could replace what root writes there.
    #[error(
        "{path} is not safe for what root writes: {found}. Name a folder of root's with --dir or --output, or run as \
         another user"
    )]
    Untrusted {
        /// Path of the folder.
        path: PathBuf,
        /// Who can change it, and where.
        found: Untrusted,
    },
    /// The plan or a trial has no form on disk.
    #[error("{what} cannot be stored: {reason}")]
    Unstorable {
        /// The plan, or which trial.
        what: String,
        /// Why, and what to do.
        reason: String,
    },
    /// Nothing is written over.
    #[error("{0} holds files already: name a new folder")]
    NotEmpty(PathBuf),
    /// There is no such folder.
    #[error("there is no folder {0}: `vmtax run` makes recordings, `vmtax list` shows them")]
    NoFolder(PathBuf),
    /// A folder, but not a recording, or its beginning is lost.
    #[error(
        "{folder} is no recording of vmtax: {missing} is missing; give a folder that `vmtax list` shows, or restore \
         the file from where this recording was copied"
    )]
    Foreign {
        /// Path of the folder.
        folder: PathBuf,
        /// The file that should be in it.
        missing: &'static str,
    },
    /// The run that made it was killed before the first trial.
    #[error(
        "the run that made {0} ended before its first trial: there is nothing to read, remove the folder"
    )]
    NotBegun(PathBuf),
    /// A file is damaged.
    #[error(
        "{path} is damaged ({reason}): restore it from where this recording was copied, or run the plan again"
    )]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Description of the damage.
        reason: String,
    },
    /// A newer vmtax wrote it.
    #[error("{path} has schema {schema}, this vmtax knows up to {SCHEMA}: update vmtax to read it")]
    TooNew {
        /// Path of the file.
        path: PathBuf,
        /// Schema of the file.
        schema: u64,
    },
    /// The plan in it is none.
    #[error("{path}: {source}")]
    Plan {
        /// Path of the file.
        path: PathBuf,
        /// Error of the plan.
        source: PlanError,
    },
    /// A file is there and cannot be read.
    #[error("cannot read {path}: {source}{}", read_remedy(.source))]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error from the system.
        source: std::io::Error,
    },
}
