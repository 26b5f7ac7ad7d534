//! The reasons why a VM has no figure of a counter.

use vmtax_findings::VmRates;
use vmtax_model::{Accelerator, Counter};

/// Returns the reason for "–" of a counter at a level.
pub(super) fn unknown(counter: &Counter, vm: &VmRates, level: u8) -> String {
    match counter.name {
        "run" | "ready" => "none of its threads is known to be a vCPU".to_owned(),
        "throttled" => {
            "its control groups count no throttling (no cpu controller), or changed in the interval"
                .to_owned()
        }
        "guest_steal" | "gavg" => no_agent(vm, level),
        "exits" => no_exits(vm),
        "requests" | "blkavg" => no_requests(vm),
        "kavg" | "davg" => no_device_time(vm),
        "p99" => no_histograms(vm, level),
        "requests_in_flight" => no_queues(vm, level),
        "packets" | "dropped_packets" => "it has no tap device".to_owned(),
        _ if counter.needs.is_empty() => {
            "it could not be read, or began again in the interval".to_owned()
        }
        _ => format!("it takes {}, or began again in the interval", counter.needs),
    }
}

const NO_REQUESTS: &str = "no requests in the interval";
const FROM_LEVEL_1: &str = "read from --level 1 on";

fn no_exits(vm: &VmRates) -> String {
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
fn no_requests(vm: &VmRates) -> String {
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
fn no_agent(vm: &VmRates, level: u8) -> String {
    match (level, &vm.guest) {
        (0, _) => FROM_LEVEL_1,
        (_, None) => "no QEMU guest agent answers",
        (_, Some(_)) => "the guest counted nothing in the interval",
    }
    .to_owned()
}

fn no_device_time(vm: &VmRates) -> String {
    if vm.io.is_none_or(|io| io.per_s() <= 0.0) {
        return no_requests(vm);
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
    let vm = vm.argument();
    format!("{why}; `vmtax layers --vm {vm}` traces the VM's requests")
}

fn no_histograms(vm: &VmRates, level: u8) -> String {
    match (level, vm.io) {
        (0, _) => FROM_LEVEL_1.to_owned(),
        (_, Some(io)) if io.per_s() > 0.0 => {
            "QEMU has no latency histograms of these disks".to_owned()
        }
        _ => no_requests(vm),
    }
}

fn no_queues(vm: &VmRates, level: u8) -> String {
    match (level, vm.io) {
        (0, _) => FROM_LEVEL_1.to_owned(),
        (_, Some(_)) => "no disk is virtio-blk, or QEMU is older than 7.2".to_owned(),
        (_, None) => no_requests(vm),
    }
}
