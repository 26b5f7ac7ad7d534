//! A change that is known to make guests faster or slower, and on what it is tried.

use std::collections::BTreeMap;
use vmtax_host::find_program;
use vmtax_model::{ChangeCost, Machine, QemuFacts, Setting, WorkloadName};
use vmtax_workload::BlockWork;

/// Settings as in a variant.
pub(crate) type Settings = BTreeMap<String, String>;

/// The guest, workload and host that changes are tried on.
pub(crate) struct TuneTarget<'a> {
    /// The QEMU, where it is known.
    pub qemu: Option<&'a QemuFacts>,
    /// All QEMUs of this host.
    pub qemus: &'a [QemuFacts],
    /// Machine that the guest runs on.
    pub machine: Machine,
    /// Number of the guest's vCPUs.
    pub cpus: u32,
    /// True if the vCPUs are pinned apart from QEMU's other threads.
    pub is_pinned: bool,
    /// CPU model of the guest; `None` for the default.
    pub cpu_model: Option<&'a str>,
    /// The CPUs of the host.
    pub host_cpus: u32,
    /// True if the host's KVM has hardware virtualization.
    pub has_hardware_kvm: bool,
    /// True if huge pages are reserved for all of the guest's memory.
    pub has_huge_pages: bool,
    /// True if a disk of the host has only sectors of 4 KiB.
    pub has_large_sectors: bool,
    /// Why a setting of the host, by name and value, is no change there; `None` where it is one.
    pub host_fault: fn(&str, &str) -> Option<&'static str>,
    /// Workload that is tuned.
    pub workload: WorkloadName,
    /// The words of a command; empty for other workloads.
    pub command: &'a [String],
    /// The block requests; `None` for a command.
    pub requests: Option<&'a BlockWork>,
    /// The guest's disk, bytes, where it is a twin of another.
    pub size: Option<u64>,
    /// True if changes are tried that risk data or protection.
    pub risks_data: bool,
    /// Costs of applying a change that the user accepts.
    pub allowed: &'a [ChangeCost],
    /// The settings that the user named.
    pub named: &'a Settings,
}

impl TuneTarget<'_> {
    /// Returns true if the host has more CPUs than the guest has vCPUs.
    pub fn has_spare_cpu(&self) -> bool {
        self.host_cpus > self.cpus
    }
}

/// A change that is known to affect guests' performance.
pub(super) struct KnownChange {
    /// Settings of the change; the first one is its name.
    pub set: &'static [(&'static str, &'static str)],
    /// Function that returns true if the change can affect the workload, with these settings as the baseline.
    pub moves: fn(&TuneTarget<'_>, &Settings) -> bool,
    /// Why it is not tried there; `None` where it is.
    pub not_for: fn(&TuneTarget<'_>, &Settings) -> Option<&'static str>,
    /// When it harms.
    pub trap: &'static str,
    /// Published figure or source of the change.
    pub source: &'static str,
}

impl KnownChange {
    /// A change that is tried for every workload, and of which no figure is published; a row says what is otherwise.
    pub const TRIED: KnownChange = KnownChange {
        set: &[],
        moves: |_, _| true,
        not_for: |_, _| None,
        trap: "",
        source: "no published figure",
    };
    /// A change that is tried for every workload of the disk.
    pub const OF_DISK: KnownChange = KnownChange {
        moves: |target, _| uses_disk(target.workload),
        ..KnownChange::TRIED
    };

    /// The first QEMU, major and minor, that has all of its settings.
    pub fn since(&self) -> (u32, u32) {
        let each = self
            .set
            .iter()
            .map(|(key, value)| Setting::of(key).since(value));
        each.max().unwrap_or_default()
    }
}

/// Returns the cost of applying all settings of a change: that of the most expensive one.
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
        .map(|key| Setting::of(key).cost)
        .max_by_key(order)
        .unwrap_or(ChangeCost::Live)
}

/// Why what needs a program of the host is not tried: `why`, where it is not in PATH.
pub(super) fn needs_program(program: &str, why: &'static str) -> Option<&'static str> {
    find_program(program).is_none().then_some(why)
}

/// Returns true if a setting has this value.
pub(super) fn is(settings: &Settings, key: &str, value: &str) -> bool {
    settings.get(key).is_some_and(|own| own == value)
}

/// Returns true if the workload uses the measured disk.
pub(crate) fn uses_disk(workload: WorkloadName) -> bool {
    workload.needs_disk() || workload == WorkloadName::Exec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_costs_what_its_dearest_setting_does() {
        let cost_of_keys = |keys: &[&str]| {
            cost_of(
                &keys
                    .iter()
                    .map(|key| ((*key).to_owned(), "x".to_owned()))
                    .collect(),
            )
        };
        assert_eq!(cost_of_keys(&["aio", "cache"]), ChangeCost::VmRestart);
        assert_eq!(cost_of_keys(&["num-queues"]), ChangeCost::Replug);
        for key in [
            "throttling.iops-total",
            "iothread.poll-max-ns",
            "block-queue.scheduler",
        ] {
            assert_eq!(cost_of_keys(&[key]), ChangeCost::Live, "{key}");
        }
        assert_eq!(cost_of_keys(&["netdev.vhost"]), ChangeCost::Replug);
        assert_eq!(
            cost_of_keys(&["kernel-arg.idle", "share.msize"]),
            ChangeCost::GuestReboot
        );
        assert_eq!(cost_of_keys(&["host.thp", "qemu"]), ChangeCost::HostSetting);
    }
}
