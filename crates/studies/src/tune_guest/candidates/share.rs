//! Changes of how a guest is given a tree of files.

use super::known_change::{KnownChange, Settings, TuneTarget, needs_program};
use vmtax_model::WorkloadName;

fn is(baseline: &Settings, method: &str) -> bool {
    baseline.get("share").is_some_and(|share| share == method)
}

fn uses_share(target: &TuneTarget<'_>) -> bool {
    target.workload.needs_share()
}

/// An image is only read.
fn needs_reads(target: &TuneTarget<'_>) -> Option<&'static str> {
    (target.workload != WorkloadName::Tree).then_some("an image cannot be written")
}

pub(super) const TABLE: &[KnownChange] = &[
    KnownChange {
        set: &[("share.msize", "512000")],
        moves: |target, baseline| uses_share(target) && is(baseline, "9p"),
        not_for: |_, _| None,
        trap: "Some memory for each request; kernels before 5.15 take at most 512000.",
        source: "cilium #916: 174 MB/s to 6.7 GB/s",
    },
    KnownChange {
        set: &[("share.cache", "loose")],
        moves: |target, baseline| uses_share(target) && is(baseline, "9p"),
        not_for: |_, _| None,
        trap: "The guest does not see what others change: for trees that it has for itself.",
        source: "Linux kernel documentation, v9fs; lkml 2022: simple file transfers roughly 10 times as fast",
    },
    KnownChange {
        set: &[("share", "virtiofs")],
        moves: |target, baseline| uses_share(target) && !is(baseline, "virtiofs"),
        not_for: |_, _| needs_program("virtiofsd", "virtiofsd is not installed"),
        trap: "One more process a share, and memory that it shares with QEMU.",
        source: "virtme-ng #9: 283.8 to 1.17 s; nixpkgs #552774: 1.00 to 1.44 times as fast",
    },
    KnownChange {
        set: &[("share", "virtiofs"), ("share.cache", "always")],
        moves: |target, _| uses_share(target),
        not_for: |_, _| needs_program("virtiofsd", "virtiofsd is not installed"),
        trap: "The guest does not see what others change: for trees that it has for itself.",
        source: "virtiofs-tests, December 2020: sequential reads 98 to 650 MB/s",
    },
    KnownChange {
        set: &[("share", "disk")],
        moves: |target, baseline| uses_share(target) && !is(baseline, "disk"),
        not_for: |_, _| needs_program("mkfs.ext4", "mkfs.ext4 is not installed"),
        trap: "A copy of the tree on a disk: host and guest do not see what the other changes.",
        source: "nixpkgs #181746: over 1000 to 249 s with an image, its making included",
    },
    KnownChange {
        set: &[("share", "erofs")],
        moves: |target, baseline| uses_share(target) && !is(baseline, "erofs"),
        not_for: |target, _| {
            needs_reads(target)
                .or_else(|| needs_program("mkfs.erofs", "mkfs.erofs is not installed"))
        },
        trap: "An image has to be rebuilt whenever the tree changes; the guest only reads it.",
        source: "nixpkgs #181746: over 1000 to 249 s, the making included",
    },
];
