//! Counters of running VMs, sampled again and again.

mod daemon;
mod fleet;
mod histograms;
mod level;
mod libvirt_daemons;
mod sampler;

pub use fleet::{Fleet, Sample};
pub use histograms::remove_stale_histograms;
pub use level::Level;
