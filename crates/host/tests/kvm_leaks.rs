//! The KVM probe, again and again: the same verdict each time, in time, and nothing left in the process.
//! A file of its own, so that no other test's threads and descriptors are counted.

#![allow(clippy::unwrap_used)] // clippy does not know a test's helper as a test

use std::time::{Duration, Instant};

/// Signal dispositions, mask and pending signals; threads; descriptors; mappings of vCPUs.
fn footprint() -> (Vec<String>, usize, usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kept = ["SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt"];
    let signals =
        status.lines().filter(|line| kept.iter().any(|key| line.starts_with(key))).map(str::to_owned).collect();
    let count = |folder| std::fs::read_dir(folder).unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (signals, count("/proc/self/task"), count("/proc/self/fd"), maps.matches("kvm-vcpu").count())
}

#[test]
fn ten_probes_agree_and_leave_nothing() {
    let first = vmtax_host::kvm();
    let before = footprint();
    assert_eq!(before.3, 0, "the first probe's vCPU is still mapped");
    for _ in 0..10 {
        let start = Instant::now();
        let facts = vmtax_host::kvm();
        let took = start.elapsed();
        assert!(took < Duration::from_secs(1), "took {took:?}");
        assert_eq!(facts.class, first.class, "{} against {}", facts.evidence, first.evidence);
    }
    // A joined thread leaves /proc a moment after its end.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(footprint(), before);
}
