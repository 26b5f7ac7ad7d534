//! Which settings of QEMU's disk path make a workload faster, in a guest that is booted for it.

mod analysis;
mod candidates;
mod fio;
mod handover;
mod like;
mod options;

pub(crate) use analysis::GuestTuning;
pub use options::GuestTuneOptions;
