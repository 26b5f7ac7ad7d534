//! `perf.data` and folded stacks of other tools, sound and damaged. `data/tiny.perf.data` is of `data/tiny`, which burns
//! known shares of a CPU, by `perf record -B -e cpu-clock:u -F 250 --call-graph dwarf,256`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use vmtax_profile::{Imported, ProfileError, flame, import};

const PROGRAM: &[u8] = include_bytes!("data/tiny");
const RECORDED: &[u8] = include_bytes!("data/tiny.perf.data");
/// Where the program lay when it was recorded.
const PATH: &[u8] = b"/dev/shm/vmtax-a-path-with-room-for-that-of-a-temporary-file-to-be-put-there";
/// `PROT_READ | PROT_EXEC`.
const MAPPED: u32 = 5;

/// A recording of a program with these bytes.
struct Recorded {
    folder: TempDir,
    data: Vec<u8>,
}

impl Recorded {
    fn of_program(program: &[u8]) -> Recorded {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny");
        std::fs::write(&path, program).unwrap();
        let inode = path.metadata().unwrap().ino();
        let mut data = RECORDED.to_vec();
        let mut own = path.as_os_str().as_encoded_bytes().to_vec();
        assert!(own.len() < PATH.len(), "a shorter TMPDIR is needed");
        own.resize(PATH.len(), 0);
        // { u64 inode; u64 generation; u32 protection; u32 flags; char path[] } of PERF_RECORD_MMAP2
        for at in (24..data.len() - PATH.len()).filter(|&at| RECORDED[at..].starts_with(PATH)) {
            if data[at - 8..at - 4] == MAPPED.to_le_bytes() {
                data[at - 24..at - 16].copy_from_slice(&inode.to_le_bytes());
                data[at..at + PATH.len()].copy_from_slice(&own);
            }
        }
        Recorded { folder, data }
    }

    fn file(&self, bytes: &[u8]) -> PathBuf {
        let file = self.folder.path().join("perf.data");
        std::fs::write(&file, bytes).unwrap();
        file
    }

    fn import(&self) -> Result<Imported, ProfileError> {
        import(&self.file(&self.data), None, None, true)
    }
}

#[test]
#[ignore = "needs root"]
fn root_imports_the_file_of_another_user_only_when_told_to() {
    let recorded = Recorded::of_program(PROGRAM);
    let file = recorded.file(&recorded.data);
    std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
    let refused = import(&file, None, None, false).unwrap_err().to_string();
    assert!(
        refused.contains("belongs to another user") && refused.contains("--force"),
        "{refused}"
    );
    assert_eq!(import(&file, None, None, true).unwrap().program, "tiny");
    std::os::unix::fs::chown(&file, Some(0), None).unwrap();
    assert!(import(&file, None, None, false).is_ok());
}

#[test]
fn a_recording_is_unwound_and_named() {
    let Imported {
        found,
        program,
        missing,
        pid,
    } = Recorded::of_program(PROGRAM).import().unwrap();
    assert_eq!(
        (program.as_str(), found.hz, found.trigger.as_str(), missing),
        ("tiny", 250, "cpu-clock:u", vec![])
    );
    let unwound = found.unwound;
    assert_eq!(
        (found.profile.total(), unwound.outside, unwound.to_root),
        (31, 31, 31)
    );
    let folded = flame::fold(&found.profile);
    assert_eq!(folded.len(), 3, "{folded:#?}");
    assert!(
        folded
            .iter()
            .all(|line| line.contains(";_start;run;") && line.contains(";spin ")),
        "{folded:#?}"
    );
    assert!(folded[0].contains(";fifty;spin 16"), "{folded:#?}");
    assert!((0.1..0.5).contains(&found.seconds) && pid > 0);
}

#[test]
fn another_build_or_process_is_rejected() {
    let recorded = Recorded::of_program(PROGRAM);
    let unchanged = import(&recorded.file(RECORDED), None, None, true).unwrap();
    let reason_for = |imported: &Imported, path: &[u8]| {
        let found = imported
            .found
            .unnamed
            .iter()
            .find(|(file, _)| file.as_bytes() == path);
        found
            .unwrap_or_else(|| panic!("{:?}", imported.found.unnamed))
            .1
            .clone()
    };
    assert!(reason_for(&unchanged, PATH).contains("No such file"));
    assert_eq!(unchanged.found.profile.total(), 31);
    assert!(unchanged.found.profile.functions.iter().all(|f| !f.named));
    // Another file at its place.
    let path = recorded.folder.path().join("tiny");
    std::fs::write(recorded.folder.path().join("other"), PROGRAM).unwrap();
    std::fs::rename(recorded.folder.path().join("other"), &path).unwrap();
    let other = recorded.import().unwrap();
    assert!(reason_for(&other, path.as_os_str().as_encoded_bytes()).contains("another build"));
    let error = import(&recorded.file(&recorded.data), Some(1), None, true)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no sample of process 1") && error.contains("): 31"),
        "{error}"
    );
    let error = import(Path::new("/nonexistent/perf.data"), None, None, true)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("/nonexistent/perf.data") && error.contains("perf.data file"),
        "{error}"
    );
    let error = import(&recorded.file(b"PERFILE2 and no more"), None, None, true)
        .unwrap_err()
        .to_string();
    assert!(error.contains("perf.data"), "{error}");
}

#[test]
fn a_build_id_that_is_too_long_is_an_error() {
    let recorded = Recorded::of_program(PROGRAM);
    let mut bytes = recorded.data.clone();
    // Of PERF_RECORD_MMAP2 (10) the path lies at 72, the flags at 4, and what tells the file from 40 on.
    let is_mapping = |at: &usize| bytes[*at..at + 4] == [10, 0, 0, 0] && bytes[at + 72] == b'/';
    let mapping = (0..bytes.len() - 72).find(is_mapping).unwrap();
    bytes[mapping + 5] |= 0x40;
    bytes[mapping + 40] = 21;
    let error = import(&recorded.file(&bytes), None, None, true)
        .unwrap_err()
        .to_string();
    assert!(error.contains("build-id"), "{error}");
}

#[test]
fn invalid_records_are_counted() {
    let recorded = Recorded::of_program(PROGRAM);
    let mut bytes = recorded.data.clone();
    // Of PERF_RECORD_SAMPLE (9) the flags lie at 4, and at 48 how many addresses the kernel followed.
    let is_sample =
        |at: &usize| bytes[*at..at + 6] == [9, 0, 0, 0, 2, 0] && bytes[at + 48..at + 56] == [0; 8];
    let samples: Vec<usize> = (0..bytes.len() - 56).filter(is_sample).collect();
    assert_eq!(samples.len(), 31);
    for at in &samples[..2] {
        bytes[at + 50] = 1;
    }
    let Imported { found, missing, .. } = import(&recorded.file(&bytes), None, None, true).unwrap();
    assert_eq!(found.profile.total(), 29);
    assert!(
        missing.len() == 1 && missing[0].why == "2 records are invalid",
        "{missing:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_damaged_recording_is_survived(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let recorded = Recorded::of_program(PROGRAM);
        let mut bytes = recorded.data.clone();
        for (at, with) in changes {
            let at = at.index(bytes.len());
            bytes[at] = with;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let _ = import(&recorded.file(&bytes), None, None, true);
    }

    #[test]
    fn a_damaged_program_does_not_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut program = PROGRAM.to_vec();
        for (at, with) in changes {
            let at = at.index(program.len());
            program[at] = with;
        }
        // All samples are there, whatever becomes of their names.
        prop_assert_eq!(Recorded::of_program(&program).import().unwrap().found.profile.total(), 31);
    }
}
