//! Answers of a hostile QEMU when its counters are read.

use serde_json::Value;

pub fn run(data: &[u8]) {
    let Ok(answer) = serde_json::from_slice::<Value>(data) else {
        return;
    };
    let one = vmtax_vmm::qemu::counters::read_answers(&answer, &answer, &answer);
    assert!(vmtax_vmm::qemu::guest_agent::read_agent_answers(&answer, &answer) <= 256);
    assert!(vmtax_vmm::qemu::settings::read_guest_disks(&answer).len() <= 16);
    let entries = answer.as_array().map_or(0, Vec::len);
    assert!(one <= entries + 2, "{one} findings in {entries} entries");
}
