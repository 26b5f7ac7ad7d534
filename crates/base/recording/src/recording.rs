//! A recording in memory.

use crate::file::read_json;
use crate::layout::{self, Manifest};
use crate::{RecordingError, TrialFiles};
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use vmtax_model::{HostFacts, Plan, TrialRecord};

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
        self.folder
            .join(layout::TRIALS)
            .join(layout::trial_folder(number))
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
        let missing = || RecordingError::Damaged {
            path: path.clone(),
            reason: "the file is missing".to_owned(),
        };
        read_json(&path, LARGEST_ARTIFACT)?.ok_or_else(missing)
    }
}
