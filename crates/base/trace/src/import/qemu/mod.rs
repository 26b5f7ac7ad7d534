//! QEMU's own traces. What their events hold, QEMU's list of them says: `trace-events-all`, beside its other data.
//!
//! Source: `docs/devel/tracing.rst`, `trace/simple.c` and `scripts/tracetool` of QEMU.

mod list;
mod log;
mod simple;
mod template;

#[cfg(test)]
mod tests;

use crate::file::text;
use crate::{EventId, Formats, TraceError};
use std::collections::HashMap;
use std::path::Path;

/// The events of block requests, which QEMUs have declared alike since 2.10, as QEMU's own list declares them
/// (`trace-events-all`).
const BLOCK_REQUESTS: &str = r#"
virtio_blk_handle_read(void *vdev, void *req, uint64_t sector, size_t nsectors) "vdev %p req %p sector %"PRIu64" nsectors %zu"
virtio_blk_handle_write(void *vdev, void *req, uint64_t sector, size_t nsectors) "vdev %p req %p sector %"PRIu64" nsectors %zu"
virtio_blk_submit_multireq(void *vdev, void *mrb, int start, int num_reqs, uint64_t offset, size_t size, bool is_write) "vdev %p mrb %p start %d num_reqs %d offset %"PRIu64" size %zu is_write %d"
virtio_blk_req_complete(void *vdev, void *req, int status) "vdev %p req %p status %d"
virtio_notify_irqfd(void *vdev, void *vq) "vdev %p vq %p"
"#;

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

    /// The events of a virtio disk's requests, of any QEMU since 2.10. A trace may have others, which are counted as unknown.
    pub fn block_requests() -> QemuEvents {
        QemuEvents::parse(BLOCK_REQUESTS).unwrap_or_default()
    }

    /// The kinds of events; an argument is a field of its name.
    pub fn formats(&self) -> &Formats {
        &self.formats
    }

    /// The event of a name.
    fn named(&self, name: &str) -> Option<(EventId, &list::Event)> {
        let id = *self.ids.get(name)?;
        Some((id, self.events.get(usize::from(id.0))?))
    }
}
