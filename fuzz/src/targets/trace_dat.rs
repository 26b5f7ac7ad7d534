//! A stranger's file of trace-cmd: a trace or an error, in bounded memory.

use crate::{scratch, trace_events};
use vmtax_trace::Dat;

pub fn run(data: &[u8]) {
    let trace = match Dat::open(&scratch::file("trace", data)) {
        Ok(trace) => trace,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    if let Ok(events) = trace.events() {
        trace_events::read(trace.formats(), events);
    }
}
