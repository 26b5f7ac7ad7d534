//! Running VMs: their counters, sampled again and again, and changes of them and of their host, each written down first,
//! read back, undone.

mod change;
mod cores;
mod fleet;
mod sampler;
mod state_file;

pub use change::{ChangeError, Changes, Undone, undo, undo_interrupted};
pub use fleet::{Fleet, FleetError, Sample, remove_stale_histograms};
pub use sampler::Level;
