//! Where a recording keeps what.

use serde::{Deserialize, Serialize};
use vmtax_model::KernelFacts;

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
