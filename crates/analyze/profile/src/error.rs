//! What can go wrong with a profile.

use std::io;
use std::path::PathBuf;
use vmtax_trace::TraceError;

/// A profile cannot be taken, read or written.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The kernel, or the process itself.
    #[error(transparent)]
    Probe(#[from] vmtax_observe::ProbeError),
    /// A recording of others.
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
    /// The process did nothing on a processor, so there is nothing to show.
    #[error("process {pid} was not once on a processor in {seconds:.1} s: give it work, or look longer with --seconds")]
    Idle {
        /// Which.
        pid: i32,
        /// How long was looked.
        seconds: f64,
    },
    /// A file is not what it should be.
    #[error("{file}: {why}", file = .file.display())]
    Damaged {
        /// Which.
        file: PathBuf,
        /// What is wrong, and the next step.
        why: String,
    },
    /// An unstripped build that is of another program.
    #[error(
        "{file} is no build of a program in this process: no build-id is the same and no layout of functions; \
         give the file that was stripped, or build it again from the same source with the same options",
        file = .file.display()
    )]
    ForeignSymbols {
        /// Which.
        file: PathBuf,
    },
    /// KVM's events are of a kernel that is not known here.
    #[error("KVM's events cannot be read ({0}): report this as a fault of vmtax, with the kernel's version")]
    Trace(String),
    /// What the kernel traced could not be kept.
    #[error("writing what the kernel traced: {0}: name a folder with room with TMPDIR")]
    Scratch(io::Error),
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
