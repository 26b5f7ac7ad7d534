//! Settings of the host's kernel.

use super::entry::{Libvirt, NO_FIGURE, OTHER, SetBy, Setting, SettingPart, SettingPlace};
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

/// A feature of the host's CPU that a module of KVM uses by default, where the CPU has it.
const fn module(key: &'static str, path: &'static str, lines: [&'static str; 2]) -> Setting {
    Setting {
        cost: ChangeCost::HostReboot,
        usual: "Y",
        line: lines[0],
        undo: lines[1],
        ..file(key, path, SetBy::Person)
    }
}

/// A setting that a comparison varies, with the published figure of changing it.
const fn compared(key: &'static str, path: &'static str, source: &'static str) -> Setting {
    Setting {
        source,
        ..file(key, path, SetBy::Comparison)
    }
}

pub(super) const TABLE: &[Setting] = &[
    Setting {
        usual: "200000",
        source: "Linux commit 2cffe9f6b96f: SAP HANA up to 12 % faster",
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
    module(
        "host.ept",
        "/sys/module/kvm_intel/parameters/ept",
        [
            "echo 'options kvm_intel ept=1' | sudo tee /etc/modprobe.d/kvm_intel-ept.conf # then reboot the host, or stop all VMs and load the module again: sudo modprobe -r kvm_intel && sudo modprobe kvm_intel",
            "sudo rm /etc/modprobe.d/kvm_intel-ept.conf",
        ],
    ),
    module(
        "host.npt",
        "/sys/module/kvm_amd/parameters/npt",
        [
            "echo 'options kvm_amd npt=1' | sudo tee /etc/modprobe.d/kvm_amd-npt.conf # then reboot the host, or stop all VMs and load the module again: sudo modprobe -r kvm_amd && sudo modprobe kvm_amd",
            "sudo rm /etc/modprobe.d/kvm_amd-npt.conf",
        ],
    ),
    module(
        "host.apicv",
        "/sys/module/kvm_intel/parameters/enable_apicv",
        [
            "echo 'options kvm_intel enable_apicv=1' | sudo tee /etc/modprobe.d/kvm_intel-enable_apicv.conf # then reboot the host, or stop all VMs and load the module again: sudo modprobe -r kvm_intel && sudo modprobe kvm_intel",
            "sudo rm /etc/modprobe.d/kvm_intel-enable_apicv.conf",
        ],
    ),
    module(
        "host.avic",
        "/sys/module/kvm_amd/parameters/avic",
        [
            "echo 'options kvm_amd avic=1' | sudo tee /etc/modprobe.d/kvm_amd-avic.conf # then reboot the host, or stop all VMs and load the module again: sudo modprobe -r kvm_amd && sudo modprobe kvm_amd",
            "sudo rm /etc/modprobe.d/kvm_amd-avic.conf",
        ],
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
