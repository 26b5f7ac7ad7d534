//! The files and disks that machines work on.

mod disks;
mod image;
pub(crate) mod tree;

pub use disks::{DiskKind, Needs, Scratch, remove_scratch};
pub use image::images_mib as disk_images_mib;
