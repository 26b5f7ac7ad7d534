//! Files, read without trusting their size or kind.

use crate::TraceError;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// The longest text file that is read, bytes: QEMU's list of all its events has half a MiB.
const MAX_TEXT: u64 = 4 << 20;

pub(crate) fn text(path: &Path) -> Result<String, TraceError> {
    let mut bytes = Vec::new();
    // Opening a pipe or device that someone put there would hang.
    if fs::metadata(path).is_ok_and(|kind| !kind.is_file()) {
        return Err(TraceError::Damaged {
            path: path.to_owned(),
            reason: "not a regular file".to_owned(),
        });
    }
    let read = File::open(path).and_then(|file| file.take(MAX_TEXT + 1).read_to_end(&mut bytes));
    read.map_err(|source| unreadable(path, source))?;
    if bytes.len() as u64 > MAX_TEXT {
        let reason = format!("longer than {MAX_TEXT} bytes");
        return Err(TraceError::Damaged {
            path: path.to_owned(),
            reason,
        });
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

pub(crate) fn unreadable(path: &Path, source: io::Error) -> TraceError {
    TraceError::Read {
        path: path.to_owned(),
        source,
    }
}

/// The error of a file that is checked while it is read: what is wrong with it, or why it cannot be read.
pub(crate) fn failed(path: &Path, e: io::Error) -> TraceError {
    let path = path.to_owned();
    match e.kind() {
        io::ErrorKind::InvalidData => TraceError::Damaged {
            path,
            reason: e.to_string(),
        },
        io::ErrorKind::Unsupported => TraceError::Unsupported {
            path,
            reason: e.to_string(),
        },
        io::ErrorKind::UnexpectedEof => TraceError::Damaged {
            path,
            reason: "truncated".to_owned(),
        },
        _ => TraceError::Read { path, source: e },
    }
}
