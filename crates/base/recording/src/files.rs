//! Files that come with a trial: piece by piece (raw traces, the workload's own stamps), or as one value.

use crate::RecordingError;
use crate::file::write_whole;
use serde::Serialize;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Component, Path, PathBuf};

/// More than any trial traces; a guest that goes on sending is stopped here.
const MOST_BYTES: u64 = 4 << 30;
/// As many formats and CPUs as there may be.
const MOST_FILES: usize = 4096;

/// Takes the files of a trial. Their names come from a guest and are not trusted.
#[derive(Debug)]
pub struct TrialFiles {
    recording: PathBuf,
    folder: PathBuf,
    bytes: u64,
    files: usize,
}

impl TrialFiles {
    pub(crate) fn new(recording: &Path, folder: PathBuf) -> TrialFiles {
        TrialFiles {
            recording: recording.to_owned(),
            folder,
            bytes: 0,
            files: 0,
        }
    }

    /// The folder they are in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Appends to the file of that name, in folders below the trial's as the name says.
    ///
    /// # Errors
    /// [`RecordingError`] when it cannot be written, or when the name or the amount is none of ours.
    pub fn append(&mut self, name: &str, bytes: &[u8]) -> Result<(), RecordingError> {
        let path = self.make_room(name, bytes.len())?;
        let file = OpenOptions::new().create(true).append(true).open(&path);
        file.and_then(|mut file| file.write_all(bytes))
            .map_err(|source| RecordingError::Write { path, source })
    }

    /// Writes a value as JSON to the file of that name: it is there whole or not at all, also after a kill.
    ///
    /// # Errors
    /// As of [`TrialFiles::append`], and when the value is no JSON.
    pub fn store(&mut self, name: &str, value: &impl Serialize) -> Result<(), RecordingError> {
        let bytes = serde_json::to_vec(value).map_err(|e| unstorable(name, &e.to_string()))?;
        let path = self.make_room(name, bytes.len())?;
        write_whole(&self.recording, &path, &bytes)
    }

    /// The path of the file of that name, whose folder is made, once it may have so many bytes more.
    fn make_room(&mut self, name: &str, bytes: usize) -> Result<PathBuf, RecordingError> {
        let refused = |reason| unstorable(name, reason);
        if !is_plain(name) {
            return Err(refused("its name is not plain"));
        }
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if self.bytes > MOST_BYTES {
            return Err(refused(
                "with it the trial has more than 4 GiB; trace for a shorter time",
            ));
        }
        let path = self.folder.join(name);
        let write = |source| RecordingError::Write {
            path: path.clone(),
            source,
        };
        if !path.exists() {
            self.files += 1;
            if self.files > MOST_FILES {
                return Err(refused("the trial has too many files"));
            }
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(write)?;
            }
        }
        Ok(path)
    }
}

fn unstorable(name: &str, reason: &str) -> RecordingError {
    RecordingError::Unstorable {
        what: format!("the trial's file '{}'", name.escape_default()),
        reason: reason.to_owned(),
    }
}

/// At most three names of letters, digits, '.', '_' and '-', none of them a way out.
fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let path = Path::new(name);
    let normal = path
        .components()
        .all(|c| matches!(c, Component::Normal(n) if n.to_string_lossy().chars().all(plain)));
    !name.is_empty() && name.len() <= 200 && normal && path.components().count() <= 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_value_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = TrialFiles::new(folder.path(), folder.path().join("trials"));
        let value: Vec<u32> = (0..1_000_000).collect();
        let path = folder.path().join("trials/value.json");
        std::thread::scope(|scope| {
            std::thread::Builder::new()
                .spawn_scoped(scope, || files.store("value.json", &value).unwrap())
                .unwrap();
            let first_seen = loop {
                if let Ok(bytes) = fs::read(&path) {
                    break bytes;
                }
            };
            assert_eq!(
                serde_json::from_slice::<Vec<u32>>(&first_seen).unwrap(),
                value
            );
        });
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "nothing unfinished is left"
        );
    }

    #[test]
    fn pieces_are_put_together_and_ways_out_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = TrialFiles::new(folder.path(), folder.path().to_owned());
        files
            .append("guest-trace/formats/sched.sched_switch", b"name: ")
            .unwrap();
        files
            .append("guest-trace/formats/sched.sched_switch", b"sched_switch")
            .unwrap();
        let text = fs::read(folder.path().join("guest-trace/formats/sched.sched_switch")).unwrap();
        assert_eq!(text, b"name: sched_switch");
        for bad in [
            "",
            "/etc/passwd",
            "../x",
            "a/../../x",
            "a/b/c/d",
            "a b",
            "x\0",
            &"x".repeat(300),
        ] {
            assert!(files.append(bad, b"x").is_err(), "{bad}");
        }
    }
}
