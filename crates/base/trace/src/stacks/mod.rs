//! Stacks of a process: unwound without frame pointers from copies of their memory, their places named by the tables of the
//! files that are mapped. The records that tell of them come live from the kernel or from a `perf.data`.
//!
//! [`Space`] is the process's address space, [`take`] adds a record of `perf_event_open` to the [`SampledStacks`] stacks, [`Names`]
//! makes a [`Profile`](vmtax_model::samples::Profile) of those.

mod bounded;
mod elf;
mod error;
mod files;
mod jit;
mod kernel;
mod location;
mod maps;
mod names;
mod ranges;
mod records;
mod sampled;
mod space;
mod symbols;

pub use bounded::open_regular;
pub use elf::Elf;
pub use error::StackError;
pub use files::{LocalFiles, Source};
pub use kernel::Kernel;
pub use location::{CodeLocation, CodeOwner, Registers, UnwindEnd};
pub use names::{Names, build};
pub use records::{take, text};
pub use sampled::SampledStacks;
pub use space::{LoadedModule, Space};
