//! Errors of symbolizing a process's functions.

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
