//! What can go wrong with naming a process's functions.

use std::path::PathBuf;

/// An unstripped build that was given is of no use.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// It is no program.
    #[error("{file}: {why}: give an ELF file, as the linker wrote it", file = .file.display())]
    NoBuild {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// It is of another program.
    #[error(
        "{file} is no build of a program in this process: no build-id is the same and no layout of functions; \
         give the file that was stripped, or build it again from the same source with the same options",
        file = .file.display()
    )]
    ForeignSymbols {
        /// The file.
        file: PathBuf,
    },
}
