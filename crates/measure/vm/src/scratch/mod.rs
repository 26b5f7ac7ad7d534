//! The files and disks that machines work on.

mod disks;
pub(crate) mod tree;

pub use disks::{DiskKind, Needs, Scratch, remove_scratch};
