//! A recording in memory.

use crate::layout::{self, Manifest};
use std::path::PathBuf;
use vmtax_model::{HostFacts, Plan, TrialRecord};

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
        self.folder.join(layout::TRIALS).join(layout::trial_folder(number))
    }
}
