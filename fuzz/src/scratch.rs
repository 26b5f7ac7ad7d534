//! Files for parsers that take a path. They go away with the thread.

use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

thread_local! {
    static FOLDER: TempDir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder");
}

/// This thread's folder.
pub fn folder() -> PathBuf {
    FOLDER.with(|folder| folder.path().to_path_buf())
}

/// A file of this content in that folder; one of the same name is written over.
pub fn file(name: &str, content: &[u8]) -> PathBuf {
    let file = folder().join(name);
    write(&file, content);
    file
}

/// Writes a file anew.
pub fn write(file: &Path, content: &[u8]) {
    fs::write(file, content).expect("a temporary file");
}
