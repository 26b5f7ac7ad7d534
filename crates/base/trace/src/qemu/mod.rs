//! QEMU's own traces. What their events hold, QEMU's list of them says: `trace-events-all`, beside its other data.
//!
//! Source: `docs/devel/tracing.rst`, `trace/simple.c` and `scripts/tracetool` of QEMU.

mod list;
mod log;
mod record;
mod simple;
mod template;

#[cfg(test)]
mod tests;

pub(crate) use log::Log;
pub(crate) use simple::Simple;

use crate::events::Source;
use crate::file::{text, unreadable};
use crate::format::EventId;
use crate::{Events, Formats, TraceError};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The events that a QEMU knows, of the subsystem `qemu`. Their IDs are their places in the list.
#[derive(Debug)]
pub struct QemuEvents {
    formats: Formats,
    ids: HashMap<String, EventId>,
    events: Vec<list::Event>,
}

impl QemuEvents {
    /// Reads QEMU's `trace-events-all`. It must be that of the QEMU that wrote the trace.
    ///
    /// # Errors
    /// [`TraceError`] when the file cannot be read or is no such list.
    pub fn open(path: &Path) -> Result<QemuEvents, TraceError> {
        QemuEvents::parse(&text(path)?).map_err(|reason| TraceError::Damaged { path: path.to_owned(), reason })
    }

    /// Reads the text of `trace-events-all`.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse(text: &str) -> Result<QemuEvents, String> {
        let events = list::parse(text)?;
        let mut formats = Formats::default();
        let mut ids = HashMap::new();
        for (n, event) in events.iter().enumerate() {
            let id = EventId(u16::try_from(n).map_err(|_| "more than 65536 events".to_owned())?);
            formats.insert(id, event.format())?;
            if ids.insert(event.name.clone(), id).is_some() {
                return Err(format!("{} is listed twice", event.name));
            }
        }
        Ok(QemuEvents { formats, ids, events })
    }

    /// The kinds of events; an argument is a field of its name.
    pub fn formats(&self) -> &Formats {
        &self.formats
    }

    /// The events of a file that QEMU's `simple` backend wrote (`--trace file=FILE`), version 4 (QEMU 2.8 and newer).
    /// [`crate::Event::ticks`] are nanoseconds of the host's `CLOCK_MONOTONIC` (the kernel's trace clock `mono`),
    /// [`crate::Event::pid`] is QEMU's process: the file names no thread.
    ///
    /// # Errors
    /// [`TraceError`] when the file cannot be read or is of another kind.
    pub fn simple(&self, path: &Path) -> Result<Events<'_>, TraceError> {
        self.simple_from(File::open(path).map_err(|source| unreadable(path, source))?, path)
    }

    /// The same of what is read from elsewhere; `path` is for messages.
    ///
    /// # Errors
    /// The same.
    pub fn simple_from<'q>(&'q self, from: impl Read + 'q, path: &Path) -> Result<Events<'q>, TraceError> {
        Simple::new(self, Box::new(from), path).map(|simple| Events(Source::Simple(simple)))
    }

    /// The events of a log that QEMU's `log` backend wrote with `-msg timestamp=on`, as Debian's QEMU does.
    /// [`crate::Event::ticks`] are nanoseconds since 1970, full microseconds; [`crate::Event::pid`] is the thread.
    ///
    /// # Errors
    /// [`TraceError`] when the file cannot be read.
    pub fn log(&self, path: &Path) -> Result<Events<'_>, TraceError> {
        Ok(self.log_from(File::open(path).map_err(|source| unreadable(path, source))?, path))
    }

    /// The same of what is read from elsewhere; `path` is for messages.
    pub fn log_from<'q>(&'q self, from: impl Read + 'q, path: &Path) -> Events<'q> {
        Events(Source::Log(Log::new(self, Box::new(from), path)))
    }

    /// The event of a name.
    fn named(&self, name: &str) -> Option<(EventId, &list::Event)> {
        let id = *self.ids.get(name)?;
        Some((id, self.events.get(usize::from(id.0))?))
    }
}
