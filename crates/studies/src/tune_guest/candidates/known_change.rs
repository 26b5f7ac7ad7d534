//! A change that is known to make guests faster or slower, and on what it is tried.

use std::collections::BTreeMap;
use vmtax_host::find_program;
use vmtax_model::{ChangeCost, Guest, Machine, QemuFacts, Variant, WorkloadName};
use vmtax_vm::IOTHREAD;
use vmtax_workload::BlockWork;

/// Settings as in a variant.
pub(crate) type Settings = BTreeMap<String, String>;

/// What a change is tried on.
pub(crate) struct TuneTarget<'a> {
    /// The QEMU, where it is known.
    pub qemu: Option<&'a QemuFacts>,
    /// All QEMUs of this host.
    pub qemus: &'a [QemuFacts],
    /// The machine.
    pub machine: Machine,
    /// Its vCPUs.
    pub cpus: u32,
    /// Whether its vCPUs are pinned apart from QEMU's other threads.
    pub is_pinned: bool,
    /// Its CPU model; `None` for the usual one.
    pub cpu_model: Option<&'a str>,
    /// The CPUs of the host.
    pub host_cpus: u32,
    /// Whether its KVM has hardware virtualization.
    pub has_hardware_kvm: bool,
    /// Whether huge pages are reserved for all of the guest's memory.
    pub has_huge_pages: bool,
    /// Whether a disk of the host has sectors of 4 KiB alone.
    pub has_large_sectors: bool,
    /// Why a setting of the host, by name and value, is no change there; `None` where it is one.
    pub host_fault: fn(&str, &str) -> Option<&'static str>,
    /// What runs.
    pub workload: WorkloadName,
    /// The words of a command; empty for other workloads.
    pub command: &'a [String],
    /// The block requests; `None` for a command.
    pub requests: Option<&'a BlockWork>,
    /// The guest's disk, bytes, where it is a twin of another.
    pub size: Option<u64>,
    /// Whether changes are tried that lose data or protection.
    pub risks_data: bool,
    /// What applying a change may cost.
    pub allowed: &'a [ChangeCost],
    /// The settings that the user named.
    pub named: &'a Settings,
}

impl TuneTarget<'_> {
    /// Whether the host has a CPU more than the guest has vCPUs.
    pub fn has_spare_cpu(&self) -> bool {
        self.host_cpus > self.cpus
    }
}

/// A change.
pub(super) struct KnownChange {
    /// What it sets; the first is its name.
    pub set: &'static [(&'static str, &'static str)],
    /// The first QEMU that has it.
    pub since: (u32, u32),
    /// Whether the workload can move by it, over these settings.
    pub moves: fn(&TuneTarget<'_>, &Settings) -> bool,
    /// Why it is not tried there; `None` where it is.
    pub not_for: fn(&TuneTarget<'_>, &Settings) -> Option<&'static str>,
    /// When it harms.
    pub trap: &'static str,
    /// What is published of it.
    pub source: &'static str,
}

/// What applying a setting to a VM costs.
pub(super) fn cost(key: &str) -> ChangeCost {
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| key.starts_with(prefix));
    match key {
        _ if begins(&[Variant::OF_HOST]) => ChangeCost::HostSetting,
        "pinning" | "share.msize" | "share.cache" | "share.access" => ChangeCost::Live,
        _ if begins(&["throttling.", IOTHREAD, Guest::BLOCK_QUEUE]) => ChangeCost::Live,
        "kernel-args" => ChangeCost::GuestReboot,
        _ if begins(&[Guest::KERNEL_ARG]) => ChangeCost::GuestReboot,
        "cache" | "format" | "backend" | "share" | "qemu" | "qemu-args" | "cpu-model"
        | "machine-type" | "disks" | "memory-regions" | "kernel" | "firmware" => {
            ChangeCost::VmRestart
        }
        _ if begins(&Guest::PROPERTIES) || begins(&["image.", "share."]) => ChangeCost::VmRestart,
        // A property of a device, or what is behind it.
        _ => ChangeCost::Replug,
    }
}

/// What applying all of a change costs: the dearest of its settings.
pub(super) fn cost_of(set: &Settings) -> ChangeCost {
    let order = |cost: &ChangeCost| match cost {
        ChangeCost::Live | ChangeCost::Measurement => 0,
        ChangeCost::Replug => 1,
        ChangeCost::GuestReboot => 2,
        ChangeCost::VmRestart => 3,
        ChangeCost::HostSetting => 4,
        ChangeCost::HostReboot => 5,
    };
    set.keys()
        .map(|key| cost(key))
        .max_by_key(order)
        .unwrap_or(ChangeCost::Live)
}

/// Why what needs a program of the host is not tried: `why`, where it is not in PATH.
pub(super) fn needs_program(program: &str, why: &'static str) -> Option<&'static str> {
    find_program(program).is_none().then_some(why)
}

/// Whether the workload uses the measured disk.
pub(crate) fn uses_disk(workload: WorkloadName) -> bool {
    matches!(workload, WorkloadName::Disk | WorkloadName::Exec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_costs_what_its_dearest_setting_does() {
        let of = |keys: &[&str]| {
            cost_of(
                &keys
                    .iter()
                    .map(|key| ((*key).to_owned(), "x".to_owned()))
                    .collect(),
            )
        };
        assert_eq!(of(&["aio", "cache"]), ChangeCost::VmRestart);
        assert_eq!(of(&["num-queues"]), ChangeCost::Replug);
        for key in [
            "throttling.iops-total",
            "iothread.poll-max-ns",
            "block-queue.scheduler",
        ] {
            assert_eq!(of(&[key]), ChangeCost::Live, "{key}");
        }
        assert_eq!(of(&["netdev.vhost"]), ChangeCost::Replug);
        assert_eq!(
            of(&["kernel-arg.idle", "share.msize"]),
            ChangeCost::GuestReboot
        );
        assert_eq!(of(&["host.thp", "qemu"]), ChangeCost::HostSetting);
    }
}
