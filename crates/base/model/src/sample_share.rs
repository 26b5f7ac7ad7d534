//! Shares of samples, and what threads wait for.

use serde::{Deserialize, Serialize};

/// A share of samples, with its interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SampleShare {
    /// Number of samples in this share.
    pub samples: u64,
    /// Of all, 0 to 1.
    pub share: f64,
    /// Lower end of the interval that sampling leaves, at 95 % by default.
    pub low: f64,
    /// Upper end of that interval.
    pub high: f64,
}

/// Event or resource that a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitFor {
    /// Another thread that has work for it: a condition variable, a semaphore.
    Work,
    /// A lock that another thread holds.
    Lock,
    /// the big QEMU lock (BQL).
    BigLock,
    /// Files, sockets or timers to become ready.
    Events,
    /// A file to be read or written.
    Io,
    /// A timer of its own: `nanosleep`.
    Sleep,
    /// The guest, whose vCPU is halted.
    Guest,
    /// The guest to be resumed: its vCPUs are paused.
    Resume,
    /// An event that neither the call nor a stack tells.
    Other,
}

impl WaitFor {
    /// A noun phrase, for "waiting for …".
    pub fn label(self) -> &'static str {
        match self {
            WaitFor::Work => "work",
            WaitFor::Lock => "a lock",
            WaitFor::BigLock => "the BQL",
            WaitFor::Events => "events",
            WaitFor::Io => "I/O",
            WaitFor::Sleep => "a timer",
            WaitFor::Guest => "an interrupt (guest halted)",
            WaitFor::Resume => "the guest to be resumed (paused)",
            WaitFor::Other => "an unknown event",
        }
    }
}
