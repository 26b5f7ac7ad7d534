//! Counters of running VMs, sampled again and again.

mod fleet;
mod sampler;

pub use fleet::{Fleet, Sample, remove_stale_histograms};
pub use sampler::Level;
