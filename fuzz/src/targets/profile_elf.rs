//! A program of any bytes, in a recording that is sound: its tables are read, and stacks unwound with them.

use crate::scratch;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use vmtax_profile::import;

const RECORDED: &[u8] = include_bytes!("../../../crates/analyze/profile/tests/data/tiny.perf.data");
/// Where the program lay when it was recorded.
const PATH: &[u8] = b"/dev/shm/vmtax-a-path-with-room-for-that-of-a-temporary-file-to-be-put-there";

/// A recording that says that the program was at a path of ours.
fn recording_of(program: &Path) -> Vec<u8> {
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
    data
}

pub fn run(bytes: &[u8]) {
    let program = scratch::file("program", bytes);
    let recording = scratch::folder().join("recording");
    // Made once: the program stays the same file.
    if !recording.exists() {
        scratch::write(&recording, &recording_of(&program));
    }
    let imported = import(&recording, None, None, true).expect("a sound recording");
    assert_eq!(imported.found.profile.total(), 31);
}
