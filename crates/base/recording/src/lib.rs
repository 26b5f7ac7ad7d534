//! What the trials left on disk: written so that a kill at any moment loses at most the trial under way, read back from
//! the files alone.
//!
//! ```text
//! runs/20261120T161811Z-quick/
//!   plan.toml               can be run again
//!   host.json               facts of the host
//!   run.json                version, command line, begin and end
//!   trials/0000/trial.json  what, where, when, exit, figures, summaries of the latencies
//!   trials/0000/ops.hlog    the latencies: HdrHistogram interval log, one tagged line per operation, nanoseconds
//!   trials/0000/…           of an observed trial: trace.json, ops.series, guest-trace/, host-trace/ (docs/recording.md)
//! ```

mod file;
mod files;
mod list;
mod reader;
mod trial;
mod writer;

pub use files::TrialFiles;
pub use list::{Listing, State, list};
pub use reader::open;
pub use writer::Writer;

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use vmtax_model::{HostFacts, Plan, PlanError, SCHEMA, TrialRecord};

/// `run.json`: what made the recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`vmtax_model::SCHEMA`] of the writer.
    pub schema: u32,
    /// The version of vmtax that wrote it.
    pub vmtax: String,
    /// The command line that made it.
    pub command: Vec<String>,
    /// When it began, RFC 3339.
    pub started: String,
    /// When it ended; `None` when it was cut off.
    pub ended: Option<String>,
}

/// A recording, read back whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// Its folder.
    pub folder: PathBuf,
    /// `run.json`.
    pub manifest: Manifest,
    /// `plan.toml`.
    pub plan: Plan,
    /// `host.json`.
    pub host: HostFacts,
    /// `trials/NNNN/trial.json` with their `ops.hlog`, in order.
    pub trials: Vec<TrialRecord>,
    /// Trials that cannot be read, with the reason: the rest still counts.
    pub damaged: Vec<String>,
}

impl Recording {
    /// The folder of a trial: its raw traces are there.
    pub fn trial_folder(&self, number: u32) -> PathBuf {
        self.folder.join(TRIALS).join(writer::folder_name(number))
    }
}

/// A recording cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The folder or a file in it cannot be written.
    #[error("cannot write {path}: {source}; choose a folder you may write to, on a disk with free space")]
    Write {
        /// What was to be written.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The plan or a trial has no form on disk.
    #[error("{what} cannot be stored: {reason}")]
    Unstorable {
        /// The plan, or which trial.
        what: String,
        /// Why, and what to do.
        reason: String,
    },
    /// There is no such folder.
    #[error("there is no folder {0}: `vmtax run` makes recordings, `vmtax list` shows them")]
    NoFolder(PathBuf),
    /// A folder, but not a recording, or its beginning is lost.
    #[error(
        "{folder} is no recording of vmtax: {missing} is missing; give a folder that `vmtax list` shows, or restore \
         the file from where this recording was copied"
    )]
    Foreign {
        /// The folder.
        folder: PathBuf,
        /// The file that should be in it.
        missing: &'static str,
    },
    /// A file is damaged.
    #[error("{path} is damaged ({reason}): restore it from where this recording was copied, or run the plan again")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A newer vmtax wrote it.
    #[error("{path} has schema {schema}, this vmtax knows up to {SCHEMA}: update vmtax to read it")]
    TooNew {
        /// The file.
        path: PathBuf,
        /// What it says.
        schema: u64,
    },
    /// The plan in it is none.
    #[error("{path}: {source}")]
    Plan {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: PlanError,
    },
    /// A file is there and cannot be read.
    #[error("cannot read {path}: {source}; check its owner and permissions")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

/// The files of a recording.
const MANIFEST: &str = "run.json";
const PLAN: &str = "plan.toml";
const HOST: &str = "host.json";
const TRIALS: &str = "trials";
const TRIAL: &str = "trial.json";
const LATENCIES: &str = "ops.hlog";
