//! The folder of a build.

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

pub(super) fn clear(folder: &Path) -> Result<(), QemuError> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(QemuError::file(folder)(e)),
        _ => Ok(()),
    }
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), QemuError> {
    fs::write(path, text).map_err(QemuError::file(path))
}
