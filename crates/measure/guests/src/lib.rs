//! Components of guests: kernels and QEMUs, found, fetched or built into the user's cache, never installed.

pub mod apt;
mod error;
pub mod kernel;
pub mod qemu;
#[cfg(test)]
mod testing;

use std::fs::DirEntry;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A file or folder cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}: {}", path.display(), self.fix())]
pub struct FileError {
    /// Path of the file or folder.
    pub path: PathBuf,
    /// The error of the system.
    pub source: io::Error,
    /// True if it was to be read; else it was to be written.
    pub read: bool,
}

impl FileError {
    fn new(path: &Path, source: io::Error, read: bool) -> FileError {
        let path = path.into();
        FileError { path, source, read }
    }

    fn fix(&self) -> &'static str {
        match (self.read, self.source.kind()) {
            (true, ErrorKind::PermissionDenied) => "run as root, or check its permissions",
            (true, ErrorKind::NotFound) => "check the path",
            (true, _) => "check the path and the file",
            (false, ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                "free some space, or move the cache with XDG_CACHE_HOME"
            }
            (false, _) => "choose a writable directory (for the cache: XDG_CACHE_HOME)",
        }
    }
}

/// Says which file an error of the system is about.
pub(crate) trait ResultExt<T> {
    fn reading(self, path: impl AsRef<Path>) -> Result<T, FileError>;
    fn writing(self, path: impl AsRef<Path>) -> Result<T, FileError>;
}

impl<T, E: Into<io::Error>> ResultExt<T> for Result<T, E> {
    fn reading(self, path: impl AsRef<Path>) -> Result<T, FileError> {
        self.map_err(|e| FileError::new(path.as_ref(), e.into(), true))
    }

    fn writing(self, path: impl AsRef<Path>) -> Result<T, FileError> {
        self.map_err(|e| FileError::new(path.as_ref(), e.into(), false))
    }
}

/// The entries of a folder; none where it cannot be read.
pub(crate) fn entries(folder: &Path) -> impl Iterator<Item = DirEntry> + use<> {
    std::fs::read_dir(folder).into_iter().flatten().flatten()
}

/// The names of a folder's entries, as far as they are text.
pub(crate) fn names(folder: &Path) -> impl Iterator<Item = String> + use<> {
    entries(folder).filter_map(|entry| entry.file_name().into_string().ok())
}

/// Removes a folder, if it is there.
pub(crate) fn clear(folder: &Path) -> Result<(), FileError> {
    match std::fs::remove_dir_all(folder) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e).writing(folder),
        _ => Ok(()),
    }
}
