//! Counters of running VMs, sampled again and again.

mod daemon;
mod fleet;
mod histograms;
mod level;
mod libvirt_daemons;
mod pause;
mod sampler;
mod threads;

pub use fleet::{Fleet, Sample};
pub use histograms::remove_stale_histograms;
pub use level::Level;
