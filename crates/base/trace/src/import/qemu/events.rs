//! The events that a QEMU has.

use super::list;
use crate::file::text;
use crate::{EventId, Formats, TraceError};
use std::collections::HashMap;
use std::path::Path;

/// The events that a QEMU knows, of the subsystem `qemu`. Their IDs are their places in the list.
#[derive(Debug, Default)]
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
        QemuEvents::parse(&text(path)?).map_err(|reason| TraceError::Damaged {
            path: path.to_owned(),
            reason,
        })
    }

    /// Reads the text of `trace-events-all`.
    ///
    /// # Errors
    /// A message with the fault of the text, and where it is.
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
        Ok(QemuEvents {
            formats,
            ids,
            events,
        })
    }

    /// The kinds of events; an argument is a field of its name.
    pub fn formats(&self) -> &Formats {
        &self.formats
    }

    /// The event of a name.
    pub(super) fn named(&self, name: &str) -> Option<(EventId, &list::Event)> {
        let id = *self.ids.get(name)?;
        Some((id, self.events.get(usize::from(id.0))?))
    }
}
