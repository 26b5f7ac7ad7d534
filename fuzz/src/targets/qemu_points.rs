//! A QEMU that a person names may be any file.

use crate::scratch;
use vmtax_model::DiskBus;
use vmtax_observe::uprobes;
use vmtax_vmm::disk_probe_points;

pub fn run(binary: &[u8]) {
    let (probes, missing) = uprobes(
        disk_probe_points(DiskBus::VirtioBlk),
        &scratch::file("qemu", binary),
    );
    assert!(probes.iter().all(|probe| !probe.fields.is_empty()));
    assert!(!probes.is_empty() || !missing.is_empty());
}
