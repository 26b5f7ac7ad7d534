//! Errors of workloads, each with the next step.

use std::io;
use std::path::{Path, PathBuf};
use vmtax_model::WorkloadName;

/// A workload could not be run.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// It needs a guest without an operating system.
    #[error("{0} runs on the micro-guest alone: name micro-kvm or micro-tcg as its machine")]
    MicroGuestOnly(WorkloadName),
    /// It is a command of the user's.
    #[error("{0} runs your command: use `vmtax exec -- CMD`")]
    CommandAlone(WorkloadName),
    /// A bug of its declaration.
    #[error(
        "{0}: an option is declared with other values than its field takes; please report this"
    )]
    Declaration(WorkloadName),
    /// The workload has no such option.
    #[error("{workload} has no option '{option}': choose from {known}")]
    UnknownOption {
        /// Workload that has no such option.
        workload: WorkloadName,
        /// As it was given.
        option: String,
        /// The options there are, comma separated.
        known: String,
    },
    /// The option's value cannot be used.
    #[error("{workload}.{option}={value}: give {allowed}")]
    BadValue {
        /// Workload of the option.
        workload: WorkloadName,
        /// Name of the option.
        option: String,
        /// As it was given.
        value: String,
        /// Description of the allowed values, for people.
        allowed: String,
    },
    /// Each option is allowed, together they are not.
    #[error("{workload}: {conflict}")]
    Conflict {
        /// Workload of the options.
        workload: WorkloadName,
        /// Options that exclude each other, and the change to make.
        conflict: String,
    },
    /// The workload needs a place that was not given.
    #[error("{workload} needs {what}: give {option}")]
    NoPlace {
        /// Workload that needs the place.
        workload: WorkloadName,
        /// Purpose of the place.
        what: &'static str,
        /// The command-line option that names it.
        option: &'static str,
    },
    /// Something about a file.
    #[error("cannot {action} {}: {source}; {fix}", path.display())]
    File {
        /// Action that failed (`open`, `write`, …).
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
        /// Next step for the user.
        fix: &'static str,
    },
    /// The agent did not answer at the begin or end of a batch.
    #[error(
        "the agent ended or did not answer while a batch of requests was counted: {0}; --notified is for the agent alone"
    )]
    Agent(io::Error),
    /// The workload makes no block requests.
    #[error("{0} makes no block requests: use the workload disk")]
    NotBlocks(WorkloadName),
    /// The workload makes no requests that are followed.
    #[error("{0} makes no requests whose time stamps could be kept: use disk or net-rr")]
    NoRequests(WorkloadName),
    /// The server of a workload of the network does not answer.
    #[error("no answer from {server} over {protocol}{}: {fix}", source.as_ref().map(|e| format!(" ({e})")).unwrap_or_default())]
    NoEcho {
        /// Address of the server.
        server: std::net::SocketAddrV4,
        /// `udp` or `tcp`.
        protocol: &'static str,
        /// The system's answer, if there is one.
        source: Option<io::Error>,
        /// Next step for the user.
        fix: &'static str,
    },
    /// More stamps of single requests than are kept.
    #[error(
        "{workload}.count={asked}: stamps of at most {most} requests are kept: give a smaller count"
    )]
    TooMany {
        /// Workload whose requests are counted.
        workload: WorkloadName,
        /// Number of requests asked for.
        asked: u64,
        /// Maximum number of requests.
        most: u64,
    },
    /// The time stamp counter will not do, and nothing else gives stamps that both sides of a machine share.
    #[error(
        "stamps of single requests need a stable time stamp counter, but here {0}: see `vmtax doctor`"
    )]
    NoStamps(String),
    /// A program of the host that makes the requests is not there.
    #[error("{program} is not installed: {remedy}")]
    NoProgram {
        /// Name of the program.
        program: &'static str,
        /// How to install it.
        remedy: &'static str,
    },
    /// A program of the host that makes the requests failed.
    #[error("{program} ended with exit status {status}: {said}")]
    Program {
        /// Name of the program.
        program: &'static str,
        /// Its exit status; 128 + n for signal n.
        status: i32,
        /// Its last lines.
        said: String,
    },
    /// A job of fio that is not run.
    #[error("{0}")]
    Fio(crate::FioError),
    /// A disk that nobody named as one to overwrite.
    #[error(
        "{workload}'s {option} would overwrite {path}, which vmtax did not make: --destroy {path} allows it, and the content is lost",
        path = disk.display()
    )]
    NotNamed {
        /// Workload that writes.
        workload: WorkloadName,
        /// The option by which it writes, with its value.
        option: String,
        /// Path of the disk.
        disk: PathBuf,
    },
    /// A disk that is in use.
    #[error("{workload}'s {option} would overwrite {}, {why}: unmount it, or end what uses it", disk.display())]
    InUse {
        /// Workload that writes.
        workload: WorkloadName,
        /// The option by which it writes, with its value.
        option: String,
        /// Path of the disk.
        disk: PathBuf,
        /// Clause that says what uses the disk.
        why: String,
    },
    /// io_uring is not available.
    #[error(
        "io_uring, which a depth above 1 needs: {0}; give depth=1, a kernel with CONFIG_IO_URING, or `sysctl \
         kernel.io_uring_disabled=0`"
    )]
    NoRing(#[source] io::Error),
    /// A file or device that `disk` cannot measure.
    #[error("{} {why}", path.display())]
    Unreadable {
        /// Path of the file or device.
        path: PathBuf,
        /// Description of what is wrong with the path, and of what to do.
        why: String,
    },
    /// No room for a buffer.
    #[error("{workload} cannot get {bytes} bytes of memory: give a smaller {option}")]
    NoMemory {
        /// Workload that needs the buffer.
        workload: WorkloadName,
        /// Size of the buffer, in bytes.
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
        /// Number of threads asked for.
        threads: u32,
        /// The system's answer.
        source: io::Error,
    },
}

impl WorkloadError {
    pub(crate) fn conflict(workload: WorkloadName, conflict: impl Into<String>) -> WorkloadError {
        WorkloadError::Conflict {
            workload,
            conflict: conflict.into(),
        }
    }

    /// The error of a workload that needs `what`, which the command line's `option` gives.
    pub(crate) fn no_place(
        workload: WorkloadName,
        what: &'static str,
        option: &'static str,
    ) -> WorkloadError {
        WorkloadError::NoPlace {
            workload,
            what,
            option,
        }
    }

    pub(crate) fn unreadable(path: &Path, why: impl Into<String>) -> WorkloadError {
        WorkloadError::Unreadable {
            path: path.to_owned(),
            why: why.into(),
        }
    }

    /// The error of starting a thread, the `number`th from 0 of `threads`.
    pub(crate) fn thread(number: usize, threads: usize) -> impl FnOnce(io::Error) -> WorkloadError {
        move |source| WorkloadError::Threads {
            number: number as u32 + 1,
            threads: threads as u32,
            source,
        }
    }
}
