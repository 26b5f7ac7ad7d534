/// The guest's state with regard to the last order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The guest is booting.
    Starting,
    /// Booted, before the first order.
    Ready,
    /// The order is queued or running.
    Running,
    /// The order is done.
    Done,
    /// The order failed. The guest accepts further orders, except after [`Failure::Trap`].
    Failed(Failure),
}

/// Why an order failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// There is no disk.
    #[error(
        "no legacy virtio-blk disk on PCI bus 0: give QEMU `-device virtio-blk-pci,disable-modern=on,…`"
    )]
    NoDisk,
    /// The device has no MSI-X.
    #[error("the device has no MSI-X: leave out `vectors=0`, or choose INTx or polling for a disk")]
    NoMsix,
    /// A queue is too large for the ROM, or there is none.
    #[error(
        "the device's queue has {size} entries: give the device `queue-size=256`, at most 1024"
    )]
    BadQueue {
        /// Number of entries of the queue.
        size: u64,
    },
    /// The disk is smaller than the run's range.
    #[error(
        "the disk has only {sectors} sectors, fewer than the range: use a larger disk or a smaller range"
    )]
    SmallDisk {
        /// Sectors of the disk.
        sectors: u64,
    },
    /// The disk answered a request with an error.
    #[error(
        "request {request} ended with virtio-blk status {status}: see QEMU's log, and check that the disk is writable"
    )]
    Io {
        /// Number of the request, counted from 0.
        request: u64,
        /// 1: error; 2: not supported.
        status: u64,
    },
    /// No completion or interrupt within the timeout.
    #[error(
        "no completion or interrupt {number} within the timeout: check the host's disk or network, or allow more ticks"
    )]
    Timeout {
        /// Number of the completion or interrupt, counted from 0.
        number: u64,
    },
    /// The ROM crashed, or the machine does not support it.
    #[error(
        "exception {vector} at {address:#x}: this machine cannot run the ROM, try `-accel tcg`"
    )]
    Trap {
        /// The exception's number.
        vector: u8,
        /// Address of the exception.
        address: u64,
    },
    /// The local APIC's timer does not run.
    #[error("the local APIC's timer does not run: do not remove the local APIC (`-cpu …,-apic`)")]
    NoTimer,
    /// The local APIC has no x2APIC mode.
    #[error(
        "the local APIC has no x2APIC mode: TCG supports it since QEMU 9.0, KVM with `-cpu …,+x2apic`"
    )]
    NoX2apic,
    /// There is no HPET.
    #[error("the machine has no HPET: give QEMU `-machine hpet=on`")]
    NoHpet,
    /// There is no network card.
    #[error(
        "no legacy virtio-net card on PCI bus 0: give QEMU `-device virtio-net-pci,disable-modern=on,…`"
    )]
    NoCard,
    /// The ROM does not know the order.
    #[error("unknown order: the ROM is of another version")]
    UnknownOrder,
}
