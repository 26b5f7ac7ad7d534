//! A stranger's trace as text: events or an error, in bounded memory.

use crate::trace_events;
use vmtax_trace::TraceText;

pub fn run(data: &[u8]) {
    match TraceText::read(data, "fuzz".as_ref()) {
        Ok(text) => trace_events::read(text.formats(), text.events_of(data)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
