//! A program of any bytes, in a recording that is sound: its tables are read, and stacks unwound with them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use vmtax_profile::import;

const RECORDED: &[u8] = include_bytes!("../../crates/analyze/profile/tests/data/tiny.perf.data");
/// Where the program lay when it was recorded.
const PATH: &[u8] = b"/dev/shm/vmtax-a-path-with-room-for-that-of-a-temporary-file-to-be-put-there";

/// The program and the recording, used again for each input. `scripts/fuzz` removes them.
static FILES: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();

/// The recording says that the program was at a path of ours.
fn files() -> (PathBuf, PathBuf) {
    let (program, recording) = (std::env::temp_dir().join("program"), std::env::temp_dir().join("recording"));
    fs::write(&program, b"").expect("a temporary file");
    let inode = program.metadata().expect("it is there").ino();
    let mut own = program.as_os_str().as_encoded_bytes().to_vec();
    own.resize(PATH.len(), 0);
    let mut data = RECORDED.to_vec();
    // As crates/analyze/profile/tests/import.rs has it.
    for at in (24..data.len() - PATH.len()).filter(|&at| RECORDED[at..].starts_with(PATH)) {
        if data[at - 8..at - 4] == 5u32.to_le_bytes() {
            data[at - 24..at - 16].copy_from_slice(&inode.to_le_bytes());
            data[at..at + PATH.len()].copy_from_slice(&own);
        }
    }
    fs::write(&recording, data).expect("a temporary file");
    (program, recording)
}

fuzz_target!(|bytes: &[u8]| {
    let (program, recording) = FILES.get_or_init(files);
    fs::write(program, bytes).expect("a temporary file");
    let imported = import(recording, None, None, true).expect("a sound recording");
    assert_eq!(imported.found.profile.total(), 31);
});
