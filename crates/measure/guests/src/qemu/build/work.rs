//! The folder of a build.

use crate::file_error::ResultExt;
use crate::qemu::error::QemuError;
use std::fs;
use std::path::{Path, PathBuf};

/// Where a build is under way.
pub(super) struct Work {
    pub source: PathBuf,
    pub build: PathBuf,
    pub log: PathBuf,
    /// Files that say how far it came.
    pub unpacked: PathBuf,
    pub configured: PathBuf,
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), QemuError> {
    Ok(fs::write(path, text).writing(path)?)
}
