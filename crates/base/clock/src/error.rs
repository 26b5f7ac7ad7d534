use std::io;
use std::time::Duration;
use vmtax_model::limit_remedy;

/// Errors of relating guest ticks to host ticks.
#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    /// No evidence bounds the offset on both sides.
    #[error(
        "the offset between guest and host clock is unknown: run vmtax as root, or boot a guest kernel that is not locked down"
    )]
    NoEvidence,
    /// No offset fits the timestamps of one moment.
    #[error(
        "timestamps around host tick {at} are contradictory (the host is at least {low} and at most {high} ticks ahead of the guest): a TSC is unstable or differs between CPUs; see `vmtax doctor`"
    )]
    Contradiction {
        /// Moment of the timestamps, in host ticks.
        at: u64,
        /// Lower bound, ticks.
        low: i128,
        /// Upper bound, ticks, below `low`.
        high: i128,
    },
    /// The offset moved faster than any clock drifts.
    #[error(
        "the offset of the guest's clock jumped by {moved} ticks between host ticks {from} and {to}: the clock was set, or \
         the guest was stopped; run the trial again"
    )]
    Jumped {
        /// Host ticks of the last timestamps before.
        from: u64,
        /// Host ticks of the first timestamps after.
        to: u64,
        /// At least so many ticks.
        moved: i128,
    },
    /// The guest answered no timestamp.
    #[error("the guest answered no timestamp within {} s: see its console", timeout.as_secs_f64())]
    Silent { timeout: Duration },
    /// The host did not begin or end the exchange.
    #[error("the host did not end the exchange of timestamps within {} s", timeout.as_secs_f64())]
    NoHost { timeout: Duration },
    /// Invalid offset in the shared memory.
    #[error(
        "offset {offset} is outside the {bytes} bytes of shared memory, or not a multiple of 8"
    )]
    NoCell {
        offset: usize,
        /// Size of the memory, bytes.
        bytes: usize,
    },
    /// The guest has no ivshmem device.
    #[error(
        "no PCI device 1af4:1110: start QEMU with `-device ivshmem-plain` and a guest kernel with PCI and sysfs"
    )]
    NoDevice,
    /// The file to map is too small.
    #[error("{what} has {bytes} bytes, fewer than the {wanted} to map")]
    Small {
        what: String,
        bytes: u64,
        /// Bytes to map.
        wanted: u64,
    },
    /// A system call failed.
    #[error("{what}: {source}{}", limit_remedy(.source))]
    System {
        /// The operation and its object.
        what: String,
        source: io::Error,
    },
}

impl ClockError {
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        ClockError::System {
            what: what.into(),
            source: source.into(),
        }
    }
}
