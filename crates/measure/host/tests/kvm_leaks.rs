//! The KVM probe, again and again: the same verdict each time, in time, and nothing left in the process.
//! A file of its own, so that no other test's threads and descriptors are counted.

#![allow(clippy::unwrap_used)] // clippy does not know a test's helper as a test

use std::time::{Duration, Instant};

/// The probe ends after 1.5 s in any case; the rest is for a loaded host.
const IN_TIME: Duration = Duration::from_secs(10);

/// Signal dispositions, mask and pending signals; threads; descriptors; mappings of vCPUs.
fn footprint() -> (Vec<String>, usize, usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kept = ["SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt"];
    let signals = status
        .lines()
        .filter(|line| kept.iter().any(|key| line.starts_with(key)))
        .map(str::to_owned)
        .collect();
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (
        signals,
        threads(),
        descriptors,
        maps.matches("kvm-vcpu").count(),
    )
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Until as many threads are there as before: one that was joined stays in /proc a moment longer.
fn until_threads(number: usize) {
    let start = Instant::now();
    while threads() != number && start.elapsed() < IN_TIME {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn ten_probes_agree_and_leave_nothing() {
    let alone = threads();
    let first = vmtax_host::kvm();
    until_threads(alone);
    let before = footprint();
    assert_eq!(before.1, alone, "the first probe's threads are still there");
    assert_eq!(before.3, 0, "the first probe's vCPU is still mapped");
    for _ in 0..10 {
        let start = Instant::now();
        let facts = vmtax_host::kvm();
        let took = start.elapsed();
        assert!(took < IN_TIME, "took {took:?}");
        assert_eq!(
            facts.class, first.class,
            "{} against {}",
            facts.evidence, first.evidence
        );
    }
    until_threads(alone);
    assert_eq!(footprint(), before);
}
