//! Settings of the measured network card and of what is behind it.

use super::entry::{
    Libvirt, NO_FIGURE, OTHER, Restored, Setting, SettingPart, SpecialValue, Unset,
};
use crate::{ChangeCost, NetBackend};

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

pub(super) const TABLE: &[Setting] = &[
    Setting {
        key: NetBackend::KEY,
        part: SettingPart::Backend,
        unset: Unset::Choice,
        cost: ChangeCost::VmRestart,
        line: "-netdev user,id=net0",
        read_back: "QEMU's command line: -netdev",
        undo: "-netdev user,id=net0",
        restored: Restored {
            trap: "",
            source: NO_FIGURE,
        },
        values: &[
            backend(
                "tap",
                (1, 0),
                "-netdev tap,id=net0,ifname=TAP,script=no,downscript=no",
                Libvirt::Element("`<interface type='bridge'>`"),
            ),
            backend(
                "passt",
                (7, 2),
                "passt --socket SOCKET; -netdev stream,id=net0,server=off,addr.type=unix,addr.path=SOCKET",
                Libvirt::Element("`<interface type='user'><backend type='passt'/></interface>`"),
            ),
            backend(
                "vhost-user",
                (5, 1),
                "passt --vhost-user --socket SOCKET; -chardev socket,id=CHARDEV,path=SOCKET -netdev vhost-user,id=net0,chardev=CHARDEV # the \
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
