//! Files of traces, read without trusting their kind, their size, or a length in them; the error of one that cannot be read.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use vmtax_model::limit_remedy;

/// The longest text file that is read, bytes: QEMU's list of all its events has half a MiB.
const MAX_TEXT_FILE: u64 = 4 << 20;
/// The longest text in a file that is read, bytes: all the formats of a system, or the options of a large machine.
const MAX_TEXT: u64 = 64 << 20;
const MAX_STRING: usize = 4096;
/// The longest line that is read, bytes: no event is so long.
const MAX_LINE: u64 = 64 << 10;

/// A trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A file cannot be read.
    #[error("failed to read {}: {source}{}", path.display(), limit_remedy(.source))]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{} is damaged, or not a supported trace ({reason}): record it again", path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Fault of its content.
        reason: String,
    },
    /// A file that may be sound, but in a form that is not read here.
    #[error("{}: {reason}", path.display())]
    Unsupported {
        /// Path of the file.
        path: PathBuf,
        /// Form of the file, and the next step.
        reason: String,
    },
    /// A folder without raw pages.
    #[error("{} has no file INSTANCE.cpuN.raw: give the directory of a trace", path.display())]
    NoPages {
        /// Path of the directory.
        path: PathBuf,
    },
}

pub(crate) fn unreadable(path: &Path, source: io::Error) -> TraceError {
    TraceError::Read {
        path: path.to_owned(),
        source,
    }
}

pub(crate) fn damaged(path: &Path, reason: impl Into<String>) -> TraceError {
    TraceError::Damaged {
        path: path.to_owned(),
        reason: reason.into(),
    }
}

/// The error of a file that is checked while it is read: what is wrong with it, or why it cannot be read.
pub(crate) fn failed(path: &Path, e: io::Error) -> TraceError {
    match e.kind() {
        ErrorKind::InvalidData => damaged(path, e.to_string()),
        ErrorKind::Unsupported => TraceError::Unsupported {
            path: path.to_owned(),
            reason: e.to_string(),
        },
        ErrorKind::UnexpectedEof => damaged(path, "truncated"),
        _ => unreadable(path, e),
    }
}

pub(crate) fn open(path: &Path) -> Result<File, TraceError> {
    File::open(path).map_err(|source| unreadable(path, source))
}

/// Reads a small text file; what is no UTF-8 in it is replaced.
pub(crate) fn text(path: &Path) -> Result<String, TraceError> {
    let mut bytes = Vec::new();
    // Opening a pipe or device that someone put there would hang.
    if fs::metadata(path).is_ok_and(|kind| !kind.is_file()) {
        return Err(damaged(path, "not a regular file"));
    }
    let read = open(path)?.take(MAX_TEXT_FILE + 1).read_to_end(&mut bytes);
    read.map_err(|source| unreadable(path, source))?;
    if bytes.len() as u64 > MAX_TEXT_FILE {
        return Err(damaged(path, format!("longer than {MAX_TEXT_FILE} bytes")));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The file is damaged or of another kind.
pub(crate) fn wrong(reason: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, reason.to_owned())
}

pub(crate) fn bytes<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn u16(from: &mut impl Read) -> io::Result<u16> {
    bytes(from).map(u16::from_le_bytes)
}

pub(crate) fn u32(from: &mut impl Read) -> io::Result<u32> {
    bytes(from).map(u32::from_le_bytes)
}

pub(crate) fn u64(from: &mut impl Read) -> io::Result<u64> {
    bytes(from).map(u64::from_le_bytes)
}

/// A text up to its NUL.
pub(crate) fn string(from: &mut impl Read) -> io::Result<String> {
    let mut text = Vec::new();
    loop {
        match bytes(from)? {
            [0] => return Ok(String::from_utf8_lossy(&text).into_owned()),
            [_] if text.len() == MAX_STRING => return Err(wrong("unterminated name")),
            [byte] => text.push(byte),
        }
    }
}

/// Exactly `length` bytes; a declared length allocates no memory before the data is read.
pub(crate) fn exactly(from: &mut impl Read, length: u64) -> io::Result<Vec<u8>> {
    if length > MAX_TEXT {
        return Err(wrong(&format!("invalid text length {length}")));
    }
    let mut data = Vec::new();
    from.take(length).read_to_end(&mut data)?;
    whole(data.len() as u64, length).map(|()| data)
}

/// A text behind its length in 64 bits.
pub(crate) fn sized(from: &mut impl Read) -> io::Result<String> {
    let length = u64(from)?;
    exactly(from, length).map(|text| String::from_utf8_lossy(&text).into_owned())
}

/// Skips `length` bytes.
pub(crate) fn skip(from: &mut impl Read, length: u64) -> io::Result<()> {
    let skipped = io::copy(&mut from.take(length), &mut io::sink())?;
    whole(skipped, length)
}

/// Returns an error of kind `UnexpectedEof` if fewer bytes were read than there should be.
fn whole(read: u64, length: u64) -> io::Result<()> {
    if read < length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// The lines of a text, each of bounded length.
pub(crate) struct Lines<R> {
    from: BufReader<R>,
    line: Vec<u8>,
}

/// Result of [`Lines::read`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineRead {
    Whole,
    /// A line that is longer than any event; it was skipped.
    TooLong,
    End,
}

impl<R: Read> Lines<R> {
    pub fn new(from: R) -> Lines<R> {
        Lines {
            from: BufReader::with_capacity(64 << 10, from),
            line: Vec::new(),
        }
    }

    /// Reads the next line.
    pub fn read(&mut self) -> io::Result<LineRead> {
        if self.read_piece()? == 0 {
            return Ok(LineRead::End);
        }
        let mut read = LineRead::Whole;
        while self.line.len() as u64 == MAX_LINE && !self.line.ends_with(b"\n") {
            read = LineRead::TooLong;
            self.read_piece()?;
        }
        Ok(read)
    }

    /// Reads what is left of a line, at most [`MAX_LINE`]; gives its length, 0 at the end.
    fn read_piece(&mut self) -> io::Result<usize> {
        self.line.clear();
        (&mut self.from)
            .take(MAX_LINE)
            .read_until(b'\n', &mut self.line)
    }

    /// The line that was read last, without its end; what is no UTF-8 is replaced.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.line.trim_ascii_end())
    }
}
