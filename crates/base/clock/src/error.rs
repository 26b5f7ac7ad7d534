use std::io;
use std::time::Duration;

/// Guest and host ticks cannot be brought together.
#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    /// Nothing bounds the offset on both sides.
    #[error(
        "nothing bounds the offset between the guest's clock and the host's: exchange stamps, or trace both sides of \
         requests"
    )]
    NoEvidence,
    /// Stamps of one time leave no offset over.
    #[error(
        "by stamps around host tick {at} the host's clock is at least {low} and at most {high} ticks ahead of the \
         guest's: one side's time stamp counter is not steady, or differs between CPUs; see `vmtax doctor`"
    )]
    Contradiction {
        /// When, host ticks.
        at: u64,
        /// The least that some stamps allow.
        low: i128,
        /// The most that others do.
        high: i128,
    },
    /// The offset moved faster than any clock drifts.
    #[error(
        "the guest's clock moved by {moved} ticks against the host's between host ticks {from} and {to}: it was set, \
         or the guest was stopped; run the trial again"
    )]
    Jumped {
        /// Host ticks of the last stamps before.
        from: u64,
        /// Host ticks of the first stamps after.
        to: u64,
        /// By how much at least, ticks.
        moved: i128,
    },
    /// The guest answered no stamp.
    #[error("the guest answered no stamp within {} s: see its console", patience.as_secs_f64())]
    Silent {
        /// How long was waited.
        patience: Duration,
    },
    /// The host began no exchange, or did not end it.
    #[error("the host did not end an exchange of stamps within {} s", patience.as_secs_f64())]
    NoHost {
        /// How long was waited.
        patience: Duration,
    },
    /// No cell lies at this offset of the shared memory.
    #[error("no cell at byte {offset} of {bytes} bytes of shared memory: give a multiple of 8 within")]
    NoCell {
        /// As given.
        offset: usize,
        /// Size of the memory.
        bytes: usize,
    },
    /// The guest has no memory in common with the host.
    #[error(
        "no device 1af4:1110 below /sys/bus/pci/devices: give QEMU `-device ivshmem-plain`, and the guest a kernel with \
         PCI and sysfs"
    )]
    NoDevice,
    /// What is to be mapped is too small.
    #[error("{what} has {bytes} bytes, and {wanted} are to be mapped: give one that large")]
    Small {
        /// What.
        what: String,
        /// Its size.
        bytes: u64,
        /// What was asked for.
        wanted: u64,
    },
    /// A system call.
    #[error("{what}: {source}")]
    System {
        /// What was tried, with its object.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl ClockError {
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        ClockError::System { what: what.into(), source: source.into() }
    }
}
