//! QEMUs beside the system's own: those of other suites, fetched without being installed, and those built from source;
//! found again, named.
//!
//! Each is a folder `qemus/VERSION-SUITE` of the cache. In it stands [`PROGRAM`], a script that starts the real one with
//! its own libraries and firmware, so that a fetched QEMU is one path like any other.

mod build;
mod error;
mod fetch;
mod find;
mod name;
mod unpack;

pub use crate::apt::cache_dir;
pub use build::{Recipe, build};
pub use error::QemuError;
pub use fetch::{available, fetch};
pub use find::{Fetched, binary, find, is_name, is_name_of_built, named};

/// The name under which a fetched QEMU is started.
pub const PROGRAM: &str = "qemu-system-x86_64";
