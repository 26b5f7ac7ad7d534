//! What can go wrong, each with the next step.

use std::io;
use std::path::PathBuf;
use vmtax_model::WorkloadName;

/// A workload could not be run.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// It needs a guest without an operating system.
    #[error("{0} runs on the micro-guest alone: use `vmtax exits`")]
    MicroGuestOnly(WorkloadName),
    /// The workload has no such option.
    #[error("{workload} has no option '{option}': choose from {known}")]
    UnknownOption {
        /// Whose option.
        workload: WorkloadName,
        /// As it was given.
        option: String,
        /// The options there are, comma separated.
        known: String,
    },
    /// The option's value cannot be used.
    #[error("{workload}.{option}={value}: give {allowed}")]
    BadValue {
        /// Whose option.
        workload: WorkloadName,
        /// Which.
        option: String,
        /// As it was given.
        value: String,
        /// What is allowed, for people.
        allowed: String,
    },
    /// Each option is allowed, together they are not.
    #[error("{workload}: {conflict}")]
    Conflict {
        /// Which workload.
        workload: WorkloadName,
        /// What does not go together, and what to change.
        conflict: String,
    },
    /// The workload needs a place that was not given.
    #[error("{workload} needs {what}: give {option}")]
    NoPlace {
        /// Which workload.
        workload: WorkloadName,
        /// What for.
        what: &'static str,
        /// The command-line option that names it.
        option: &'static str,
    },
    /// Something about a file.
    #[error("cannot {action} {}: {source}; {mend}", path.display())]
    File {
        /// What was tried (`open`, `write`, …).
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
        /// What to do.
        mend: &'static str,
    },
    /// A file or device that `seqread` cannot measure.
    #[error("{} {why}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// No room for a buffer.
    #[error("{workload} cannot get {bytes} bytes of memory: give a smaller {option}")]
    NoMemory {
        /// Which workload.
        workload: WorkloadName,
        /// How much it asked for.
        bytes: u64,
        /// The option that asks for it.
        option: &'static str,
    },
    /// The system would not start so many threads.
    #[error(
        "thread {number} of {threads} could not be started ({source}): give a smaller `threads`, or raise `ulimit -u`"
    )]
    Threads {
        /// The first that failed, from 1.
        number: u32,
        /// How many were asked for.
        threads: u32,
        /// The system's answer.
        source: io::Error,
    },
}
