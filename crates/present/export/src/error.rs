//! Errors of an export: in writing, and for a dataset in recordings whose run has no date or host.

use ::parquet::errors::ParquetError;
use std::path::PathBuf;
use vmtax_layers::LayersError;
use vmtax_profile::ProfileError;
use vmtax_recording::RecordingError;

/// An export could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The file cannot be written.
    #[error("the {what} cannot be written ({source}): name a file on a disk with free space")]
    Write {
        /// Name of the export.
        what: &'static str,
        /// Reason for the failure, as the system gives it.
        source: std::io::Error,
    },
    /// The Parquet library needs random numbers for its hash tables.
    #[error(
        "the {what} cannot be written: /dev/urandom cannot be read ({source}). Mount /dev, or allow more open files: ulimit -n 4096"
    )]
    Random {
        /// Name of the export.
        what: &'static str,
        /// Reason for the failure, as the system gives it.
        source: getrandom::Error,
    },
    /// The Parquet library refuses.
    #[error("the {what} cannot be written ({source}): name a file on a disk with free space")]
    Parquet {
        /// Name of the export.
        what: &'static str,
        /// Reason for the failure, as the library gives it.
        source: ParquetError,
    },
    /// A trace cannot be read.
    #[error(transparent)]
    Layers(#[from] LayersError),
    /// The observed data cannot be read.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The folder of a dataset cannot be made or used.
    #[error(transparent)]
    Folder(#[from] RecordingError),
    /// A file of a dataset cannot be written.
    #[error("cannot write {} ({source}): see to its owner, its permissions and the room on its disk", path.display())]
    File {
        /// The file, or its folder.
        path: PathBuf,
        /// Reason for the failure, as the system gives it.
        source: std::io::Error,
    },
    /// The run has no date.
    #[error("{}/run.json: '{}' is no time in RFC 3339: restore the file from where this recording was copied", folder.display(), started.escape_default())]
    Started {
        /// Directory of the recording.
        folder: PathBuf,
        /// Text in place of the date, at most 40 characters.
        started: String,
    },
    /// The host's name is none.
    #[error("{}/host.json: the host's name has {length} bytes, Linux allows 64: restore the file from where this recording was copied", folder.display())]
    HostName {
        /// Directory of the recording.
        folder: PathBuf,
        /// Bytes of the name.
        length: usize,
    },
    /// A dataset lacks a table.
    #[error("{} has no table {table}: name the folder that `vmtax export RECORDING --dataset DIR` wrote", dataset.display())]
    NoTable {
        /// Directory of the dataset.
        dataset: PathBuf,
        /// Name of the missing table.
        table: String,
    },
    /// A folder of a dataset cannot be listed.
    #[error("cannot list {} ({source}): give the user who runs vmtax the right to read it", path.display())]
    ReadFolder {
        /// Directory that cannot be listed.
        path: PathBuf,
        /// Reason for the failure, as the system gives it.
        source: std::io::Error,
    },
}
