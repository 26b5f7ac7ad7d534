//! Recordings on disk: written so that a kill at any moment loses at most the trial under way, read back from the
//! files alone.
//!
//! ```text
//! runs/20261120T161811Z-quick/
//!   plan.toml               can be run again
//!   host.json               facts of the host
//!   run.json                version, command line, begin and end
//!   trials/0000/trial.json  what, where, when, exit, figures, summaries of the latencies
//!   trials/0000/ops.hlog    the latencies: HdrHistogram interval log, one tagged line per operation, nanoseconds
//!   trials/0000/…           of a profile: observed.json, on-cpu.json and others
//!   report.html, …          of a profile: the report and pictures
//!   unfinished.part         while a file is written
//!   trials/0000/…           of an observed trial: trace.json, ops.series, guest-trace/, host-trace/
//!                           (docs/recording.md)
//! ```

mod file;
mod folder;
mod recording;
mod writer;

pub use file::{TrialFiles, read_bounded};
pub use folder::{RecordingsFolder, check_place};
pub use recording::{Listing, Manifest, Recording, State, list, open};
pub use writer::Writer;

use std::io;
use std::path::{Path, PathBuf};
use vmtax_model::{PlanError, SCHEMA, limit_remedy};
use vmtax_trust::Untrusted;

/// Returns the remedy for a failed write.
fn write_remedy(error: &io::Error) -> &'static str {
    match limit_remedy(error) {
        "" => "; choose a directory that you may write to, on a disk with free space",
        remedy => remedy,
    }
}

/// Returns the remedy for a failed read.
fn read_remedy(error: &io::Error) -> &'static str {
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
        source: io::Error,
    },
    /// This is root, and another user could replace what root writes there.
    #[error(
        "{path} is not safe for what root writes: {found}. Name a directory of root's with --dir or --output, or run as \
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
    #[error("{0} contains files already: name a new directory")]
    NotEmpty(PathBuf),
    /// There is no such folder.
    #[error("there is no directory {0}: `vmtax run` makes recordings, `vmtax list` shows them")]
    NoFolder(PathBuf),
    /// A folder, but not a recording, or its beginning is lost.
    #[error(
        "{folder} is not a recording of vmtax: {missing} is missing; give one that `vmtax list` shows, or restore \
         the file from where this recording was copied"
    )]
    Foreign {
        /// Path of the folder.
        folder: PathBuf,
        /// The file that should be in it.
        missing: &'static str,
    },
    /// The run that made it was killed before the first trial.
    #[error("the run ended before its first trial: {0} has no results, delete it")]
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
        source: io::Error,
    },
}

impl RecordingError {
    /// Makes the error of writing a path.
    pub(crate) fn write(path: &Path) -> impl Fn(io::Error) -> RecordingError {
        move |source| RecordingError::Write {
            path: path.to_owned(),
            source,
        }
    }

    /// Makes the error of reading a path.
    pub(crate) fn read(path: &Path) -> impl Fn(io::Error) -> RecordingError {
        move |source| RecordingError::Read {
            path: path.to_owned(),
            source,
        }
    }

    /// Makes the error of reading a folder of recordings, which may not be there.
    pub(crate) fn read_folder(path: &Path) -> impl Fn(io::Error) -> RecordingError {
        move |source| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                RecordingError::NoFolder(path.to_owned())
            }
            _ => RecordingError::read(path)(source),
        }
    }

    /// Makes the error of a damaged file from what is wrong with it.
    pub(crate) fn damaged(path: &Path, reason: impl ToString) -> RecordingError {
        RecordingError::Damaged {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }

    /// Makes the error of something that has no form on disk.
    pub(crate) fn unstorable(what: impl ToString, reason: impl ToString) -> RecordingError {
        RecordingError::Unstorable {
            what: what.to_string(),
            reason: reason.to_string(),
        }
    }
}
