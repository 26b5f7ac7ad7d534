use std::io;
use std::path::PathBuf;
use vmtax_clock::ClockError;
use vmtax_model::SeriesError;
use vmtax_trace::TraceError;

/// A trial's requests cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum LayersError {
    /// A file cannot be read.
    #[error("{}: {source}: is it there, and may you read it?", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// `trace.json` is none.
    #[error("{}: {reason}: the file is damaged or of another kind; make the trial again", path.display())]
    Facts {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The workload's stamps are none.
    #[error("{}: {source}", path.display())]
    Series {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        source: SeriesError,
    },
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A trace was stamped by a clock that cannot be compared.
    #[error(
        "{}: stamped by the clock '{clock}', but requests are followed by the time stamp counter: trace with trace_clock \
         set to x86-tsc",
        path.display()
    )]
    Clock {
        /// Which trace.
        path: PathBuf,
        /// Its clock.
        clock: String,
    },
    /// Both sides' clocks cannot be brought together.
    #[error(transparent)]
    Offset(#[from] ClockError),
    /// No observed trial could be read; the first one's error.
    #[error("none of the observed trials can be read; the first: {0}")]
    Nothing(Box<LayersError>),
    /// The recording has no observed trial.
    #[error("no trial was observed: make the run with `vmtax layers`")]
    Unobserved,
    /// A command's requests are told by the guest's kernel alone.
    #[error("the guest's requests were not to be seen{0}")]
    Unseen(String),
}
