//! Why a history cannot be read or written.

use std::io;
use std::path::{Path, PathBuf};
use vmtax_export::ExportError;
use vmtax_recording::RecordingError;

/// A history cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// A newer vmtax wrote it.
    #[error("{path} has schema {schema}, which this vmtax does not know, and is left alone: update vmtax, then `vmtax history --dir {runs}` adds what is missing",
        path = .path.display(), runs = line(.path.parent()))]
    TooNew {
        /// Folder of the history.
        path: PathBuf,
        /// Schema of files in it.
        schema: u32,
    },
    /// A link, a file, a pipe.
    #[error("{path} is not a folder: move it away, then `vmtax history --dir {runs}` makes the history again",
        path = .path.display(), runs = line(Some(.runs)))]
    NotAFolder {
        /// In place of a folder of the history.
        path: PathBuf,
        /// Folder of the recordings.
        runs: PathBuf,
    },
    /// The system does not give what is there.
    #[error("cannot read {path} ({source}): see to its owner and its permissions", path = .path.display())]
    Read {
        /// The file, or its folder.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("the history of {folder} cannot be written ({why}): see to its owner, its permissions and the room on its disk, then \
             `vmtax history --dir {runs}` adds what is missing of its recordings", folder = .runs.display(), runs = line(Some(.runs)))]
    Write {
        /// Folder of the recordings.
        runs: PathBuf,
        /// Reason for the failure, as the system or the library gives it.
        why: String,
    },
    /// The recording has no identity.
    #[error(transparent)]
    Identity(#[from] ExportError),
    /// The folder of recordings, or one of them.
    #[error(transparent)]
    Recording(#[from] RecordingError),
}

/// A path as a shell takes it.
fn line(path: Option<&Path>) -> String {
    vmtax_model::shell_line(&[path.unwrap_or(Path::new(".")).display().to_string()])
}
