//! What can be wrong with a trace, each with the way out.

use std::io;
use std::path::PathBuf;

/// A trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A file cannot be read.
    #[error("{}: {source}: is it there, and may you read it?", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {reason}: the file is damaged or of another kind; record the trace again", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file that may be sound, but in a form that is not read here.
    #[error("{}: {reason}", path.display())]
    Unsupported {
        /// Which.
        path: PathBuf,
        /// Which form that is, and the next step.
        reason: String,
    },
    /// A folder without raw pages.
    #[error("{}: no file there is named INSTANCE.cpuN.raw: give the folder of a trace", path.display())]
    NoPages {
        /// Which.
        path: PathBuf,
    },
}
