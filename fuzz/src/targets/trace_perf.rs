//! A stranger's file of perf: a trace or an error, in bounded memory.

use crate::{scratch, trace_events};
use vmtax_trace::Perf;

pub fn run(data: &[u8]) {
    let trace = match Perf::open(&scratch::file("trace", data)) {
        Ok(trace) => trace,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    if let Ok(events) = trace.events() {
        trace_events::read(trace.formats(), events);
    }
}
