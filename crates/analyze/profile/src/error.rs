//! What can go wrong with a profile.

use std::io;
use std::path::PathBuf;
use vmtax_trace::TraceError;
use vmtax_trace::stacks::StackError;

/// A profile cannot be read or drawn.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// A trace, or a file of another tool.
    #[error(transparent)]
    Recording(TraceError),
    /// A recording of others in a form that perf alone reads.
    #[error(
        "{0}; or fold what `perf script` prints of it (stackcollapse-perf.pl, inferno-collapse-perf), and import that"
    )]
    PerfAlone(TraceError),
    /// No recording at all.
    #[error(
        "{file} is neither a file of perf record nor folded stacks: give perf.data itself, unpacked, or lines \
         `thread;function;function count`, into which stackcollapse-perf.pl or inferno-collapse-perf folds what `perf \
         script` prints",
        file = .0.display()
    )]
    NoRecording(PathBuf),
    /// A file is not what it should be.
    #[error("{file}: {why}", file = .file.display())]
    Damaged {
        /// Which.
        file: PathBuf,
        /// What is wrong, and the next step.
        why: String,
    },
    /// An unstripped build that was given is of no use.
    #[error(transparent)]
    Stacks(#[from] StackError),
    /// A picture could not be drawn.
    #[error("drawing the flame graph: {0}")]
    Drawing(io::Error),
}

impl From<TraceError> for ProfileError {
    fn from(error: TraceError) -> ProfileError {
        match error {
            TraceError::Unsupported { .. } => ProfileError::PerfAlone(error),
            _ => ProfileError::Recording(error),
        }
    }
}
