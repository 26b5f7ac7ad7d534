//! What QEMU tells of itself and of the measured disk, for those who observe it from outside.

use crate::MachineError;
use crate::qemu::command_line::DISK_DEVICE;
use crate::qemu::monitor::Monitor;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

/// A running QEMU from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QemuOutside {
    /// Its process.
    pub pid: i32,
    /// Its threads that run the guest's processors.
    pub vcpus: Vec<i32>,
    /// The regions of the measured disk, ports and addresses: first and length. A guest notifies the disk in one.
    pub regions: Vec<(u64, u64)>,
}

impl QemuOutside {
    pub(crate) fn ask(monitor: &Monitor) -> Result<QemuOutside, MachineError> {
        let processors = monitor.execute("query-cpus-fast", PATIENCE)?;
        let threads = processors.as_array().into_iter().flatten().filter_map(|cpu| cpu["thread-id"].as_i64());
        let vcpus: Vec<i32> = threads.filter_map(|thread| i32::try_from(thread).ok()).collect();
        let pid = vcpus
            .first()
            .and_then(|thread| process_of(i64::from(*thread)))
            .ok_or_else(|| MachineError::Monitor("query-cpus-fast names no thread".to_owned()))?;
        let buses = monitor.execute("query-pci", PATIENCE)?;
        Ok(QemuOutside { pid, vcpus, regions: regions(&buses) })
    }
}

/// What QEMU's own log can tell of a block request.
const EVENTS: [&str; 7] = [
    "virtio_queue_notify",
    "virtio_blk_handle_read",
    "virtio_blk_handle_write",
    "virtio_blk_submit_multireq",
    "virtio_blk_rw_complete",
    "virtio_blk_req_complete",
    "virtio_notify_irqfd",
];

/// Switches QEMU's own trace events of block requests on or off; those that it has not are left out.
pub(crate) fn log_events(monitor: &Monitor, on: bool) -> Result<(), MachineError> {
    for name in EVENTS {
        let arguments = json!({ "name": name, "enable": on, "ignore-unavailable": true });
        // An older QEMU does not know an event, and says so.
        if let Err(MachineError::Monitor(what)) = monitor.execute_with("trace-event-set-state", &arguments, PATIENCE) {
            if !what.contains("unknown event") {
                return Err(MachineError::Monitor(what));
            }
        }
    }
    Ok(())
}

/// KVM's own counters of the guest's processors, summed up; `None` where it is not KVM, or QEMU does not tell (it does
/// since 7.1).
pub(crate) fn kvm_counters(monitor: &Monitor) -> Option<BTreeMap<String, u64>> {
    let all = monitor.execute_with("query-stats", &json!({ "target": "vcpu" }), PATIENCE).ok()?;
    Some(counters(&all)).filter(|counters| !counters.is_empty())
}

/// Those that are one number; histograms are left out.
fn counters(answer: &Value) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    let providers = answer.as_array().into_iter().flatten().filter(|one| one["provider"] == "kvm");
    for stat in providers.filter_map(|one| one["stats"].as_array()).flatten() {
        if let (Some(name), Some(value)) = (stat["name"].as_str(), stat["value"].as_u64()) {
            let sum: &mut u64 = sums.entry(name.to_owned()).or_default();
            *sum = sum.saturating_add(value);
        }
    }
    sums
}

/// The process that a thread belongs to.
fn process_of(thread: i64) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:")).and_then(|pid| pid.trim().parse().ok())
}

fn regions(buses: &Value) -> Vec<(u64, u64)> {
    let devices = buses.as_array().into_iter().flatten().filter_map(|bus| bus["devices"].as_array()).flatten();
    let ours = devices.filter(|device| device["qdev_id"] == DISK_DEVICE);
    let regions = ours.filter_map(|device| device["regions"].as_array()).flatten();
    regions
        .filter_map(|region| Some((region["address"].as_u64()?, region["size"].as_u64()?)))
        // Not placed yet by the guest.
        .filter(|(address, _)| *address != 0 && *address != u64::MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_disks_regions_count() {
        let region = |address: i64| json!({ "address": address, "size": 64, "type": "io" });
        let buses = json!([{ "bus": 0, "devices": [
            { "qdev_id": "", "regions": [region(1)] },
            { "qdev_id": DISK_DEVICE, "regions": [region(0xc000), region(-1)] },
        ]}]);
        assert_eq!(regions(&buses), [(0xc000, 64)]);
        assert_eq!(regions(&json!("nonsense")), []);
    }

    #[test]
    fn counters_are_summed_over_processors() {
        let vcpu = |exits: u64| {
            json!({ "provider": "kvm", "qom-path": "/machine/unattached/device[0]", "stats": [
                { "name": "exits", "value": exits }, { "name": "halt_wait_hist", "value": [1, 2] },
                { "name": "guest_mode", "value": false },
            ]})
        };
        let other = json!({ "provider": "cryptodev", "stats": [{ "name": "exits", "value": 9 }] });
        assert_eq!(counters(&json!([vcpu(3), vcpu(4), other])), BTreeMap::from([("exits".to_owned(), 7)]));
        assert!(counters(&json!("nonsense")).is_empty());
    }

    #[test]
    fn this_thread_is_of_this_process() {
        assert_eq!(process_of(i64::from(std::process::id())), Some(std::process::id() as i32));
        assert_eq!(process_of(-1), None);
    }
}
