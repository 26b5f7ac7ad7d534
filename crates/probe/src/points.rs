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
    /// Whether it is worth 10 us a hit where it has no cheap place.
    pub essential: bool,
}

/// Which moment of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    Entry,
    Return,
}

/// Major and minor.
pub(crate) type Version = (u32, u32);

const ALL: (Version, Version) = ((0, 0), (u32::MAX, 0));
const BEFORE_8_1: (Version, Version) = ((0, 0), (8, 1));
const SINCE_8_1: (Version, Version) = ((8, 1), (u32::MAX, 0));

/// Checked in the sources and binaries of 5.2, 7.2, 10.0 and 11.1. Structures read here have been the same in all:
///
/// - `VirtQueueElement`: `out_sg` at 48, 56 bytes in all. A request of virtio-blk begins with one; `sector_num` follows.
///   The first piece of `out_sg` is the guest's request header, with the sector at 8.
/// - `QEMUIOVector`: `size` at 32.
/// - `RawPosixAIOData`, what the thread pool's function gets: `aio_offset` at 16, `aio_nbytes` at 24.
///
/// `engine` is 0 for the thread pool, 1 for Linux AIO, 2 for io_uring; `write` is 1 for a write. In 8.1 the asynchronous
/// engines lost their state argument: they use the current thread's.
pub(crate) const POINTS: &[Point] = &[
    // `virtqueue_pop` itself may begin expensively; what it jumps to is followed. An empty ring gives no element.
    Point {
        event: "pop",
        function: "virtqueue_pop",
        versions: ALL,
        at: At::Return,
        fields: "elem=$retval:x64 sector=+8(+0(+48($retval))):u64",
        essential: true,
    },
    // Not `bdrv_co_preadv`, which a request passes once for each node of the block graph, nor `blk_co_preadv`, which
    // virtio-blk does not call. Its last argument is virtio-blk's request, so it joins `pop` and `push`.
    entry("submit", "blk_aio_preadv", ALL, "offset=%si:u64 bytes=+32(%dx):u64 elem=%r9:x64 write=\\0:u8"),
    entry("submit", "blk_aio_pwritev", ALL, "offset=%si:u64 bytes=+32(%dx):u64 elem=%r9:x64 write=\\1:u8"),
    entry("aio", "thread_pool_submit_co", BEFORE_8_1, "offset=+16(%dx):u64 bytes=+24(%dx):u64 engine=\\0:u8"),
    entry("aio", "thread_pool_submit_co", SINCE_8_1, "offset=+16(%si):u64 bytes=+24(%si):u64 engine=\\0:u8"),
    entry("aio", "laio_co_submit", BEFORE_8_1, "offset=%cx:u64 bytes=+32(%r8):u64 engine=\\1:u8"),
    entry("aio", "laio_co_submit", SINCE_8_1, "offset=%si:u64 bytes=+32(%dx):u64 engine=\\1:u8"),
    entry("aio", "luring_co_submit", BEFORE_8_1, "offset=%cx:u64 bytes=+32(%r8):u64 engine=\\2:u8"),
    entry("aio", "luring_co_submit", SINCE_8_1, "offset=%dx:u64 bytes=+32(%cx):u64 engine=\\2:u8"),
    entry("push", "virtqueue_push", ALL, "vq=%di:x64 elem=%si:x64 sector=+56(%si):u64"),
    // The first one where ioeventfd and guest notifiers are on, as they are by default; gone since 11.
    entry("notify", "virtio_notify_irqfd", ALL, "vq=%si:x64"),
    entry("notify", "virtio_notify", ALL, "vq=%si:x64"),
    entry("inject", "msix_notify", ALL, "dev=%di:x64 vector=%si:u32"),
    entry("inject", "msi_notify", ALL, "dev=%di:x64 vector=%si:u32"),
    // An interrupt line, raised (1) and lowered (0): what a device without MSI has.
    entry("line", "pci_set_irq", ALL, "dev=%di:x64 level=%si:u32"),
];

const fn entry(
    event: &'static str,
    function: &'static str,
    versions: (Version, Version),
    fields: &'static str,
) -> Point {
    Point { event, function, versions, at: At::Entry, fields, essential: false }
}
