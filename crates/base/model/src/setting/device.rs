//! Settings of the measured disk (its device, iothread, block nodes, image, limits) and of the measured network card.

use super::entry::{
    Libvirt, NO_FIGURE, OTHER, ScsiDevice, Setting, SettingPart, SpecialValue, Unset,
};
use crate::{ChangeCost, NetBackend};

/// A property of the device.
const fn device(key: &'static str, unset: Unset) -> Setting {
    Setting {
        key,
        unset,
        ..OTHER
    }
}

/// A property that a disk on virtio-scsi has itself.
const fn disk(key: &'static str) -> Setting {
    Setting {
        part: SettingPart::Device(ScsiDevice::Disk),
        ..device(key, Unset::LeftOut)
    }
}

/// An option of the image file's block node, or of QEMU's `-drive`.
const fn file(key: &'static str) -> Setting {
    Setting {
        part: SettingPart::FileNode,
        line: "-drive file=…,NAME=VALUE",
        read_back: "QMP query-named-block-nodes",
        libvirt: Libvirt::QemuArgument,
        ..device(key, Unset::LeftOut)
    }
}

/// An option of the format's block node.
const fn format(key: &'static str) -> Setting {
    Setting {
        part: SettingPart::FormatNode,
        read_back: "QEMU's command line: NAME",
        ..file(key)
    }
}

/// A property of the iothread.
const fn iothread(key: &'static str, libvirt: Libvirt) -> Setting {
    Setting {
        part: SettingPart::IothreadProperty,
        cost: ChangeCost::Live,
        line: "-object iothread,id=…,NAME=VALUE",
        read_back: "QMP query-iothreads",
        libvirt,
        ..device(key, Unset::LeftOut)
    }
}

/// An option of the image's creation.
const fn image(key: &'static str) -> Setting {
    Setting {
        part: SettingPart::Image,
        cost: ChangeCost::VmRestart,
        line: "qemu-img create -o NAME=VALUE",
        read_back: "qemu-img info",
        ..device(key, Unset::LeftOut)
    }
}

/// A property of virtio-net's device.
const fn card(key: &'static str, unset: &'static str) -> Setting {
    Setting {
        key,
        unset: Unset::Is(unset),
        line: "-device virtio-net-pci,…,NAME=VALUE",
        ..OTHER
    }
}

/// An offload, which `ethtool` shows in the guest.
const fn offload(key: &'static str) -> Setting {
    Setting {
        read_back: "ethtool -k eth0 in the guest: tcp-segmentation-offload",
        undo: "NAME=off",
        ..card(key, "on")
    }
}

/// A property of the backend.
const fn netdev(key: &'static str) -> Setting {
    Setting {
        key,
        part: SettingPart::Netdev,
        line: "-netdev BACKEND,id=NETDEV,NAME=VALUE",
        read_back: "QEMU's command line: -netdev",
        ..OTHER
    }
}

/// A backend with its argument and libvirt's interface.
const fn backend(
    value: &'static str,
    since: (u32, u32),
    line: &'static str,
    libvirt: Libvirt,
) -> SpecialValue {
    SpecialValue {
        value,
        since,
        line,
        libvirt,
    }
}

