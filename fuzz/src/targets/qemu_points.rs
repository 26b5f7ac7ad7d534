//! A QEMU that a person names may be any file.

use crate::scratch;
use vmtax_observe::uprobes;
use vmtax_vm::PROBE_POINTS;

pub fn run(binary: &[u8]) {
    let (probes, missing) = uprobes(PROBE_POINTS, &scratch::file("qemu", binary));
    assert!(probes.iter().all(|probe| !probe.fields.is_empty()));
    assert!(!probes.is_empty() || !missing.is_empty());
}
