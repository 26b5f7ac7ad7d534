//! Shares of samples, and what threads wait for.

use serde::{Deserialize, Serialize};

/// A share of samples, with its interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SampleShare {
    /// How many.
    pub samples: u64,
    /// Of all, 0 to 1.
    pub share: f64,
    /// Lower end of the interval that sampling leaves, at 95 % where nothing else is said.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitFor {
    /// Somebody to say that there is something to do.
    Work,
    /// A lock that another thread holds.
    Lock,
    /// QEMU's big lock.
    BigLock,
    /// Files, sockets or timers to become ready.
    Events,
    /// A file to be read or written.
    Io,
    /// Its own time to be over.
    Sleep,
    /// The guest, whose processor is halted.
    Guest,
    /// Something that is not known here.
    Other,
}

impl WaitFor {
    /// The end of "it waited 3 %".
    pub fn words(self) -> &'static str {
        match self {
            WaitFor::Work => "for work",
            WaitFor::Lock => "for a lock",
            WaitFor::BigLock => "for QEMU's big lock",
            WaitFor::Events => "for events",
            WaitFor::Io => "for I/O",
            WaitFor::Sleep => "for a time to be over",
            WaitFor::Guest => "for its halted guest",
            WaitFor::Other => "in the kernel",
        }
    }
}
