//! Files in which a process writes down what it has set in VMs and hosts, so that a later start removes what a killed process left.
//! They are gone after a restart of the host, as what they tell of is.

use serde::{Serialize, de::DeserializeOwned};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use vmtax_observe::counters::started;

/// This process's own file of a kind. Its folder is made; nothing else.
///
/// # Errors
/// Without a folder of this user's, and where it cannot be made.
pub(crate) fn own(kind: &str) -> io::Result<PathBuf> {
    let why = || {
        let what = "XDG_RUNTIME_DIR is not set: set it to a directory that you alone may use, or run vmtax as root";
        io::Error::other(what)
    };
    let folder = folder(kind).ok_or_else(why)?;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)?;
    let own = std::process::id() as i32;
    Ok(folder.join(format!("{own}-{}", started(own).unwrap_or(0))))
}

/// The files of a kind that ended processes left, those of the last started first: what it set is restored before what others
/// had set earlier.
pub(crate) fn stale(kind: &str) -> Vec<PathBuf> {
    folder(kind).map_or(Vec::new(), |folder| stale_in(&folder))
}

fn stale_in(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = files
        .map(|entry| entry.path())
        .filter(|path| is_stale(path))
        .collect();
    files.sort_by_key(|path| std::cmp::Reverse(writer(path).map(|(_, at)| at)));
    files
}

/// Reads a file; `None` where it cannot be read.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// The whole file or none, on the disk before anything is set.
///
/// # Errors
/// Where it cannot be written.
pub(crate) fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = fs::File::create(&new)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_all()?;
    fs::rename(new, path)
}

/// Returns true if the process that wrote a file has ended.
fn is_stale(file: &Path) -> bool {
    writer(file).is_some_and(|(pid, at)| started(pid) != Some(at))
}

/// The process that wrote a file: its PID and when it started, clock ticks since boot.
fn writer(file: &Path) -> Option<(i32, u64)> {
    let (pid, at) = file.file_name()?.to_str()?.split_once('-')?;
    Some((pid.parse().ok()?, at.parse().ok()?))
}

/// Where this user's processes write that down.
pub(crate) fn folder(kind: &str) -> Option<PathBuf> {
    let base = if rustix::process::geteuid().is_root() {
        PathBuf::from("/run")
    } else {
        PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?)
    };
    Some(base.join("vmtax").join(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_ended_processes_are_stale() {
        let own = std::process::id() as i32;
        let at = started(own).unwrap();
        assert!(!is_stale(Path::new(&format!("/x/{own}-{at}"))));
        assert!(
            is_stale(Path::new(&format!("/x/{own}-{}", at + 1))),
            "another process with its PID"
        );
        assert!(is_stale(Path::new(&format!("/x/{}-5", i32::MAX))));
        assert!(!is_stale(Path::new("/x/notes")) && !is_stale(Path::new("/x/a-b")));
    }

    #[test]
    fn the_last_started_is_restored_first() {
        let folder = tempfile::tempdir().unwrap();
        for at in [5, 70, 9] {
            fs::write(folder.path().join(format!("{}-{at}", i32::MAX)), "").unwrap();
        }
        let starts: Vec<u64> = stale_in(folder.path())
            .iter()
            .filter_map(|path| Some(writer(path)?.1))
            .collect();
        assert_eq!(starts, [70, 9, 5]);
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1-2");
        write(&path, &["a", "b"]).unwrap();
        assert_eq!(read::<Vec<String>>(&path).unwrap(), ["a", "b"]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
