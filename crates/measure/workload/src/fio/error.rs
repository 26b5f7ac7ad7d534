//! Errors of jobs, each with the next step.

/// A job of fio that is not run, with the next step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FioError {
    /// An option that is not run.
    #[error("fio's {option}: {why}")]
    Refused {
        /// The option with its value, as it is typed.
        option: String,
        /// Reason, with what to do.
        why: String,
    },
    /// An option that vmtax does not know.
    #[error(
        "fio's {0}: vmtax does not know this option, and runs none that may name a file, a device or a program: leave it out"
    )]
    Unknown(String),
    /// A line that a job file does not have.
    #[error("line {line} of the job: {why}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// Reason, with what to do.
        why: &'static str,
    },
    /// No section of that name, or none at all.
    #[error("the job has no section{}: {known}", .asked.as_ref().map(|name| format!(" '{name}'")).unwrap_or_default())]
    NoSection {
        /// Name that was asked for.
        asked: Option<String>,
        /// Names of the sections, or the form of one.
        known: String,
    },
    /// A command line that cannot be read.
    #[error("{0}")]
    CommandLine(String),
    /// More jobs than are run.
    #[error("the job has {0}: name one of its sections with --section")]
    TooLarge(String),
}

impl FioError {
    pub(super) fn refused(name: &str, value: &str, why: impl Into<String>) -> FioError {
        FioError::Refused {
            option: named(name, value),
            why: why.into(),
        }
    }
}

/// An option as it is typed, safe to print.
pub(super) fn named(name: &str, value: &str) -> String {
    let whole = match value {
        "" => name.to_owned(),
        value => format!("{name}={value}"),
    };
    let short: String = whole.chars().take(120).collect();
    short.escape_default().to_string().replace("\\'", "'")
}
