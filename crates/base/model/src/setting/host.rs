//! Settings of the host's kernel.

use super::entry::{
    Libvirt, NO_FIGURE, OTHER, Restored, SetBy, Setting, SettingPart, SettingPlace,
};
use crate::{CLOCK_SOURCE_FILE, ChangeCost};

/// A file below /sys or /proc/sys.
const fn file(key: &'static str, path: &'static str, by: SetBy) -> Setting {
    Setting {
        key,
        part: SettingPart::HostFile { path, by },
        place: SettingPlace::HostSysfs,
        cost: ChangeCost::HostSetting,
        line: "echo VALUE | sudo tee FILE",
        read_back: path,
        undo: "echo BEFORE | sudo tee FILE",
        libvirt: Libvirt::NoDomain,
        ..OTHER
    }
}

/// A setting that a comparison varies, with the published figure of changing it.
const fn compared(key: &'static str, path: &'static str, source: &'static str) -> Setting {
    Setting {
        restored: Restored::published(source),
        ..file(key, path, SetBy::Comparison)
    }
}

pub(super) const TABLE: &[Setting] = &[
    Setting {
        usual: "200000",
        restored: Restored::published("Linux commit 2cffe9f6b96f: SAP HANA up to 12 % faster"),
        ..file(
            "host.halt-poll-ns",
            "/sys/module/kvm/parameters/halt_poll_ns",
            SetBy::Tune,
        )
    },
    compared(
        "host.thp",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "firecracker-microvm/firecracker#6003: boot -19 to -55 %",
    ),
    compared("host.ksm", "/sys/kernel/mm/ksm/run", NO_FIGURE),
    compared(
        "host.nx-huge-pages",
        "/sys/module/kvm/parameters/nx_huge_pages",
        NO_FIGURE,
    ),
    compared(
        "host.l1d-flush",
        "/sys/module/kvm_intel/parameters/vmentry_l1d_flush",
        NO_FIGURE,
    ),
    compared(
        "host.numa-balancing",
        "/proc/sys/kernel/numa_balancing",
        NO_FIGURE,
    ),
    Setting {
        line: "sudo cpupower frequency-set -g VALUE",
        undo: "sudo cpupower frequency-set -g BEFORE",
        ..compared(
            "host.governor",
            "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
            NO_FIGURE,
        )
    },
    file(
        "host.smt",
        "/sys/devices/system/cpu/smt/control",
        SetBy::Person,
    ),
    file("host.clocksource", CLOCK_SOURCE_FILE, SetBy::Person),
    file(
        "host.huge-pages",
        "/proc/sys/vm/nr_hugepages",
        SetBy::Person,
    ),
    Setting {
        usual: "60",
        ..file("host.swappiness", "/proc/sys/vm/swappiness", SetBy::Person)
    },
    file(
        "host.perf-event-paranoid",
        "/proc/sys/kernel/perf_event_paranoid",
        SetBy::Person,
    ),
];
