//! The points of QEMU that a block request passes, and where QEMU's versions have them: the one table of that.

/// A point: an exported function of QEMU, from one version to another.
#[derive(Debug)]
pub(crate) struct Point {
    /// The event it makes. Points of one event have the same fields.
    pub event: &'static str,
    pub function: &'static str,
    /// First version, and the first one in which it is no longer so.
    pub versions: (Version, Version),
    pub at: At,
    /// What to read there, in the words of `uprobe_events`; registers as they are at the function's entry.
    pub fields: &'static str,
    pub used: Used,
}

/// Which moment of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    /// It is called.
    Entry,
    /// It has called this one, whose result is in `%ax` and is not zero. Cheaper than a probe on a return, for which newer
    /// kernels make a system call; and only calls from here count.
    After(&'static str),
}

/// When a point is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Used {
    /// Where it has a cheap place.
    Cheap,
    /// Requests are joined by it: also where it costs 10 us a hit.
    Anyway,
    /// Anyway, where the points of the event before it have no cheap place.
    Instead,
}

/// Major and minor.
pub(crate) type Version = (u32, u32);

use Used::{Anyway, Cheap};

const ALL: (Version, Version) = ((0, 0), (u32::MAX, 0));
const BEFORE_8_1: (Version, Version) = ((0, 0), (8, 1));
const SINCE_8_1: (Version, Version) = ((8, 1), (u32::MAX, 0));

/// Checked in the sources and binaries of 5.2, 7.2, 10.0 and 11.1. Structures read here have been the same in all:
///
/// - `VirtQueueElement`: `out_sg` at 48, 56 bytes in all. The first piece of `out_sg` is the guest's request header, with
///   the sector at 8.
/// - `VirtIOBlockReq` begins with one; `sector_num` at 56, `vq` at 72, set before the first call after `virtqueue_pop`.
/// - `QEMUIOVector`: `size` at 32.
/// - `RawPosixAIOData`, what the thread pool's function gets: `aio_offset` at 16, `aio_nbytes` at 24.
///
/// `engine` is 0 for the thread pool, 1 for Linux AIO, 2 for io_uring; `write` is 1 for a write. In 8.1 the asynchronous
/// engines lost their state argument: they use the current thread's.
pub(crate) const POINTS: &[Point] = &[
    // Once the request is there, with what joins it to all that follows; an empty ring does not count.
    Point {
        event: "pop",
        function: "virtio_blk_handle_vq",
        versions: ALL,
        at: At::After("virtqueue_pop"),
        fields: "vq=+72(%ax):x64 elem=%ax:x64 sector=+8(+0(+48(%ax))):u64",
        used: Used::Cheap,
    },
    Point {
        event: "pop",
        function: "virtqueue_pop",
        versions: ALL,
        at: At::Entry,
        fields: "vq=%di:x64",
        used: Used::Instead,
    },
    // Not `bdrv_co_preadv`, which a request passes once for each node of the block graph, nor `blk_co_preadv`, which
    // virtio-blk does not call. Its last argument is virtio-blk's request, so it joins `pop` and `push`.
    entry("submit", "blk_aio_preadv", ALL, "offset=%si:u64 bytes=+32(%dx):u64 elem=%r9:x64 write=\\0:u8", Anyway),
    entry("submit", "blk_aio_pwritev", ALL, "offset=%si:u64 bytes=+32(%dx):u64 elem=%r9:x64 write=\\1:u8", Anyway),
    entry("aio", "thread_pool_submit_co", BEFORE_8_1, "offset=+16(%dx):u64 bytes=+24(%dx):u64 engine=\\0:u8", Cheap),
    entry("aio", "thread_pool_submit_co", SINCE_8_1, "offset=+16(%si):u64 bytes=+24(%si):u64 engine=\\0:u8", Cheap),
    entry("aio", "laio_co_submit", BEFORE_8_1, "offset=%cx:u64 bytes=+32(%r8):u64 engine=\\1:u8", Cheap),
    entry("aio", "laio_co_submit", SINCE_8_1, "offset=%si:u64 bytes=+32(%dx):u64 engine=\\1:u8", Cheap),
    entry("aio", "luring_co_submit", BEFORE_8_1, "offset=%cx:u64 bytes=+32(%r8):u64 engine=\\2:u8", Cheap),
    entry("aio", "luring_co_submit", SINCE_8_1, "offset=%dx:u64 bytes=+32(%cx):u64 engine=\\2:u8", Cheap),
    entry("push", "virtqueue_push", ALL, "vq=%di:x64 elem=%si:x64 sector=+56(%si):u64", Anyway),
    // The first one where ioeventfd and guest notifiers are on, as they are by default; gone since 11.
    entry("notify", "virtio_notify_irqfd", ALL, "vq=%si:x64", Cheap),
    entry("notify", "virtio_notify", ALL, "vq=%si:x64", Cheap),
    entry("inject", "msix_notify", ALL, "dev=%di:x64 vector=%si:u32", Cheap),
    entry("inject", "msi_notify", ALL, "dev=%di:x64 vector=%si:u32", Cheap),
    // An interrupt line, raised (1) and lowered (0): what a device without MSI has.
    entry("line", "pci_set_irq", ALL, "dev=%di:x64 level=%si:u32", Cheap),
];

const fn entry(
    event: &'static str,
    function: &'static str,
    versions: (Version, Version),
    fields: &'static str,
    used: Used,
) -> Point {
    Point { event, function, versions, at: At::Entry, fields, used }
}
