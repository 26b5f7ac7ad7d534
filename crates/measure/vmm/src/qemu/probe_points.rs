//! The points of QEMU that a block request or a packet passes, and where QEMU's versions have them: the one table of that.

use vmtax_model::DiskBus;
use vmtax_observe::ProbeUse::{self, Anyway, Cheap, Instead};
use vmtax_observe::{ProbeAt, ProbePoint};

/// The points that requests to disks on a bus pass besides those of virtio-blk's, of which all pass some.
pub const fn disk_probe_points(bus: DiskBus) -> &'static [ProbePoint] {
    match bus {
        DiskBus::VirtioBlk => VIRTIO_BLK,
        DiskBus::VirtioScsi => VIRTIO_SCSI,
        DiskBus::Other => OTHER_BUS,
    }
}

/// Checked in the sources and binaries of 5.2, 7.2, 10.0 and 11.1. Structures read here have been the same in all:
///
/// - `VirtQueueElement`: `out_sg` at 48, 56 bytes in all. The first piece of `out_sg` is the guest's request header, with
///   the type at 0 and the sector at 8.
/// - `VirtIOBlockReq` begins with one; `sector_num` at 56, `dev` at 64, `vq` at 72, set before the first call after
///   `virtqueue_pop`.
/// - `DeviceState`, with which a device begins: `canonical_path` at 48, its path among QEMU's objects.
/// - `QEMUIOVector`: `size` at 32.
///
/// `write` is 1 for a write.
const VIRTIO_BLK: &[ProbePoint] = &[
    // Once the request is there, with what joins it to all that follows; an empty ring does not count.
    ProbePoint {
        event: "pop",
        function: "virtio_blk_handle_vq",
        at: ProbeAt::After("virtqueue_pop"),
        fields: "vq=+72(%ax):x64 elem=%ax:x64 sector=+8(+0(+48(%ax))):u64 type=+0(+0(+48(%ax))):u32 \
                 device=+0(+48(+64(%ax))):string",
        used: Cheap,
    },
    ProbePoint {
        event: "pop",
        function: "virtqueue_pop",
        at: ProbeAt::Entry,
        fields: "vq=%di:x64",
        used: Instead,
    },
    // Not `bdrv_co_preadv`, which a request passes once for each node of the block graph, nor `blk_co_preadv`, which
    // virtio-blk does not call. Its last argument is virtio-blk's request, so it joins `pop` and `push`.
    entry(
        "submit",
        "blk_aio_preadv",
        "offset=%si:u64 bytes=+32(%dx):u64 elem=%r9:x64 write=\\0:u8",
        Anyway,
    ),
    entry(
        "submit",
        "blk_aio_pwritev",
        "offset=%si:u64 bytes=+32(%dx):u64 elem=%r9:x64 write=\\1:u8",
        Anyway,
    ),
    entry(
        "push",
        "virtqueue_push",
        "vq=%di:x64 elem=%si:x64 sector=+56(%si):u64",
        Anyway,
    ),
    NOTIFY_IRQFD,
    NOTIFY,
    MSIX,
    MSI,
    LINE,
];

/// The point at which QEMU's SCSI layer takes a request of virtio-scsi up, after all that waited in the ring were popped;
/// the others are those of [`VIRTIO_BLK`].
///
/// A `SCSIRequest` has `dev` at 8, and `hba_private` at 40, at 48 since 10.1: of virtio-scsi a `VirtIOSCSIReq`, which
/// begins with the `VirtQueueElement` and has `vq` at 64. `request` is what lies from there on, with the command.
const VIRTIO_SCSI: &[ProbePoint] = &[entry(
    "scsi",
    "scsi_req_enqueue",
    "request=+40(%di):x64[8] vq=+64(+40(%di)):x64 vq_since_10_1=+64(+48(%di)):x64 device=+0(+48(+8(%di))):string",
    Anyway,
)];

/// The points at which a device model begins a request in its account, and ends it: those of disks on SATA, IDE, NVMe and
/// SCSI controllers other than virtio-scsi, which take no request from a virtqueue. Between them it passes the
/// submission of [`VIRTIO_BLK`].
///
/// The address of its `BlockAcctCookie` is the request's own. `BlockAcctStats` lies in a `BlockBackend`, 40 bytes behind
/// `dev`, in 5.2 it was 48.
/// `account` is a `BlockAcctType`.
const OTHER_BUS: &[ProbePoint] = &[
    entry(
        "begin",
        "block_acct_start",
        "account=%cx:u32 bytes=%dx:u64 elem=%si:x64 device=+0(+48(-40(%di))):string device_until_5_2=+0(+48(-48(%di))):string",
        Anyway,
    ),
    entry("end", "block_acct_done", ACCOUNTED, Anyway),
    entry("end", "block_acct_failed", ACCOUNTED, Anyway),
];

const ACCOUNTED: &str =
    "elem=%si:x64 device=+0(+48(-40(%di))):string device_until_5_2=+0(+48(-48(%di))):string";

/// The points that a packet passes.
///
/// Of `VirtQueue`, `NetClientState` (`client`, one for each queue of a card) and `PCIDevice` only the addresses are read.
/// `head` is what a packet begins with: the header of virtio-net where the backend has that, those of Ethernet, IPv4 and
/// UDP or TCP, and eight bytes more. A guest's TCP payload is in a piece of
/// its own: `piece`
/// is the length of the first (`struct iovec`), `next` what the second begins with.
pub const NETWORK_PROBE_POINTS: &[ProbePoint] = &[
    // virtio-net's bottom half, for each packet of the transmit queue.
    entry("transmit", "qemu_sendv_packet_async", TRANSMITTED, Cheap),
    // What the tap's read gave, before virtio-net copies it to the guest.
    entry(
        "receive",
        "qemu_net_queue_send",
        "head=+0(%cx):x64[15] bytes=%r8:u64",
        Cheap,
    ),
    entry("fill", "virtqueue_flush", "vq=%di:x64", Cheap),
    NOTIFY_IRQFD,
    NOTIFY,
    MSIX,
    MSI,
    LINE,
];

const TRANSMITTED: &str =
    "client=%di:x64 head=+0(+0(%si)):x64[11] piece=+8(%si):u64 next=+0(+16(%si)):x64";

/// Notification of its guest by any virtio device: where ioeventfd and guest notifiers are on, as they are by default
/// (gone since 11), and otherwise.
const NOTIFY_IRQFD: ProbePoint = entry("notify", "virtio_notify_irqfd", "vq=%si:x64", Cheap);
const NOTIFY: ProbePoint = entry("notify", "virtio_notify", "vq=%si:x64", Cheap);
const MSIX: ProbePoint = entry("inject", "msix_notify", "dev=%di:x64 vector=%si:u32", Cheap);
const MSI: ProbePoint = entry("inject", "msi_notify", "dev=%di:x64 vector=%si:u32", Cheap);
/// An interrupt line, raised (1) and lowered (0): what a device without MSI has.
const LINE: ProbePoint = entry("line", "pci_set_irq", "dev=%di:x64 level=%si:u32", Cheap);

const fn entry(
    event: &'static str,
    function: &'static str,
    fields: &'static str,
    used: ProbeUse,
) -> ProbePoint {
    ProbePoint {
        event,
        function,
        at: ProbeAt::Entry,
        fields,
        used,
    }
}