/// Settings of the disk, then of the network card.
pub(super) const TABLE: &[Setting] = &[
    Setting {
        part: SettingPart::Bus,
        line: "-device VALUE,drive=…",
        libvirt: Libvirt::Element("`bus='virtio'` of `<target>`; remove the disk's `<address>`"),
        trap: "The guest needs the driver of virtio-blk, and finds the disk by another name.",
        ..device("bus", Unset::Is("virtio-blk"))
    },
    Setting {
        part: SettingPart::Cache,
        cost: ChangeCost::VmRestart,
        line: "-drive file=…,cache=VALUE # libvirt: <driver cache='VALUE'/>",
        read_back: "QMP query-block: writeback",
        undo: "cache=writethrough",
        libvirt: Libvirt::Driver("cache"),
        ..device("cache", Unset::Is("writeback"))
    },
    Setting {
        part: SettingPart::Iothread,
        since: (2, 0),
        line: "-object iothread,id=disk-io -device virtio-blk-pci,…,iothread=disk-io # virtio-scsi: of its controller",
        read_back: "QMP query-iothreads",
        libvirt: Libvirt::DriverOrController("iothread"),
        ..device("iothread", Unset::Is("off"))
    },
    Setting {
        unset: Unset::Is("32768"),
        since: (2, 9),
        ..iothread("iothread.poll-max-ns", Libvirt::Poll("max"))
    },
    iothread("iothread.poll-grow", Libvirt::Poll("grow")),
    iothread("iothread.poll-shrink", Libvirt::Poll("shrink")),
    Setting {
        since: (6, 1),
        ..iothread("iothread.aio-max-batch", Libvirt::QemuArgument)
    },
    Setting {
        since: (7, 1),
        ..iothread(
            "iothread.thread-pool-min",
            Libvirt::IothreadAttribute("thread_pool_min"),
        )
    },
    Setting {
        since: (7, 1),
        ..iothread(
            "iothread.thread-pool-max",
            Libvirt::IothreadAttribute("thread_pool_max"),
        )
    },
    iothread("iothread.", Libvirt::QemuArgument),
    Setting {
        since: (2, 7),
        part: SettingPart::Device(ScsiDevice::ControllerAs("num_queues")),
        libvirt: Libvirt::DriverOrController("queues"),
        ..device("num-queues", Unset::PerCpu)
    },
    Setting {
        since: (2, 10),
        part: SettingPart::Device(ScsiDevice::ControllerAs("virtqueue_size")),
        libvirt: Libvirt::Driver("queue_size"),
        ..device("queue-size", Unset::Is("256"))
    },
    Setting {
        since: (4, 2),
        libvirt: Libvirt::DriverOrController("packed"),
        ..device("packed", Unset::Is("off"))
    },
    Setting {
        libvirt: Libvirt::DriverOrController("ioeventfd"),
        line: "-device virtio-…-pci,ioeventfd=VALUE",
        undo: "ioeventfd=off",
        source: "QEMU commit 0ebf76aae583: an emulated NVMe disk from 35 to 41 k requests/s",
        ..device("ioeventfd", Unset::Is("on"))
    },
    Setting {
        libvirt: Libvirt::Driver("event_idx"),
        source: "qemu-devel: 15 % fewer notifications",
        ..device("event_idx", Unset::Is("on"))
    },
    device("indirect_desc", Unset::Is("on")),
    Setting {
        since: (2, 4),
        ..device("modern-pio-notify", Unset::Is("off"))
    },
    Setting {
        since: (3, 0),
        ..device("request-merging", Unset::Is("on"))
    },
    device("max-discard-sectors", Unset::LeftOut),
    device("max-write-zeroes-sectors", Unset::LeftOut),
    Setting {
        libvirt: Libvirt::DriverOrController("page_per_vq"),
        ..device("page-per-vq", Unset::LeftOut)
    },
    device("seg-max-adjust", Unset::LeftOut),
    device("write-zeroes", Unset::LeftOut),
    disk("logical_block_size"),
    disk("physical_block_size"),
    disk("min_io_size"),
    disk("opt_io_size"),
    Setting {
        since: (2, 11),
        line: "-device scsi-hd,…,NAME=VALUE # libvirt: <target dev='DISK' bus='scsi' rotation_rate='VALUE'/> # Proxmox: qm set VMID --DISK …,ssd=1",
        libvirt: Libvirt::Element("`<target rotation_rate='VALUE'/>`"),
        ..disk("rotation_rate")
    },
    // The device's own where the image has one of the same name: `device.discard`.
    device("device.", Unset::LeftOut),
    Setting {
        unset: Unset::Is("threads"),
        line: "-blockdev driver=file,filename=…,aio=VALUE,cache.direct=on",
        libvirt: Libvirt::Driver("io"),
        values: &[SpecialValue {
            value: "io_uring",
            since: (5, 0),
            line: "",
            libvirt: Libvirt::Driver("io"),
        }],
        ..file("aio")
    },
    file("driver"),
    file("latency-ns"),
    file("read-zeroes"),
    file("size"),
    file("locking"),
    file("drop-cache"),
    file("x-check-cache-dropped"),
    file("drive."),
    Setting {
        part: SettingPart::AllNodes,
        unset: Unset::Is("ignore"),
        libvirt: Libvirt::Driver("discard"),
        trap: "What the guest frees stays allocated on the host.",
        ..file("discard")
    },
    Setting {
        part: SettingPart::AllNodes,
        unset: Unset::Is("off"),
        libvirt: Libvirt::Driver("detect_zeroes"),
        ..file("detect-zeroes")
    },
    Setting {
        unset: Unset::Is("raw"),
        cost: ChangeCost::VmRestart,
        trap: "No snapshots, no backing image; the image is as large as its disk.",
        ..format("format")
    },
    Setting {
        libvirt: Libvirt::MetadataCache,
        ..format("cache-size")
    },
    Setting {
        line: "-drive file=…,l2-cache-size=VALUE # libvirt: <metadata_cache><max_size unit='bytes'>VALUE</max_size></metadata_cache>",
        ..format("l2-cache-size")
    },
    format("l2-cache-entry-size"),
    format("refcount-cache-size"),
    format("cache-clean-interval"),
    format("pass-discard-request"),
    Setting {
        unset: Unset::Is("off"),
        ..image("image.lazy_refcounts")
    },
    image("image."),
    Setting {
        part: SettingPart::Throttle,
        unset: Unset::Is("0"),
        cost: ChangeCost::Live,
        line: "-drive file=…,throttling.NAME=VALUE",
        read_back: "QMP query-block",
        ..device("throttling.", Unset::LeftOut)
    },
    Setting {
        key: NetBackend::KEY,
        part: SettingPart::Backend,
        unset: Unset::Choice,
        cost: ChangeCost::VmRestart,
        line: "-netdev user,id=NIC",
        read_back: "QEMU's command line: -netdev",
        undo: "-netdev user,id=NIC",
        source: NO_FIGURE,
        values: &[
            backend(
                "tap",
                (1, 0),
                "-netdev tap,id=NIC,ifname=TAP,script=no,downscript=no",
                Libvirt::Element("`<interface type='bridge'>`"),
            ),
            backend(
                "passt",
                (7, 2),
                "passt --socket SOCKET; -netdev stream,id=NIC,server=off,addr.type=unix,addr.path=SOCKET",
                Libvirt::Element("`<interface type='user'><backend type='passt'/></interface>`"),
            ),
            backend(
                "vhost-user",
                (5, 1),
                "passt --vhost-user --socket SOCKET; -chardev socket,id=CHARDEV,path=SOCKET -netdev vhost-user,id=NIC,chardev=CHARDEV # the \
                 guest's memory of an object with share=on",
                Libvirt::Element(
                    "`<interface type='vhostuser'><backend type='passt'/></interface>`, `<memoryBacking><access mode='shared'/>` (libvirt 11.1)",
                ),
            ),
        ],
        ..OTHER
    },
    Setting {
        line: "-netdev tap,…,vhost=VALUE",
        read_back: "/proc/PID/fd of QEMU: /dev/vhost-net",
        undo: "-netdev tap,…,vhost=off",
        libvirt: Libvirt::Element("`<driver name='vhost'/>` of `<interface>`"),
        ..netdev(NetBackend::VHOST)
    },
    Setting {
        since: (2, 7),
        ..netdev("netdev.poll-us")
    },
    netdev(NetBackend::PROPERTY),
    Setting {
        since: (2, 8),
        read_back: "ethtool -g eth0 in the guest",
        libvirt: Libvirt::Element("`<driver rx_queue_size='VALUE'/>` of `<interface>`"),
        ..card("rx_queue_size", "256")
    },
    Setting {
        since: (2, 10),
        line: "-device virtio-net-pci,…,NAME=VALUE # above 256 with vhost-user alone",
        read_back: "ethtool -g eth0 in the guest",
        libvirt: Libvirt::Element("`<driver tx_queue_size='VALUE'/>` of `<interface>`"),
        ..card("tx_queue_size", "256")
    },
    card("tx", "bh"),
    card("mrg_rxbuf", "on"),
    offload("gso"),
    offload("csum"),
    offload("guest_csum"),
    offload("guest_tso4"),
    offload("guest_tso6"),
    offload("host_tso4"),
    offload("host_tso6"),
];
