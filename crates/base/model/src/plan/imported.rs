//! Files of other tools that a plan imports.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Traces of one VM that other tools recorded. It is the plan's `[import]`; the plan has no machines then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ImportedFiles {
    /// Paths of the traces, 1 to 64.
    pub files: Vec<PathBuf>,
}
