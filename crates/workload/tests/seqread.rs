//! Sequential direct reads of files.

// A test fails by panicking.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use vmtax_model::Places;
use vmtax_model::{Metric, TrialResult, WorkloadName, WorkloadSpec};
use vmtax_workload::{WorkloadError, run};

fn seqread(disk: &Path, options: &[(&str, &str)]) -> Result<TrialResult, WorkloadError> {
    let spec = options.iter().fold(WorkloadSpec::new(WorkloadName::Seqread), |spec, (o, v)| spec.with(o, v));
    run(&spec, &Places { files: None, disk: Some(disk.to_owned()) })
}

/// A directory on a real filesystem: the build's own, since /tmp may be in memory.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn written(directory: &tempfile::TempDir, bytes: usize) -> PathBuf {
    let path = directory.path().join("disk");
    let mut file = File::create(&path).unwrap();
    file.write_all(&vec![0x5a; bytes]).unwrap();
    file.sync_all().unwrap();
    path
}

#[test]
fn reads_from_the_start_again_at_the_end() {
    let directory = directory();
    // 257 blocks of 4 KiB and a bit: the odd bytes are never read.
    let disk = written(&directory, 257 * 4096 + 100);
    let got = seqread(&disk, &[("count", "1000"), ("time", "0")]).unwrap();
    let summary = got.summary("read").unwrap();
    assert_eq!(summary.count, 1000);
    assert_eq!(got.value(Metric::SeqreadMedian), Some(summary.p50_ns as f64));
    assert!(got.value(Metric::SeqreadTail) >= got.value(Metric::SeqreadMedian));
    assert!((got.value(Metric::SeqreadRate).unwrap() * got.total_s - 1000.0).abs() < 1e-6);
}

#[test]
fn time_ends_it() {
    let directory = directory();
    let disk = written(&directory, 1 << 20);
    let got = seqread(&disk, &[("time", "0.1"), ("block-size", "16K")]).unwrap();
    assert!((0.1..5.0).contains(&got.total_s), "{} s", got.total_s);
}

#[test]
fn a_disk_that_cannot_be_measured_is_refused_with_the_reason() {
    let directory = directory();
    let refusal = |disk: &Path| seqread(disk, &[("count", "1")]).unwrap_err().to_string();
    let path = directory.path().join("sparse");
    File::create(&path).unwrap().set_len(4 << 20).unwrap();
    assert!(refusal(&path).contains("is sparse"), "{}", refusal(&path));
    let small = written(&directory, 4096);
    assert!(refusal(&small).contains("has 4096 bytes"), "{}", refusal(&small));
    let missing = directory.path().join("missing");
    assert!(refusal(&missing).contains("existing block device"), "{}", refusal(&missing));
    assert!(refusal(directory.path()).contains("neither a file nor a block device"), "{}", refusal(directory.path()));
    // procfs has no direct I/O.
    assert!(
        refusal(Path::new("/proc/version")).contains("refuses direct I/O"),
        "{}",
        refusal(Path::new("/proc/version"))
    );
    let none = run(&WorkloadSpec::new(WorkloadName::Seqread), &Places::default()).unwrap_err().to_string();
    assert!(none.contains("--disk FILE"), "{none}");
}
