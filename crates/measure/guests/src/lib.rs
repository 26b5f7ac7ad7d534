//! Components of guests: kernels and QEMUs, found, fetched or built into the user's cache, never installed.

pub mod apt;
mod file_error;
pub mod kernel;
pub mod qemu;
#[cfg(test)]
mod testing;

pub use file_error::FileError;
