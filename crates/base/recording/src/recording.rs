//! A recording in memory, and where on disk it keeps what.

use crate::RecordingError;
use crate::file::{TrialFiles, read_json};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use vmtax_model::{HostFacts, KernelFacts, Plan, TrialRecord};

/// Bytes of an observer's file of JSON, at most; vmtax writes far smaller ones.
const LARGEST_ARTIFACT: u64 = 64 << 20;

/// A recording, read back whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// Folder of the recording.
    pub folder: PathBuf,
    /// Content of `run.json`.
    pub manifest: Manifest,
    /// Content of `plan.toml`.
    pub plan: Plan,
    /// Content of `host.json`.
    pub host: HostFacts,
    /// `trials/NNNN/trial.json` with their `ops.hlog`, in order.
    pub trials: Vec<TrialRecord>,
    /// Trials that cannot be read, with the reason: the rest still counts.
    pub damaged: Vec<String>,
}

impl Recording {
    /// The folder of a trial: its raw traces are there.
    pub fn trial_folder(&self, number: u32) -> PathBuf {
        self.folder.join(TRIALS).join(trial_folder(number))
    }

    /// Takes files that are added to a trial afterwards.
    pub fn trial_files(&self, number: u32) -> TrialFiles {
        TrialFiles::new(&self.folder, self.trial_folder(number))
    }

    /// A file of JSON that an observer left in the folder of a trial.
    ///
    /// # Errors
    /// [`RecordingError`] when it is missing, damaged or of a newer version.
    pub fn artifact<T: DeserializeOwned>(
        &self,
        trial: u32,
        name: &str,
    ) -> Result<T, RecordingError> {
        let path = self.trial_folder(trial).join(name);
        read_json(&path, LARGEST_ARTIFACT)?
            .ok_or_else(|| RecordingError::damaged(&path, "the file is missing"))
    }
}

pub(crate) const MANIFEST: &str = "run.json";

pub(crate) const PLAN: &str = "plan.toml";

pub(crate) const HOST: &str = "host.json";

pub(crate) const TRIALS: &str = "trials";

pub(crate) const TRIAL: &str = "trial.json";

pub(crate) const LATENCIES: &str = "ops.hlog";

/// The folder name of a trial: at least four digits.
pub(crate) fn trial_folder(number: u32) -> String {
    format!("{number:04}")
}

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
    /// The kernels that its guests boot, a variant's each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<KernelFacts>,
}
