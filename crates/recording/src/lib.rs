//! What the trials left on disk: written so that a kill at any moment loses at most the trial under way, read back from
//! the files alone.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use vmtax_model::{HostFacts, Plan, TrialRecord};

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
