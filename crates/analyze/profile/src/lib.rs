//! Findings of a profile: stacks that were sampled, VM exits that were counted, a guest's samples of itself, in
//! figures, lines and pictures. `vmtax-observe` samples and counts; [`import`] reads the samples of other tools.

mod change;
mod error;
mod import;
mod recorded;

pub mod code;
mod contention;
pub mod exits;
pub mod firefox;
pub mod flame;
pub mod fold;
pub mod inside;
pub mod pprof;
pub mod schedule;
mod share;
mod states;
pub mod summary;
mod tables;
pub mod tcg;
pub mod waits;

pub use change::changes;
pub use error::ProfileError;
pub use import::{Imported, import};
pub use recorded::{Recorded, vm_exits};
pub use tables::{ObservedRows, SampledStack, Sampling, observed_rows};
