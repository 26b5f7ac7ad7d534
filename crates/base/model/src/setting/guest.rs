//! Settings of the guest as a whole, of its kernel, and of the tree of files that it has.

use super::entry::{
    Libvirt, NO_FIGURE, OTHER, Setting, SettingPart, SettingPlace, SpecialValue, Unset,
};
use crate::{CLOCK_SOURCE_FILE, ChangeCost, FAST_CLOCK_SOURCES};

/// More read-ahead, KiB, is no setting of a rule.
const MAX_READ_AHEAD_KB: u32 = 16384;

/// A setting of the guest as a whole, for which QEMU is started again.
const fn guest(key: &'static str, unset: Unset, line: &'static str, libvirt: Libvirt) -> Setting {
    Setting {
        key,
        part: SettingPart::Guest,
        unset,
        cost: ChangeCost::VmRestart,
        line,
        read_back: "QEMU's command line",
        libvirt,
        ..OTHER
    }
}

/// A property of the guest's CPU, accelerator or memory with the figure of what it costs.
const fn property(key: &'static str, source: &'static str) -> Setting {
    let (line, libvirt) = match key.as_bytes() {
        [b'c', b'p', b'u', ..] => (
            "-cpu MODEL,NAME=VALUE",
            Libvirt::Element("`<cpu><feature policy='POLICY' name='NAME'/></cpu>`"),
        ),
        [b'a', ..] => ("-accel ACCELERATOR,NAME=VALUE", Libvirt::QemuArgument),
        _ => (
            "-object memory-backend-ram,id=memory,size=SIZE,NAME=VALUE -machine TYPE,memory-backend=memory",
            Libvirt::QemuArgument,
        ),
    };
    Setting {
        source,
        ..guest(key, Unset::LeftOut, line, libvirt)
    }
}

/// A property of the guest's CPU.
const fn cpu_flag(key: &'static str, since: (u32, u32), source: &'static str) -> Setting {
    Setting {
        since,
        ..property(key, source)
    }
}

/// An enlightenment: help that KVM offers a guest that knows Hyper-V, as Windows does.
const fn enlightenment(
    key: &'static str,
    since: (u32, u32),
    line: &'static str,
    libvirt: &'static str,
    source: &'static str,
) -> Setting {
    Setting {
        line,
        undo: "-cpu MODEL without NAME",
        libvirt: Libvirt::Element(libvirt),
        ..cpu_flag(key, since, source)
    }
}

/// Arguments of the guest's kernel.
const fn kernel_argument(key: &'static str, line: &'static str, source: &'static str) -> Setting {
    Setting {
        key,
        part: SettingPart::Guest,
        place: SettingPlace::GuestCommandLine,
        cost: ChangeCost::GuestReboot,
        line,
        read_back: "/proc/cmdline in the guest",
        undo: "take LINE from the guest kernel's command line",
        libvirt: Libvirt::Element("`<cmdline>` where it has `<kernel>`; else in the guest"),
        source,
        ..OTHER
    }
}

/// An option of the tree's server or mount.
const fn share(
    key: &'static str,
    cost: ChangeCost,
    line: &'static str,
    source: &'static str,
) -> Setting {
    Setting {
        key,
        part: SettingPart::Share,
        place: SettingPlace::Instruction,
        cost,
        line,
        source,
        ..OTHER
    }
}

/// An option of the mount, which the guest can change.
const fn mount(key: &'static str, source: &'static str) -> Setting {
    share(
        key,
        ChangeCost::Live,
        "mount option in the guest: `NAME=VALUE`",
        source,
    )
}

/// A file of the guest's kernel, which its agent may set to some values.
const fn file(path: &'static str, part: SettingPart) -> Setting {
    Setting {
        key: path,
        part,
        place: SettingPlace::GuestSysfs,
        unset: Unset::Choice,
        cost: ChangeCost::Live,
        line: "echo VALUE | sudo tee FILE # in the guest",
        read_back: path,
        undo: "echo BEFORE | sudo tee FILE # in the guest",
        libvirt: Libvirt::NoDomain,
        ..OTHER
    }
}

/// Cause of the cost of many devices.
const MANY_DEVICES: &str =
    "QEMU commit 3aa221b382c9: 10 to 60 k requests/s with 100 devices of 32 queues each";

