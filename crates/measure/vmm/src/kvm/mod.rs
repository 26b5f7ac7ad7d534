//! VMs of any VMM that uses KVM: found by the descriptors that a process holds, their vCPU threads by what they do, the VMM by
//! a table with one entry each.

pub(crate) mod holders;
pub(crate) mod known;
pub(crate) mod vcpu_threads;

/// Reads what a process shows of its descriptors and mappings, for fuzzing: the vCPU of a descriptor's name, the guest's memory by
/// the mappings in bytes, and true if one of them is a vCPU's.
pub fn read_process_files(link: &[u8], maps: &str) -> (Option<u32>, u64, bool) {
    (
        holders::vcpu_number(link),
        holders::guest_memory(maps),
        holders::maps_vcpu(maps),
    )
}
