//! Files that are whole or absent, and reading that trusts neither their size nor their kind.

use crate::RecordingError;
use rustix::fs::OFlags;
use serde::de::DeserializeOwned;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
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
        RecordingError::Write {
            path: path.to_owned(),
            source,
        }
    })
}

/// Reads a regular file of at most `limit` bytes; `None` when it is not there.
///
/// # Errors
/// [`RecordingError::Damaged`] when it is larger, or no regular file; [`RecordingError::Read`].
pub fn read_bounded(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, RecordingError> {
    let damaged = |reason: String| RecordingError::Damaged {
        path: path.to_owned(),
        reason,
    };
    let fail = |source| RecordingError::Read {
        path: path.to_owned(),
        source,
    };
    // Opening a pipe or device that someone put there would hang, or do something. Nor may one come in its place meanwhile.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let file = match fs::metadata(path).map(|file| file.is_file()) {
        Ok(true) => OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)
            .map_err(fail)?,
        Ok(false) => return Err(damaged("it is not a regular file".to_owned())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(fail(e)),
    };
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() as u64 > limit {
        return Err(damaged(format!("larger than {limit} bytes")));
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
    let damaged = |reason: String| RecordingError::Damaged {
        path: path.to_owned(),
        reason,
    };
    let value: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
    // The schema first: what else is wrong with a newer file is no damage.
    match value.get("schema").and_then(serde_json::Value::as_u64) {
        None => return Err(damaged("it names no schema".to_owned())),
        Some(schema) if schema > u64::from(SCHEMA) => {
            return Err(RecordingError::TooNew {
                path: path.to_owned(),
                schema,
            });
        }
        Some(_) => {}
    }
    serde_json::from_value(value)
        .map(Some)
        .map_err(|e| damaged(e.to_string()))
}

/// `value` as JSON for people and tools.
pub(crate) fn to_json(
    what: &str,
    value: &impl serde::Serialize,
) -> Result<Vec<u8>, RecordingError> {
    let unstorable = |e: serde_json::Error| RecordingError::Unstorable {
        what: what.to_owned(),
        reason: e.to_string(),
    };
    let mut bytes = serde_json::to_vec_pretty(value).map_err(unstorable)?;
    bytes.push(b'\n');
    Ok(bytes)
}
