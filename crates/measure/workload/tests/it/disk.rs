//! Direct reads and writes of files, in every mode.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use vmtax_model::{Metric, Places, Series, Stamped, TrialResult, WorkloadName, WorkloadSpec};
use vmtax_workload::{BlockWork, WorkloadError, block_work, run, run_with_series};

fn spec(options: &[(&str, &str)]) -> WorkloadSpec {
    options
        .iter()
        .fold(WorkloadSpec::new(WorkloadName::Disk), |spec, (o, v)| {
            spec.with(o, v)
        })
}

fn places(disk: &Path) -> Places {
    Places {
        disk: Some(disk.to_owned()),
        destroy: Some(disk.to_owned()),
        ..Places::default()
    }
}

fn measured(disk: &Path, options: &[(&str, &str)]) -> Result<TrialResult, WorkloadError> {
    run(&spec(options), &places(disk))
}

fn with_series(disk: &Path, options: &[(&str, &str)]) -> (TrialResult, Series) {
    run_with_series(&spec(options), &places(disk)).unwrap()
}

fn offsets(series: &Series) -> Vec<u64> {
    series.operations.iter().map(|o| o.key).collect()
}

/// The most operations that were under way at a time; none of them at the same place.
fn most_under_way(operations: &[Stamped]) -> usize {
    let mut under_way: Vec<&Stamped> = Vec::new();
    let mut most = 0;
    for operation in operations {
        under_way.retain(|o| o.end > operation.begin);
        assert!(
            under_way.iter().all(|o| o.key != operation.key),
            "twice at once: {operation:?}"
        );
        under_way.push(operation);
        most = most.max(under_way.len());
    }
    most
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
    let got = measured(&disk, &[("count", "1000"), ("time", "0")]).unwrap();
    let summary = got.summary("read").unwrap();
    assert_eq!(summary.count, 1000);
    assert_eq!(got.value(Metric::DiskMedian), Some(summary.p50_ns as f64));
    assert!(got.value(Metric::DiskTail) >= got.value(Metric::DiskMedian));
    assert!((got.value(Metric::DiskRate).unwrap() * got.total_s - 1000.0).abs() < 1e-6);
}

#[test]
fn time_ends_it() {
    let directory = directory();
    let disk = written(&directory, 1 << 20);
    let got = measured(&disk, &[("time", "0.1"), ("block-size", "16K")]).unwrap();
    assert!((0.1..5.0).contains(&got.total_s), "{} s", got.total_s);
}

#[test]
fn a_disk_that_cannot_be_measured_is_refused_with_the_reason() {
    let directory = directory();
    let refusal = |disk: &Path| measured(disk, &[("count", "1")]).unwrap_err().to_string();
    let path = directory.path().join("sparse");
    File::create(&path).unwrap().set_len(4 << 20).unwrap();
    assert!(refusal(&path).contains("is sparse"), "{}", refusal(&path));
    let small = written(&directory, 4096);
    assert!(
        refusal(&small).contains("has 4096 bytes"),
        "{}",
        refusal(&small)
    );
    let missing = directory.path().join("missing");
    assert!(
        refusal(&missing).contains("existing block device"),
        "{}",
        refusal(&missing)
    );
    assert!(
        refusal(directory.path()).contains("neither a file nor a block device"),
        "{}",
        refusal(directory.path())
    );
    // procfs has no direct I/O.
    assert!(
        refusal(Path::new("/proc/version")).contains("refuses direct I/O"),
        "{}",
        refusal(Path::new("/proc/version"))
    );
    let none = run(&WorkloadSpec::new(WorkloadName::Disk), &Places::default())
        .unwrap_err()
        .to_string();
    assert!(none.contains("--disk FILE"), "{none}");
}

#[test]
fn a_disk_that_is_not_named_is_not_overwritten() {
    let directory = directory();
    let disk = written(&directory, 4 << 20);
    let other = directory.path().join("other");
    fs::write(&other, "").unwrap();
    for destroy in [None, Some(other)] {
        let places = Places {
            destroy,
            ..places(&disk)
        };
        for depth in ["1", "4"] {
            let write = spec(&[("operation", "write"), ("depth", depth), ("count", "9")]);
            let refusals = [
                run(&write, &places).map(drop),
                run_with_series(&write, &places).map(drop),
            ];
            for refusal in refusals {
                let why = refusal.unwrap_err().to_string();
                let named = format!("--destroy {} allows it", disk.display());
                assert!(
                    why.starts_with("disk's operation=write would overwrite /")
                        && why.contains(&named),
                    "{why}"
                );
            }
        }
        run(&spec(&[("count", "9")]), &places).unwrap();
    }
    assert!(fs::read(&disk).unwrap().iter().all(|&b| b == 0x5a));
}

#[test]
fn every_mode_makes_what_is_asked_for() {
    let directory = directory();
    let disk = written(&directory, 4 << 20);
    for mode in ["seq", "random"] {
        for operation in ["read", "write"] {
            for depth in ["1", "2", "32"] {
                let options = [
                    ("mode", mode),
                    ("operation", operation),
                    ("depth", depth),
                    ("count", "200"),
                    ("time", "0"),
                ];
                let (got, series) = with_series(&disk, &options);
                let summary = got.summary(operation).unwrap();
                assert_eq!(
                    (summary.count, series.operations.len()),
                    (200, 200),
                    "{options:?}"
                );
                assert!(got.value(Metric::DiskTail) >= got.value(Metric::DiskMedian));
                assert!((got.value(Metric::DiskRate).unwrap() * got.total_s - 200.0).abs() < 1e-6);
                let ns: f64 = series
                    .operations
                    .iter()
                    .map(|o| (o.end - o.begin) as f64 * 1000.0 / series.mhz)
                    .sum();
                assert!(
                    (ns / summary.sum_ns - 1.0).abs() < 0.01,
                    "{ns} ns by stamps, {} else",
                    summary.sum_ns
                );
                assert!(
                    offsets(&series)
                        .iter()
                        .all(|o| o % 4096 == 0 && *o < 4 << 20)
                );
            }
        }
    }
}

