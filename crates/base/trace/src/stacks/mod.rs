//! Stacks of a process: unwound without frame pointers from copies of their memory, their places named by the tables of the
//! files that are mapped. The records that tell of them come live from the kernel or from a `perf.data`.
//!
//! [`Space`] is the process's address space, [`take`] adds a record of `perf_event_open` to the [`SampledStacks`] stacks, [`Names`]
//! makes a [`Profile`](vmtax_model::samples::Profile) of those.

mod elf;
mod files;
mod names;
mod samples;
mod space;
mod symbols;

pub use elf::{Elf, open_regular};
pub use files::{FileSource, LocalFiles};
pub use names::{Names, build};
pub use samples::{SampledStacks, take, text};
pub use space::{CodeLocation, CodeOwner, LoadedModule, Registers, Space, UnwindEnd};
pub use symbols::{Kernel, kallsyms_line};

use std::path::PathBuf;

/// The given unstripped build cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// It is not an ELF program.
    #[error("{file}: {why}: give an unstripped ELF file", file = .file.display())]
    NoBuild {
        /// Path of the file.
        file: PathBuf,
        /// Reason why it cannot be used.
        why: String,
    },
    /// It is of another program.
    #[error(
"{file} is not a build of a program in this process (neither a build-id nor a layout of functions matches); \
         give the file that was stripped, or build it again from the same source with the same options",
        file = .file.display()
    )]
    ForeignSymbols {
        /// Path of the file.
        file: PathBuf,
    },
}
