//! Facts about running QEMUs, and the probe points of their binaries: of one made for it, of this host's QEMU, of damaged ones.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod vm;

use proptest::prelude::*;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use vmtax_model::testing::skipped;
use vmtax_model::{DiskBus, EventSource, Missing};
use vmtax_observe::{ProbeUse, Uprobe, is_cheap};
use vmtax_vmm::disk_probe_points;

fn uprobes(binary: &Path) -> (Vec<Uprobe>, Vec<Missing>) {
    vmtax_observe::uprobes(disk_probe_points(DiskBus::VirtioBlk), binary)
}

#[test]
fn the_points_are_those_of_the_checkpoints() {
    let sources = vmtax_model::DISK.iter().flat_map(|info| info.sources);
    let wanted: BTreeSet<&str> = sources
        .filter_map(|source| {
            if let EventSource::Qemu(event) = source {
                Some(*event)
            } else {
                None
            }
        })
        .collect();
    let all = DiskBus::ALL.into_iter().flat_map(disk_probe_points);
    assert_eq!(
        all.map(|point| point.event).collect::<BTreeSet<_>>(),
        wanted
    );
}

#[test]
fn points_of_an_event_have_the_same_fields() {
    // The kernel asks for it, where more than one of them is used.
    let all = || DiskBus::ALL.into_iter().flat_map(disk_probe_points);
    for point in all().filter(|p| p.used != ProbeUse::Instead) {
        let kinds = |fields: &str| -> Vec<String> {
            let parts = fields
                .split(' ')
                .filter_map(|f| Some((f.split_once('=')?.0, f.rsplit_once(':')?.1)));
            parts.map(|(name, kind)| format!("{name}:{kind}")).collect()
        };
        let first = all().find(|other| other.event == point.event).unwrap();
        assert_eq!(
            kinds(point.fields),
            kinds(first.fields),
            "{}",
            point.function
        );
    }
}

/// Made for this: functions that begin as QEMU's do, some of them badly.
#[test]
fn each_function_of_a_binary_gets_its_place() {
    let binary =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/qemu_points/functions.so");
    let (probes, missing) = uprobes(&binary);
    let found: Vec<(&str, u64, &str)> = probes
        .iter()
        .map(|p| (p.function, p.offset, p.fields.split(' ').next().unwrap()))
        .collect();
    let expected = [
        ("virtio_blk_handle_vq", 0x376, "vq=+72(%ax):x64"),
        ("blk_aio_preadv", 0x395, "offset=%si:u64"),
        // All single-stepped, but requests are joined by it.
        ("blk_aio_pwritev", 0x398, "offset=%si:u64"),
        ("virtqueue_push", 0x3a1, "vq=%di:x64"),
        ("msix_notify", 0x3aa, "dev=%di:x64"),
        ("pci_set_irq", 0x3b2, "dev=%di:x64"),
    ];
    assert_eq!(found, expected);
    assert!(
        probes[1].fields.contains("bytes=+32(%r10)") && probes[5].fields.contains("level=%dx"),
        "{probes:?}"
    );
    let what: Vec<&str> = missing.iter().map(|m| m.what.as_str()).collect();
    let expected = [
        "a cheap probe on QEMU's blk_aio_pwritev",
        "QEMU's probe point `notify`",
    ];
    assert_eq!(what, expected);
}

#[test]
fn this_hosts_qemu_offers_every_point_cheaply() {
    let binary = Path::new("/usr/bin/qemu-system-x86_64");
    let Ok(bytes) = std::fs::read(binary) else {
        return skipped(&format!("there is no {}", binary.display()));
    };
    let (probes, missing) =
        vmtax_observe::uprobes(&DiskBus::ALL.map(disk_probe_points).concat(), binary);
    if missing.iter().any(|m| m.why.contains("does not export")) {
        return skipped("this QEMU exports nothing");
    }
    assert_eq!(missing, []);
    for event in [
        "pop", "scsi", "begin", "submit", "push", "end", "notify", "inject", "line",
    ] {
        assert!(probes.iter().any(|p| p.event == event), "{event}");
    }
    for probe in &probes {
        assert!(is_cheap(&bytes[probe.offset as usize..]), "{probe:?}");
    }
    assert!(
        probes.iter().any(|p| p.function == "virtio_blk_handle_vq"),
        "pop has lost its element"
    );
}

#[test]
fn what_is_no_qemu_offers_nothing_and_says_so() {
    let (probes, missing) = uprobes(Path::new("/bin/true"));
    assert_eq!(probes, []);
    assert!(
        missing
            .iter()
            .any(|m| m.what.contains("`pop`") && m.why.contains("/bin/true")),
        "{missing:?}"
    );
    assert_eq!(uprobes(Path::new("/etc/passwd")).0, []);
    assert_eq!(uprobes(Path::new("/nonexistent")).0, []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A damaged binary: real headers with bytes changed.
    #[test]
    fn a_damaged_file_never_panics(changes in proptest::collection::vec((0usize..4096, any::<u8>()), 0..40)) {
        let mut bytes = std::fs::read("/bin/true").unwrap();
        for (at, value) in changes {
            let at = at % bytes.len();
            let at = if value % 2 == 0 { at } else { bytes.len() - 1 - at };
            bytes[at] = value;
        }
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        let _ = uprobes(file.path());
    }
}