#[test]
fn one_at_a_time_goes_block_by_block() {
    let directory = directory();
    let disk = written(&directory, 1 << 20);
    let (_, series) = with_series(
        &disk,
        &[("block-size", "64K"), ("count", "40"), ("time", "0")],
    );
    assert_eq!(
        offsets(&series),
        (0..40).map(|n| n % 16 * 65_536).collect::<Vec<u64>>()
    );
    assert_eq!(most_under_way(&series.operations), 1);
}

#[test]
fn many_are_under_way_at_once_but_never_two_at_one_place() {
    let directory = directory();
    let disk = written(&directory, 1 << 20);
    for mode in ["seq", "random"] {
        // As many blocks as there are places: the hardest case.
        let options = [
            ("block-size", "32K"),
            ("depth", "32"),
            ("mode", mode),
            ("count", "3000"),
            ("time", "0"),
        ];
        let (_, series) = with_series(&disk, &options);
        let most = most_under_way(&series.operations);
        assert!((2..=32).contains(&most), "{most} in mode {mode}");
    }
}

#[test]
fn random_blocks_are_uniform_and_the_same_each_time() {
    let directory = directory();
    let disk = written(&directory, 1 << 20);
    let draw = || {
        offsets(
            &with_series(
                &disk,
                &[("mode", "random"), ("count", "6400"), ("time", "0")],
            )
            .1,
        )
    };
    let drawn = draw();
    assert_eq!(drawn, draw());
    let mut times = [0i64; 256];
    drawn.iter().for_each(|o| times[(o / 4096) as usize] += 1);
    // 25 times each, give or take 5; with 255 degrees of freedom the sum lies outside in one draw of a hundred thousand.
    let chi2: f64 = times.iter().map(|n| ((n - 25) as f64).powi(2) / 25.0).sum();
    assert!((160.0..360.0).contains(&chi2), "{chi2}");
}

#[test]
fn writes_reach_every_block_and_reads_leave_all_as_it_was() {
    let directory = directory();
    let disk = written(&directory, (1 << 20) + 100);
    for depth in ["1", "8"] {
        measured(
            &disk,
            &[
                ("depth", depth),
                ("mode", "random"),
                ("count", "600"),
                ("time", "0"),
            ],
        )
        .unwrap();
        assert!(fs::read(&disk).unwrap().iter().all(|&b| b == 0x5a));
    }
    for depth in ["1", "8"] {
        let disk = written(&directory, (1 << 20) + 100);
        measured(
            &disk,
            &[
                ("operation", "write"),
                ("depth", depth),
                ("count", "256"),
                ("time", "0"),
            ],
        )
        .unwrap();
        let bytes = fs::read(&disk).unwrap();
        assert_eq!(bytes.len(), (1 << 20) + 100);
        let blocks = bytes.chunks_exact(4096);
        assert!(
            blocks.remainder().iter().all(|&b| b == 0x5a),
            "what is no whole block is not touched"
        );
        assert!(blocks.clone().all(|block| block[8..] != [0x5a; 4088]));
        let heads: BTreeSet<&[u8]> = blocks.map(|block| &block[..8]).collect();
        assert_eq!(heads.len(), 256, "depth {depth}");
    }
}

#[test]
fn time_ends_it_with_many_under_way_too() {
    let directory = directory();
    let disk = written(&directory, 4 << 20);
    let (got, series) = with_series(
        &disk,
        &[("time", "0.1"), ("depth", "4"), ("mode", "random")],
    );
    assert!((0.1..5.0).contains(&got.total_s), "{} s", got.total_s);
    assert_eq!(
        got.summary("read").unwrap().count,
        series.operations.len() as u64
    );
}

#[test]
fn stamps_that_cannot_be_kept_and_disks_too_small_are_refused() {
    let directory = directory();
    let disk = written(&directory, 1 << 20);
    let refused = |spec: &WorkloadSpec| run_with_series(spec, &places(&disk)).unwrap_err();
    let cpu = refused(&WorkloadSpec::new(WorkloadName::Cpu));
    assert!(
        matches!(cpu, WorkloadError::NoRequests(WorkloadName::Cpu)),
        "{cpu}"
    );
    assert!(matches!(
        refused(&spec(&[("count", "5000000")])),
        WorkloadError::TooMany {
            asked: 5_000_000,
            ..
        }
    ));
    let few = refused(&spec(&[("block-size", "64K"), ("depth", "17")])).to_string();
    assert!(
        few.contains("has 16 blocks of 65536, fewer than depth=17"),
        "{few}"
    );
}

#[test]
fn what_is_asked_for_can_be_read_off() {
    let options = [
        ("mode", "random"),
        ("operation", "write"),
        ("depth", "32"),
        ("time", "0.5"),
        ("count", "7"),
    ];
    let work = BlockWork {
        block: 4096,
        random: true,
        write: true,
        depth: 32,
        time_ns: 500_000_000,
        count: 7,
    };
    assert_eq!(block_work(&spec(&options)).unwrap(), work);
    assert!(
        block_work(&spec(&[("depth", "33")]))
            .unwrap_err()
            .to_string()
            .contains("from 1 to 32")
    );
    assert!(block_work(&WorkloadSpec::new(WorkloadName::Memory)).is_err());
}
