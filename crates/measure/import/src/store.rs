//! Writes a file of the recording.

use crate::error::ImportError;
use serde::Serialize;
use vmtax_recording::TrialFiles;

/// Writes a value as JSON.
pub(crate) fn store(trial: &mut TrialFiles, name: &'static str, value: &impl Serialize) -> Result<(), ImportError> {
    let bytes = serde_json::to_vec(value).map_err(|e| ImportError::Unstorable { what: name, reason: e.to_string() })?;
    Ok(trial.append(name, &bytes)?)
}
