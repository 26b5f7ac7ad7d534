//! Which files of other tools a plan imports.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Traces of one VM that other tools recorded. It is the plan's `[import]`; the plan has no machines then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ImportedFiles {
    /// The files.
    pub files: Vec<PathBuf>,
}
