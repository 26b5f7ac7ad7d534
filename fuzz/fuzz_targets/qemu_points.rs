//! A QEMU that a person names may be any file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Write;
use vmtax_observe::uprobes;
use vmtax_vm::PROBE_POINTS;

fuzz_target!(|binary: &[u8]| {
    let Ok(mut file) = tempfile::NamedTempFile::new() else { return };
    if file.write_all(binary).is_err() {
        return;
    }
    let (probes, missing) = uprobes(PROBE_POINTS, file.path());
    assert!(probes.iter().all(|probe| !probe.fields.is_empty()));
    assert!(!probes.is_empty() || !missing.is_empty());
});
