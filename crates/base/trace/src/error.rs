//! Errors of reading a trace, each with the next step.

use std::io;
use std::path::PathBuf;
use vmtax_model::limit_remedy;

/// A trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A file cannot be read.
    #[error("failed to read {}: {source}{}", path.display(), limit_remedy(.source))]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{} is damaged or of another kind ({reason}): record the trace again", path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Fault of its content.
        reason: String,
    },
    /// A file that may be sound, but in a form that is not read here.
    #[error("{}: {reason}", path.display())]
    Unsupported {
        /// Path of the file.
        path: PathBuf,
        /// Form of the file, and the next step.
        reason: String,
    },
    /// A folder without raw pages.
    #[error("{} has no file INSTANCE.cpuN.raw: give the folder of a trace", path.display())]
    NoPages {
        /// Path of the directory.
        path: PathBuf,
    },
}
