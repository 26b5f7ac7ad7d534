//! Where QEMU logs.

use std::path::{Path, PathBuf};

/// Where QEMU's own trace events go.
pub(crate) fn events(folder: &Path) -> PathBuf {
    folder.join("qemu.events")
}

/// Where QEMU's own words go.
pub(crate) fn log(folder: &Path) -> PathBuf {
    folder.join("qemu.log")
}
