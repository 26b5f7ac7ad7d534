/// How the guest is, with regard to the last order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not up yet.
    Starting,
    /// Up, and without an order so far.
    Ready,
    /// Carrying the order out, or about to see it.
    Running,
    /// Done with it.
    Done,
    /// It could not be done. The guest takes further orders, except after [`Failure::Trap`].
    Failed(Failure),
}

/// Why the guest could not do what it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// There is no disk.
    #[error("it found no legacy virtio-blk disk on PCI bus 0: give QEMU `-device virtio-blk-pci,disable-modern=on,…`")]
    NoDisk,
    /// The disk has no MSI-X.
    #[error("its disk has no MSI-X: leave out `vectors=0`, or choose INTx or polling")]
    NoMsix,
    /// The disk's queue is too large for the ROM, or there is none.
    #[error("its disk's queue has {size} entries: give the device `queue-size=256`, or any up to 1024")]
    BadQueue {
        /// Entries.
        size: u64,
    },
    /// The disk is smaller than the run's range.
    #[error("its disk has {sectors} sectors, less than the run is to use: give a larger disk or a smaller range")]
    SmallDisk {
        /// Sectors of the disk.
        sectors: u64,
    },
    /// The disk answered a request with an error.
    #[error(
        "request {request} ended with virtio-blk status {status}: see QEMU's log, and whether the disk may be written to"
    )]
    Io {
        /// Which, counted from 0.
        request: u64,
        /// 1: error; 2: not supported.
        status: u64,
    },
    /// A completion or an interrupt did not come in time.
    #[error(
        "it waited in vain for completion or interrupt {number}: see whether the host's disk answers, or allow more ticks"
    )]
    Timeout {
        /// Which, counted from 0.
        number: u64,
    },
    /// The guest's own code went wrong, or the machine is not what it was made for.
    #[error("exception {vector} at {address:#x}: this machine cannot run the ROM, try `-accel tcg`")]
    Trap {
        /// The exception's number.
        vector: u8,
        /// Where.
        address: u64,
    },
    /// The local APIC's timer stands still.
    #[error("its local APIC's timer stands still: leave the machine its local APIC (`-cpu …,-apic` takes it away)")]
    NoTimer,
    /// The local APIC knows only memory.
    #[error("its local APIC has no x2APIC mode: QEMU's TCG has it since 9.0, KVM with `-cpu …,+x2apic`")]
    NoX2apic,
    /// There is no HPET.
    #[error("its machine has no HPET: give QEMU `-machine hpet=on`")]
    NoHpet,
    /// The ROM does not know the order.
    #[error("it does not know the order: the ROM is of another version")]
    UnknownOrder,
}
