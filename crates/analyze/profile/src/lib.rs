//! Findings of a profile: stacks that were sampled, VM exits that were counted, a guest's samples of itself, in
//! figures, lines and pictures. `vmtax-observe` samples and counts; [`import`] reads the samples of other tools.

pub mod code;
pub mod exits;
pub mod firefox;
pub mod flame;
mod import;
pub mod inside;
pub mod pprof;
mod recorded;
mod schedule;
mod states;
mod summary;
mod tables;
mod waits;

pub use import::{Imported, import};
pub use recorded::{Recorded, vm_exits};
pub use summary::changes;
pub use tables::{ObservedRows, SampledStack, Sampling, observed_rows};

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
    /// A perf.data in a form that only perf reads.
    #[error(
        "{0}; or fold the output of `perf script` (stackcollapse-perf.pl, inferno-collapse-perf) and import that"
    )]
    PerfAlone(TraceError),
    /// Neither perf.data nor folded stacks.
    #[error(
"{file} is neither a perf.data file nor folded stacks: give an uncompressed perf.data, or lines \
         `thread;function;function count` as stackcollapse-perf.pl or inferno-collapse-perf write them",
        file = .0.display()
    )]
    NoRecording(PathBuf),
    /// A file is damaged or of another kind.
    #[error("{file}: {why}", file = .file.display())]
    Damaged {
        file: PathBuf,
        /// Description of what is wrong and what to do.
        why: String,
    },
    /// No thread to name the kernel's functions in.
    #[error(
        "failed to start a thread ({0}): allow more with `ulimit -u`, or the cgroup's pids.max"
    )]
    Thread(io::Error),
    /// The given unstripped build cannot be used.
    #[error(transparent)]
    Stacks(#[from] StackError),
    /// The flame graph cannot be drawn.
    #[error("failed to draw the flame graph: {0}")]
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
