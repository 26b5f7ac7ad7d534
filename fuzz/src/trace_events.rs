//! Every field of every event of a trace.

use vmtax_trace::{Entry, Events, Formats};

/// Reads them as a number and as a text, to the end or the first error.
pub fn read(formats: &Formats, mut events: Events<'_>) {
    while let Ok(Some(entry)) = events.next() {
        if let Entry::Event(event) = entry {
            for (_, field) in &formats.get(event.id).expect("a known event").fields {
                let _ = (field.signed(event.data), field.text(event.data));
            }
        }
    }
}
