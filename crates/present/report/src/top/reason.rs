//! The reasons why a column of `vmtax top` has no figure of a VM at a level.

use vmtax_model::{Accelerator, VmRates};

const NO_REQUESTS: &str = "no requests in the interval";
const FROM_LEVEL_1: &str = "read from --level 1 on";

/// The reason for a figure that every VM has.
pub(super) fn never(_: &VmRates, _: u8) -> String {
    String::new()
}

pub(super) fn no_vcpus(_: &VmRates, _: u8) -> String {
    "none of its threads is known to be a vCPU".to_owned()
}

pub(super) fn no_throttling(_: &VmRates, _: u8) -> String {
    "its control groups count no throttling (no cpu controller)".to_owned()
}

pub(super) fn no_exits(vm: &VmRates, _: u8) -> String {
    match vm.accelerator {
        Some(Accelerator::Kvm) => {
            "neither /sys/kernel/debug/kvm (root) nor QMP query-stats (QEMU 7.1) has KVM's counters"
        }
        Some(Accelerator::Tcg) => "only KVM has VM exits, and TCG runs this guest",
        None => "the accelerator is not known",
    }
    .to_owned()
}

/// The reason for figures that QEMU or libvirt counts.
pub(super) fn no_requests(vm: &VmRates, _: u8) -> String {
    match (&vm.io, vm.monitor_timeout_s, &vm.no_monitor) {
        (Some(_), ..) => NO_REQUESTS.to_owned(),
        (None, Some(seconds), _) => format!("QMP did not answer within {seconds} s"),
        (None, None, Some(why)) => format!("no monitor: {why}"),
        (None, None, None) if vm.process_stop.is_some() => {
            "QEMU's process is stopped, and does not answer".to_owned()
        }
        (None, None, None) if vm.disks.is_empty() => "it has no disk".to_owned(),
        (None, None, None) => "QEMU's monitor did not answer".to_owned(),
    }
}

/// The reason for figures of the guest's agent.
pub(super) fn no_agent(vm: &VmRates, level: u8) -> String {
    match (level, &vm.guest) {
        (0, _) => FROM_LEVEL_1,
        (_, None) => "no QEMU guest agent answers",
        (_, Some(_)) => "the guest counted nothing in the interval",
    }
    .to_owned()
}

pub(super) fn no_device_time(vm: &VmRates, level: u8) -> String {
    if vm.io.is_none_or(|io| io.per_s() <= 0.0) {
        return no_requests(vm, level);
    }
    if vm.disks.iter().any(|disk| disk.davg_ns.is_some()) {
        return "fewer than 10 requests, or they take longer at the device (DAVG) than in QEMU (BLKAVG)".to_owned();
    }
    let why = match vm.disks.iter().any(|disk| disk.davg_needs_requests) {
        true => {
            "the kernel counts the times of a volume's requests in ticks, too long for so few requests"
        }
        false => "no disk with requests is itself a block device of the host, opened with O_DIRECT",
    };
    format!(
        "{why}; `vmtax layers --vm {}` traces the VM's requests",
        vm.argument()
    )
}

pub(super) fn no_histograms(vm: &VmRates, level: u8) -> String {
    match (level, vm.io) {
        (0, _) => FROM_LEVEL_1.to_owned(),
        (_, Some(io)) if io.per_s() > 0.0 => {
            "QEMU has no latency histograms of these disks".to_owned()
        }
        _ => no_requests(vm, level),
    }
}

pub(super) fn no_queues(vm: &VmRates, level: u8) -> String {
    match (level, vm.io) {
        (0, _) => FROM_LEVEL_1.to_owned(),
        (_, Some(_)) => "no disk is virtio-blk, or QEMU is older than 7.2".to_owned(),
        (_, None) => no_requests(vm, level),
    }
}

pub(super) fn no_tap(_: &VmRates, _: u8) -> String {
    "it has no tap device".to_owned()
}
