//! The five tests of sysbench, run for real and small.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use vmtax_model::Places;
use vmtax_model::{Metric, TrialResult, WorkloadName, WorkloadSpec};
use vmtax_workload::{WorkloadError, run};

fn spec(name: WorkloadName, options: &[(&str, &str)]) -> WorkloadSpec {
    options
        .iter()
        .fold(WorkloadSpec::new(name), |spec, (option, value)| {
            spec.with(option, value)
        })
}

fn result(name: WorkloadName, options: &[(&str, &str)]) -> TrialResult {
    run(&spec(name, options), &Places::default()).unwrap()
}

fn count(result: &TrialResult, operation: &str) -> u64 {
    result.summary(operation).map_or(0, |s| s.count)
}

#[test]
fn the_number_of_events_is_kept_by_all_threads_together() {
    let got = result(
        WorkloadName::Cpu,
        &[
            ("events", "101"),
            ("threads", "7"),
            ("max-prime", "500"),
            ("time", "0"),
        ],
    );
    assert_eq!(count(&got, "event"), 101);
    let fairness = got.fairness.unwrap();
    assert_eq!(fairness.threads, 7);
    assert!((fairness.events_mean - 101.0 / 7.0).abs() < 1e-9);
    let rate = got.value(Metric::CpuEvents).unwrap();
    assert!(
        (rate * got.total_s - 101.0).abs() < 1e-6,
        "{rate} for {} s",
        got.total_s
    );
}

#[test]
fn time_ends_a_run_and_the_event_under_way_completes() {
    let got = result(WorkloadName::Cpu, &[("time", "0.2"), ("max-prime", "100")]);
    assert!(
        got.total_s >= 0.2 && count(&got, "event") > 100,
        "{} s",
        got.total_s
    );
    // One event takes longer than the limit: it counts all the same.
    let got = result(
        WorkloadName::Cpu,
        &[("time", "0.05"), ("max-prime", "1000000")],
    );
    assert_eq!(count(&got, "event"), 1);
    assert!(got.total_s * 1e9 >= got.summary("event").unwrap().min_ns as f64 * 0.99);
}

#[test]
fn five_hundred_threads_run() {
    let got = result(
        WorkloadName::Threads,
        &[("threads", "500"), ("yields", "2"), ("events", "1000")],
    );
    assert_eq!(
        (got.fairness.unwrap().threads, count(&got, "event")),
        (500, 1000)
    );
}

#[test]
fn mutex_is_one_event_a_thread_and_its_figure_the_time() {
    let got = result(
        WorkloadName::Mutex,
        &[("threads", "3"), ("locks", "100"), ("loops", "10")],
    );
    assert_eq!(count(&got, "event"), 3);
    assert_eq!(got.value(Metric::MutexTime), Some(got.total_s));
}

#[test]
fn memory_moves_what_it_was_told_to() {
    for options in [
        [
            ("oper", "write"),
            ("access-mode", "seq"),
            ("scope", "global"),
        ],
        [("oper", "read"), ("access-mode", "rnd"), ("scope", "local")],
        [
            ("oper", "write"),
            ("access-mode", "rnd"),
            ("scope", "global"),
        ],
        [
            ("oper", "read"),
            ("access-mode", "seq"),
            ("scope", "global"),
        ],
    ] {
        let sizes = [
            ("block-size", "64K"),
            ("total-size", "8M"),
            ("threads", "2"),
        ];
        let got = result(WorkloadName::Memory, &[&options[..], &sizes].concat());
        assert_eq!(count(&got, "event"), 128);
        let moved = got.value(Metric::MemoryBandwidth).unwrap() * got.total_s;
        assert!((moved - 8.0).abs() < 1e-6, "{moved} MiB");
    }
    let none = result(
        WorkloadName::Memory,
        &[("oper", "none"), ("total-size", "1M")],
    );
    assert_eq!(
        (count(&none, "event"), none.value(Metric::MemoryBandwidth)),
        (1024, None)
    );
}

const SMALL: [(&str, &str); 4] = [
    ("num", "4"),
    ("total-size", "1M"),
    ("events", "1000"),
    ("time", "0"),
];

fn fileio(directory: &Path, options: &[(&str, &str)]) -> Result<TrialResult, WorkloadError> {
    let spec = spec(WorkloadName::Fileio, &[&SMALL[..], options].concat());
    run(
        &spec,
        &Places {
            files: Some(directory.to_owned()),
            ..Places::default()
        },
    )
}

fn names(directory: &Path) -> BTreeSet<String> {
    fs::read_dir(directory)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn fileio_does_what_sysbench_does_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("mine"), "precious").unwrap();
    fs::write(directory.path().join("test_file.2"), "a killed trial's").unwrap();
    // (mode, reads, writes, fsyncs): 36 periodic syncs in 1000 events and 4 at the end, as sysbench 1.0.20 counts.
    for (mode, reads, writes, fsyncs) in [
        ("seqwr", 0, 964, 40),
        ("seqrewr", 0, 964, 40),
        ("rndwr", 0, 964, 40),
        ("seqrd", 1000, 0, 0),
        ("rndrd", 1000, 0, 0),
        ("rndrw", 578, 386, 40),
    ] {
        let got = fileio(directory.path(), &[("test-mode", mode)]).unwrap();
        assert_eq!(count(&got, "event"), 1000, "{mode}");
        let done = (
            count(&got, "read"),
            count(&got, "write"),
            count(&got, "fsync"),
        );
        assert!(
            done.0.abs_diff(reads) <= 1 && done.1.abs_diff(writes) <= 1 && done.2 == fsyncs,
            "{mode}: {done:?}"
        );
        assert_eq!(
            got.value(Metric::FileioReads).is_some(),
            reads > 0,
            "{mode}"
        );
        assert_eq!(
            got.value(Metric::FileioPrepare).is_some(),
            mode != "seqwr",
            "{mode}"
        );
        if let Some(rate) = got.value(Metric::FileioWriteBandwidth) {
            let mebibytes = rate * got.total_s;
            assert!(
                (mebibytes - done.1 as f64 / 64.0).abs() < 1e-6,
                "{mode}: {mebibytes} MiB written"
            );
        }
        assert_eq!(
            names(directory.path()),
            BTreeSet::from(["mine".to_owned()]),
            "{mode}"
        );
    }
}

#[test]
fn fileio_syncs_as_told() {
    let directory = tempfile::tempdir().unwrap();
    let fsyncs = |options: &[(&str, &str)]| {
        let options = [&[("test-mode", "rndwr"), ("events", "50")], options].concat();
        count(&fileio(directory.path(), &options).unwrap(), "fsync")
    };
    assert_eq!(fsyncs(&[]), 4);
    assert_eq!(fsyncs(&[("threads", "3")]), 12);
    assert_eq!(fsyncs(&[("fsync-end", "off")]), 0);
    assert_eq!(fsyncs(&[("fsync-all", "on")]), 50);
    assert_eq!(
        fsyncs(&[("fsync-mode", "fdatasync"), ("extra-flags", "sync,dsync")]),
        4
    );
}

#[test]
fn fileio_says_what_is_wrong_with_its_directory() {
    let missing = fileio(Path::new("/nowhere/at/all"), &[])
        .unwrap_err()
        .to_string();
    assert!(
        missing.contains("/nowhere/at/all/test_file.0")
            && missing.contains("create the directory first"),
        "{missing}"
    );
    let none = run(&spec(WorkloadName::Fileio, &SMALL), &Places::default())
        .unwrap_err()
        .to_string();
    assert!(none.contains("--files DIR"), "{none}");
}
