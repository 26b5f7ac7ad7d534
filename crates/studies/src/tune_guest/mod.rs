//! Tuning of a workload in a guest that is booted for it: the settings that make it faster.

mod analysis;
mod candidates;
mod fio;
mod handover;
mod handover_guest;
mod layers;
mod like;
mod options;

pub(crate) use analysis::GuestTuning;
pub use layers::{layers_of_tuned, moved_layer};
pub use options::GuestTuneOptions;
pub(crate) use options::Measuring;
