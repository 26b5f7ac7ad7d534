//! Files that are whole or absent, and reading that trusts neither their size nor their kind; files that come with a
//! trial, piece by piece (raw traces, the workload's own stamps) or as one value.

use crate::RecordingError;
use rustix::fs::OFlags;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use vmtax_model::SCHEMA;

/// The file of a recording that is being written. One name, so that what a killed process left of it is found at once.
pub(crate) const UNFINISHED: &str = "unfinished.part";

/// Writes a file of a recording so that at any moment, also after a power cut, it is there whole or not at all.
pub(crate) fn write_whole(
    recording: &Path,
    path: &Path,
    bytes: &[u8],
) -> Result<(), RecordingError> {
    let unfinished = recording.join(UNFINISHED);
    let attempt = || -> io::Result<()> {
        let mut file = File::create(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)?;
        match path.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    };
    attempt().map_err(|source| {
        let _ = fs::remove_file(&unfinished);
        RecordingError::write(path)(source)
    })
}

/// Reads a regular file of at most `limit` bytes; `None` when it is not there.
///
/// # Errors
/// [`RecordingError::Damaged`] when it is larger, or no regular file; [`RecordingError::Read`].
pub fn read_bounded(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, RecordingError> {
    let fail = RecordingError::read(path);
    // Opening a pipe or device that someone put there would hang, or do something. Nor may one come in its place meanwhile.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let file = match fs::metadata(path).map(|file| file.is_file()) {
        Ok(true) => OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)
            .map_err(&fail)?,
        Ok(false) => return Err(RecordingError::damaged(path, "it is not a regular file")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(fail(e)),
    };
    let mut bytes = Vec::new();
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(&fail)?;
    if bytes.len() as u64 > limit {
        return Err(RecordingError::damaged(
            path,
            format!("larger than {limit} bytes"),
        ));
    }
    Ok(Some(bytes))
}

/// Reads a JSON file of this or an older schema, of at most `limit` bytes; `None` when it is not there.
///
/// # Errors
/// [`RecordingError`] for a file that cannot be read, is no such JSON, or is of a newer schema.
pub(crate) fn read_json<T: DeserializeOwned>(
    path: &Path,
    limit: u64,
) -> Result<Option<T>, RecordingError> {
    let Some(bytes) = read_bounded(path, limit)? else {
        return Ok(None);
    };
    let damaged = |e: serde_json::Error| RecordingError::damaged(path, e);
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(damaged)?;
    // The schema first: what else is wrong with a newer file is no damage.
    match value.get("schema").and_then(serde_json::Value::as_u64) {
        None => return Err(RecordingError::damaged(path, "it names no schema")),
        Some(schema) if schema > u64::from(SCHEMA) => {
            return Err(RecordingError::TooNew {
                path: path.to_owned(),
                schema,
            });
        }
        Some(_) => {}
    }
    serde_json::from_value(value).map(Some).map_err(damaged)
}

/// `value` as JSON for people and tools.
pub(crate) fn to_json(what: &str, value: &impl Serialize) -> Result<Vec<u8>, RecordingError> {
    let mut bytes =
        serde_json::to_vec_pretty(value).map_err(|e| RecordingError::unstorable(what, e))?;
    bytes.push(b'\n');
    Ok(bytes)
}

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
            .map_err(RecordingError::write(&path))
    }

    /// Writes a value as JSON to the file of that name: it is there whole or not at all, also after a kill.
    ///
    /// # Errors
    /// As of [`TrialFiles::append`], and when the value is no JSON.
    pub fn store(&mut self, name: &str, value: &impl Serialize) -> Result<(), RecordingError> {
        let bytes = serde_json::to_vec(value).map_err(|e| unstorable(name, e))?;
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
        if !path.exists() {
            self.files += 1;
            if self.files > MOST_FILES {
                return Err(refused("the trial has too many files"));
            }
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(RecordingError::write(&path))?;
            }
        }
        Ok(path)
    }
}

fn unstorable(name: &str, reason: impl ToString) -> RecordingError {
    let what = format!("the trial's file '{}'", name.escape_default());
    RecordingError::unstorable(what, reason)
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
