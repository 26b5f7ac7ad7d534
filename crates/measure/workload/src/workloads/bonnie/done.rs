//! Time and latency of an operation.

use vmtax_model::Latency;

/// Bonnie++'s block size, in bytes.
pub(super) const BLOCK: u64 = 8 << 10;

/// One of Bonnie++'s operations, done so many times.
pub(super) struct Done {
    pub latency: Latency,
    /// From the first to the last, with what the reference counts in.
    pub ns: u64,
}

impl Done {
    pub fn seconds(&self) -> f64 {
        self.ns.max(1) as f64 / 1e9
    }
}
