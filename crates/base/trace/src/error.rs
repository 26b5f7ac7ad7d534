//! What can be wrong with a trace, each with the way out.

use std::io;
use std::path::PathBuf;
use vmtax_model::limit_remedy;

/// A trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A file cannot be read.
    #[error("failed to read {}: {source}{}", path.display(), limit_remedy(.source))]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{} is damaged or of another kind ({reason}): record the trace again", path.display())]
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
    #[error("{} has no file INSTANCE.cpuN.raw: give the folder of a trace", path.display())]
    NoPages {
        /// Which.
        path: PathBuf,
    },
}
