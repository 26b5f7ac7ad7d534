//! Profiles: of other tools, of a guest, and the code that a guest runs.

use crate::scratch;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use vmtax_model::{ClockReading, InsideFacts, Ping, SCHEMA};
use vmtax_profile::code::findings;
use vmtax_profile::flame::{fold, unfold};
use vmtax_profile::import;
use vmtax_profile::inside::{GuestClock, by_host_clock, join, parse, summary};

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

/// A program of any bytes, in a recording that is sound: its tables are read, and stacks unwound with them.
pub fn profile_elf(bytes: &[u8]) {
    let program = scratch::file("program", bytes);
    let recording = scratch::folder().join("recording");
    // Made once: the program stays the same file.
    if !recording.exists() {
        scratch::write(&recording, &recording_of(&program));
    }
    let imported = import(&recording, None, None, true).expect("a sound recording");
    assert_eq!(imported.found.profile.total(), 31);
}

/// A stranger's folded stacks: what was read is written and read again as the same.
pub fn profile_folded(bytes: &[u8]) {
    let text = &String::from_utf8_lossy(bytes);
    let Ok(profile) = unfold(text, Path::new("fuzzed")) else {
        return;
    };
    let again =
        unfold(&fold(&profile).join("\n"), Path::new("fuzzed")).expect("what was folded here");
    assert_eq!(again.total(), profile.total());
}

/// Samples that a guest sends of itself: whatever is taken can be brought onto a clock, folded and summed.
pub fn profile_guest(bytes: &[u8]) {
    let Ok(mut guest) = parse(bytes) else { return };
    let facts = InsideFacts {
        schema: SCHEMA,
        threads: Vec::new(),
        pings: vec![Ping {
            at: 1,
            low: -5,
            high: 5,
            exchanges: 1,
        }],
        kvm_offset: None,
        beats: [
            ClockReading {
                ticks: 1,
                monotonic_ns: 1,
            },
            ClockReading {
                ticks: 9,
                monotonic_ns: 5,
            },
        ],
        missing: Vec::new(),
    };
    if let Ok(clock) = GuestClock::new(guest.beats, &facts) {
        by_host_clock(&mut guest, &clock);
    }
    fold(&guest.profile);
    let joined = join(&guest.profile, &guest.profile, guest.hz, &[]);
    assert_eq!(joined.profile.total(), guest.profile.total());
    summary(&guest, Some(&joined));
}

/// A stranger's perf.data: a profile or an error, in bounded memory.
pub fn profile_perf(data: &[u8]) {
    match import(&scratch::file("perf.data", data), None, None, true) {
        Ok(imported) => drop(fold(&imported.found.profile)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Answers of another's QEMU about its processors and their memory, apart by zeros.
pub fn guest_code(data: &[u8]) {
    let mut answers = data
        .split(|b| *b == 0)
        .map(|text| String::from_utf8_lossy(text).into_owned());
    let sampled = vmtax_observe::guest_code(
        &[0],
        1_000_000,
        Duration::from_secs(5),
        &|| false,
        &mut |_, _| answers.next(),
    );
    if let Some(code) = findings(&sampled) {
        assert!(
            code.places
                .iter()
                .all(|place| place.share.samples <= code.looks)
        );
    }
}
