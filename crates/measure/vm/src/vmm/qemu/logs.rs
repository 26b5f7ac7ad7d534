//! The paths of QEMU's logs.

use std::path::{Path, PathBuf};

/// QEMU's own trace events.
pub(crate) fn events(folder: &Path) -> PathBuf {
    folder.join("qemu.events")
}

/// QEMU's standard output and error.
pub(crate) fn log(folder: &Path) -> PathBuf {
    folder.join("qemu.log")
}
