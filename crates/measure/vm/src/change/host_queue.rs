//! The queues of the host's block devices beneath a VM's disks.

use crate::host_settings::value_in_effect;
use std::collections::BTreeSet;
use vmtax_model::HostQueue;
use vmtax_observe::counters::block_device;

/// The queues of devices, by their numbers as [`vmtax_model::VmDisk::host_device`] has them: of whole disks.
pub(crate) fn host_queues(devices: impl Iterator<Item = u64>) -> Vec<HostQueue> {
    let queue = |number: u64| {
        let mut queue = HostQueue {
            device: block_device(number)?.name,
            scheduler: String::new(),
        };
        queue.scheduler = value_in_effect(&queue.scheduler_file()).ok()?;
        Some(queue)
    };
    devices
        .collect::<BTreeSet<u64>>()
        .into_iter()
        .filter_map(queue)
        .collect()
}
