//! A stranger's perf.data: a profile or an error, in bounded memory.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use vmtax_profile::{fold, import};

/// Used again for each input. `scripts/fuzz` removes it.
static FILE: OnceLock<PathBuf> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    let file = FILE.get_or_init(|| std::env::temp_dir().join("profile_perf"));
    fs::write(file, data).expect("a temporary file");
    match import(file, None, None, true) {
        Ok(imported) => drop(fold::fold(&imported.found.profile)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
