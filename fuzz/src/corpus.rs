//! Inputs to begin with.

use std::fs;
use std::io;
use std::path::Path;

/// The inputs of a target, in the order of their names.
///
/// # Errors
/// Where the folder or a file of it cannot be read.
pub fn corpus(target: &str) -> io::Result<Vec<Vec<u8>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target);
    let mut files = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<Vec<_>>>()?;
    files.sort();
    files.iter().map(fs::read).collect()
}
