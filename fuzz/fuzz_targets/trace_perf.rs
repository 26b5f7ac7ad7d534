//! A stranger's file of perf: a trace or an error, in bounded memory.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use vmtax_trace::{Entry, Perf};

/// Used again for each input. `scripts/fuzz` removes it.
static FILE: OnceLock<PathBuf> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    let file = FILE.get_or_init(|| std::env::temp_dir().join("trace_perf"));
    fs::write(file, data).expect("a temporary file");
    let trace = match Perf::open(file) {
        Ok(trace) => trace,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let Ok(mut events) = trace.events() else { return };
    while let Ok(Some(entry)) = events.next() {
        if let Entry::Event(event) = entry {
            for (_, field) in &trace.formats().get(event.id).expect("a known event").fields {
                let _ = (field.signed(event.data), field.text(event.data));
            }
        }
    }
});