pub(super) const TABLE: &[Setting] = &[
    guest(
        "cpus",
        Unset::Choice,
        "-smp VALUE",
        Libvirt::Element("`<vcpu>VALUE</vcpu>`"),
    ),
    guest(
        "memory-mib",
        Unset::Choice,
        "-m VALUE",
        Libvirt::Element("`<memory unit='MiB'>VALUE</memory>`"),
    ),
    Setting {
        source: MANY_DEVICES,
        ..guest(
            "disks",
            Unset::LeftOut,
            "-device for each of VALUE disks",
            Libvirt::QemuArgument,
        )
    },
    Setting {
        source: MANY_DEVICES,
        ..guest(
            "memory-regions",
            Unset::LeftOut,
            "-device for each of VALUE regions",
            Libvirt::QemuArgument,
        )
    },
    Setting {
        place: SettingPlace::Instruction,
        ..guest(
            "qemu",
            Unset::Choice,
            "start this QEMU: `VALUE`",
            Libvirt::Element("`<emulator>VALUE</emulator>`"),
        )
    },
    guest(
        "kernel",
        Unset::Choice,
        "-kernel VALUE",
        Libvirt::Element("`<kernel>VALUE</kernel>`"),
    ),
    guest(
        "modules",
        Unset::Choice,
        "-initrd VALUE",
        Libvirt::QemuArgument,
    ),
    kernel_argument("kernel-args", "VALUE", NO_FIGURE),
    Setting {
        values: &[SpecialValue {
            value: "host",
            since: (1, 0),
            line: "",
            libvirt: Libvirt::Element("`<cpu mode='host-passthrough'/>`"),
        }],
        ..guest(
            "cpu-model",
            Unset::LeftOut,
            "-cpu VALUE",
            Libvirt::QemuArgument,
        )
    },
    guest(
        "machine-type",
        Unset::LeftOut,
        "-machine VALUE",
        Libvirt::QemuArgument,
    ),
    guest(
        "firmware",
        Unset::Choice,
        "-bios VALUE",
        Libvirt::Element("`<loader>VALUE</loader>`"),
    ),
    Setting {
        values: &[SpecialValue {
            value: "-overcommit cpu-pm=on",
            since: (3, 0),
            line: "",
            libvirt: Libvirt::QemuArgument,
        }],
        ..guest("qemu-args", Unset::LeftOut, "VALUE", Libvirt::QemuArgument)
    },
    Setting {
        place: SettingPlace::Instruction,
        cost: ChangeCost::Live,
        ..guest(
            "pinning",
            Unset::LeftOut,
            "`taskset` for each vCPU thread (`info cpus` of the monitor has them)",
            Libvirt::Element("`<cputune><vcpupin vcpu='0' cpuset='CPU'/></cputune>`"),
        )
    },
    cpu_flag(
        "cpu-flag.kvm-pv-eoi",
        (1, 2),
        "Linux commit ae7a2a3fb6f8: up to half of an interrupt's VM exits",
    ),
    cpu_flag(
        "cpu-flag.kvm-pv-ipi",
        (3, 1),
        "kvm mailing list: ebizzy 14 % faster, 70 % fewer MSR exits with 64 vCPUs",
    ),
    cpu_flag("cpu-flag.kvm-pv-tlb-flush", (2, 12), NO_FIGURE),
    cpu_flag("cpu-flag.kvm-pv-unhalt", (1, 5), NO_FIGURE),
    cpu_flag("cpu-flag.kvm-hint-dedicated", (3, 0), NO_FIGURE),
    cpu_flag(
        "cpu-flag.tsc-deadline",
        (1, 2),
        "Linux commit 26efe2fd92e5: a timer of 3,028 cycles takes 2,494",
    ),
    enlightenment(
        "cpu-flag.hv-time",
        (2, 0),
        "-cpu MODEL,NAME=VALUE # libvirt: <clock><timer name='hypervclock' present='yes'/></clock> # Proxmox: qm set VMID --ostype win11",
        "`<clock><timer name='hypervclock' present='yes'/></clock>`",
        NO_FIGURE,
    ),
    enlightenment(
        "cpu-flag.hv-stimer",
        (2, 5),
        "-cpu MODEL,NAME=VALUE # libvirt: <features><hyperv mode='custom'><vpindex state='on'/><synic state='on'/><stimer state='VALUE'/></hyperv></features> # Proxmox: qm set VMID --ostype win11",
        "`<features><hyperv mode='custom'><vpindex state='on'/><synic state='on'/><stimer state='VALUE'/></hyperv></features>`",
        "OpenNebula/addon-storpool#79: an idle Windows guest takes 1 to 3 % of a CPU in place of 30 to 40 % with hv-synic and hv-stimer",
    ),
    enlightenment(
        "cpu-flag.hv-ipi",
        (3, 1),
        "-cpu MODEL,NAME=VALUE # libvirt: <features><hyperv mode='custom'><ipi state='VALUE'/></hyperv></features> # Proxmox: qm set VMID --ostype win11",
        "`<features><hyperv mode='custom'><ipi state='VALUE'/></hyperv></features>`",
        NO_FIGURE,
    ),
    enlightenment(
        "cpu-flag.hv-vapic",
        (1, 2),
        "-cpu MODEL,NAME=VALUE # libvirt: <features><hyperv mode='custom'><vapic state='VALUE'/></hyperv></features> # Proxmox: qm set VMID --ostype win11",
        "`<features><hyperv mode='custom'><vapic state='VALUE'/></hyperv></features>`",
        NO_FIGURE,
    ),
    enlightenment(
        "cpu-flag.hv-avic",
        (6, 2),
        "-cpu MODEL,NAME=VALUE # libvirt: <features><hyperv mode='custom'><avic state='VALUE'/></hyperv></features>",
        "`<features><hyperv mode='custom'><avic state='VALUE'/></hyperv></features>`",
        NO_FIGURE,
    ),
    property("cpu-flag.", NO_FIGURE),
    property(
        "accel.thread",
        "google/syzkaller#3984: a thread for each vCPU boots 25 % faster",
    ),
    Setting {
        libvirt: Libvirt::Element(
            "`<features><tcg><tb-cache unit='MiB'>VALUE</tb-cache></tcg></features>`",
        ),
        ..property(
            "accel.tb-size",
            "qemu-devel, tcg: remove tb_lock: boot and shutdown 20 % faster with 8 vCPUs; of the size itself no figure",
        )
    },
    property("accel.", NO_FIGURE),
    Setting {
        since: (2, 12),
        line: "-object memory-backend-memfd,id=memory,size=SIZE,NAME=VALUE -machine TYPE,memory-backend=memory",
        libvirt: Libvirt::Element("`<memoryBacking><hugepages/></memoryBacking>`"),
        ..property("memory-backend.hugetlb", NO_FIGURE)
    },
    Setting {
        since: (5, 0),
        libvirt: Libvirt::Element(
            "`<memoryBacking><allocation mode='immediate'/></memoryBacking>`",
        ),
        ..property("memory-backend.prealloc", NO_FIGURE)
    },
    property("memory-backend.", NO_FIGURE),
    kernel_argument(
        "kernel-arg.clocksource",
        "clocksource=VALUE",
        "Linux kernel documentation, Timekeeping Virtualization: a VM exit for each reading",
    ),
    kernel_argument(Setting::KERNEL_ARG, "NAME=VALUE", NO_FIGURE),
    Setting {
        key: Setting::BLOCK_QUEUE,
        part: SettingPart::Guest,
        place: SettingPlace::GuestSysfs,
        cost: ChangeCost::Live,
        line: "echo VALUE > /sys/block/DISK/queue/NAME",
        read_back: "/sys/block/DISK/queue/NAME",
        libvirt: Libvirt::Element(
            "not of a domain; in the guest's `/etc/udev/rules.d`: `ACTION==\"add|change\", KERNEL==\"DISK\", ATTR{queue/NAME}=\"VALUE\"`",
        ),
        ..OTHER
    },
    Setting {
        unset: Unset::Choice,
        values: &[SpecialValue {
            value: "virtiofs",
            since: (5, 0),
            line: "",
            libvirt: Libvirt::Element(
                "`<filesystem type='mount'><driver type='virtiofs'/></filesystem>`, `<memoryBacking><access mode='shared'/>`",
            ),
        }],
        ..share(
            "share",
            ChangeCost::VmRestart,
            "`vmtax share VALUE` has arguments and mount command",
            NO_FIGURE,
        )
    },
    mount("share.msize", "cilium #916: 174 MB/s to 6.7 GB/s"),
    mount("share.cache", NO_FIGURE),
    mount("share.access", NO_FIGURE),
    Setting {
        libvirt: Libvirt::Element("`<filesystem accessmode='…'>`"),
        ..share(
            "share.security-model",
            ChangeCost::VmRestart,
            "`-fsdev local,id=FS,path=PATH,security_model=VALUE`",
            "Qemu (KVM) and 9P (Virtfs) Mounts: small files 20 to 30 % slower with mapped attributes",
        )
    },
    share(
        "share.threads",
        ChangeCost::VmRestart,
        "`threads=VALUE` of the share's server",
        "virtiofs-tests, February 2021: random reads 53.2 to 77.4 MB/s without a pool of threads",
    ),
    share(
        "share.",
        ChangeCost::VmRestart,
        "`NAME=VALUE` of the share's server",
        NO_FIGURE,
    ),
    file(
        CLOCK_SOURCE_FILE,
        SettingPart::GuestFile(&FAST_CLOCK_SOURCES),
    ),
    file(
        "/sys/block/GUEST_DISK/cache_type",
        SettingPart::GuestFile(&["write back"]),
    ),
    file(
        "/sys/block/GUEST_DISK/queue/scheduler",
        SettingPart::GuestFile(&["none"]),
    ),
    file(
        "/sys/block/GUEST_DISK/queue/read_ahead_kb",
        SettingPart::GuestNumber(MAX_READ_AHEAD_KB),
    ),
    file(
        "/sys/block/GUEST_DISK/queue/rotational",
        SettingPart::GuestFile(&["0"]),
    ),
];
