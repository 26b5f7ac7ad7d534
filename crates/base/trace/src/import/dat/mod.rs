//! `trace.dat`, the file of trace-cmd, versions 6 and 7.
//!
//! Source: `trace-cmd.dat.v6(5)`, `trace-cmd.dat.v7(5)`, and files that trace-cmd 3.1 wrote.

mod head;
mod options;

#[cfg(test)]
mod tests;

pub use options::{TimeOffset, TimeShift, TracedGuest, TscScale};

use crate::file::{self, failed, open, unreadable, wrong};
use crate::{Events, Formats, Input, TraceError, TracedThreads};
use head::{Chunks, CpuPages, Head};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// A trace that trace-cmd recorded: the same raw pages as in a [`crate::Folder`], with the formats of all events of the
/// kernel. [`crate::Event::ticks`] are as the kernel wrote them: the offsets and scales that trace-cmd keeps beside them
/// are not applied. A format that is invalid is left out, and its events are counted as unknown.
#[derive(Debug)]
pub struct Dat {
    path: PathBuf,
    head: Head,
}

const MAGIC: &[u8; 10] = b"\x17\x08\x44tracing";

impl Dat {
    /// Opens a file.
    ///
    /// # Errors
    /// [`TraceError`] when it cannot be read, or is not a whole, little-endian file of version 6 or 7 with raw pages.
    pub fn open(path: &Path) -> Result<Dat, TraceError> {
        Dat::read(BufReader::new(open(path)?), path)
    }

    /// Reads the head of a file; the pages are read from `path` later.
    fn read(mut file: impl Read + Seek, path: &Path) -> Result<Dat, TraceError> {
        Ok(Dat {
            path: path.to_owned(),
            head: read_head(&mut file).map_err(|e| failed(path, e))?,
        })
    }

    /// The name of the clock that [`crate::Event::ticks`] is read from.
    pub fn clock(&self) -> &str {
        // trace-cmd's own default.
        self.head.options.clock.as_deref().unwrap_or("local")
    }

    /// The scale of a clock that counts ticks, where the file has it.
    pub fn tsc_scale(&self) -> Option<TscScale> {
        self.head.options.tsc
    }

    /// The file's ID in its tracing session, which files of peers name.
    pub fn trace_id(&self) -> Option<u64> {
        self.head.options.trace_id
    }

    /// Returns the corrections that turn the file's time stamps into those of its hosts.
    pub fn time_shifts(&self) -> &[TimeShift] {
        &self.head.options.shifts
    }

    /// The guests that were traced with it.
    pub fn guests(&self) -> &[TracedGuest] {
        &self.head.options.guests
    }

    /// The threads that it names.
    pub fn threads(&self) -> &TracedThreads {
        &self.head.threads
    }

    /// The kinds of events.
    pub fn formats(&self) -> &Formats {
        &self.head.formats
    }

    /// The CPUs with data, of each instance; [`crate::Event::input`] counts them from 0.
    pub fn parts(&self) -> &[CpuPages] {
        &self.head.parts
    }

    /// All events, from the first.
    ///
    /// # Errors
    /// [`TraceError::Read`] when the file cannot be read.
    pub fn events(&self) -> Result<Events<'_>, TraceError> {
        let opened = self.head.parts.iter().map(|part| {
            let mut file = open(&self.path)?;
            file.seek(SeekFrom::Start(part.offset))
                .map_err(|source| unreadable(&self.path, source))?;
            let pages: Box<dyn Read> = match part.codec {
                None => Box::new(file.take(part.bytes)),
                // These tell themselves where they end; the length beside their offset leaves four bytes out.
                Some(codec) => Box::new(Chunks::new(BufReader::new(file), codec)),
            };
            Ok(Input {
                path: self.path.clone(),
                cpu: part.cpu,
                layout: part.layout,
                pages,
            })
        });
        Events::pages(
            &self.head.formats,
            opened.collect::<Result<_, TraceError>>()?,
        )
    }
}

/// Reads the formats that perf stores as old trace-cmds did, version 0.5 or 0.6.
pub(crate) fn perf_head(mut data: &[u8]) -> io::Result<Formats> {
    let from = &mut data;
    begin(from)?;
    let _layout = head::layout(from)?;
    head::formats(from)
}

/// Reads what stands before the pages. An error of kind `InvalidData` says what is wrong with the file.
fn read_head<F: Read + Seek>(from: &mut F) -> io::Result<Head> {
    match begin(from)?.as_str() {
        "6" => head::version_6(from),
        "7" => head::version_7(from),
        other => Err(wrong(&format!(
            "unknown version {other:?}; 6 and 7 are supported"
        ))),
    }
}

/// Reads how a file begins; gives its version.
fn begin(from: &mut impl Read) -> io::Result<String> {
    if &file::bytes(from)? != MAGIC {
        return Err(wrong("not a trace.dat file"));
    }
    let version = file::string(from)?;
    let [endian, _long] = file::bytes(from)?;
    if endian != 0 {
        return Err(wrong("big-endian files are not supported"));
    }
    let _page = file::u32(from)?;
    Ok(version)
}
