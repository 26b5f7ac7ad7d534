//! A run that several tests read: each test is a process of its own, so the first one makes it and the others find it below
//! `target/`.

use super::{files_below, kernel};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// A lock of this name among all processes of these tests, released with the value.
pub fn lock(name: &str) -> File {
    let file = File::create(folder().join(format!("{name}.lock"))).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    file
}

/// The directory of this name that `make` has filled for these files: the program, a guest's kernel. It is made once; where `make`
/// fails, the next test that asks tries again.
pub fn shared(name: &str, of: &[&Path], make: impl FnOnce(&Path)) -> PathBuf {
    let _lock = lock(name);
    let made = folder().join(format!("{name}-{:016x}", key(of)));
    if !made.exists() {
        // Earlier programs' are of no use.
        let entries = fs::read_dir(folder())
            .unwrap()
            .flatten()
            .map(|entry| entry.path());
        let is_stale =
            |path: &PathBuf| path.is_dir() && path.to_string_lossy().contains(&format!("/{name}-"));
        entries
            .filter(is_stale)
            .for_each(|path| fs::remove_dir_all(path).unwrap());
        let part = tempfile::tempdir_in(folder()).unwrap();
        make(part.path());
        fs::rename(part.keep(), &made).unwrap();
    }
    made
}

/// A recording of this name by this program, of guests of the usual kernel, that `make` puts into a directory.
pub fn shared_recording(name: &str, program: &str, make: impl FnOnce(&Path)) -> PathBuf {
    shared(name, &[Path::new(program), &kernel().image], make)
}

/// Copies the files below a folder, with their folders.
pub fn copy(from: &Path, to: &Path) {
    for file in files_below(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(&file, target).unwrap();
    }
}

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shared");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Other files, or the same after a change, give another key.
fn key(files: &[&Path]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in files {
        let metadata = fs::metadata(file).unwrap();
        (file, metadata.len(), metadata.modified().unwrap()).hash(&mut hasher);
    }
    hasher.finish()
}
