//! Guest kernels: found, fetched, checked, packed with their modules into an initramfs.
//!
//! A kernel is a bzImage and, unless all is built in, the folder of its modules. [`find`] looks where kernels already
//! are, [`given`] checks one that a person names, [`fetch`] has apt download one of the distribution without installing
//! it, and [`initramfs`] packs what a guest needs to boot straight into one program.

pub mod bzimage;
mod command_modules;
mod error;
mod fetch;
mod find;
mod initramfs;
pub mod modinfo;
mod modules;
mod packages;
mod share_modules;
#[cfg(test)]
mod testing;
mod vmlinux;

pub use crate::apt::cache_dir;
pub use error::KernelError;
pub use fetch::{available, fetch, is_name, list_fetchable};
pub use find::{Found, find, given, suites};
pub use initramfs::{Init, Packed, Purpose, initramfs};
pub use vmlinux::unpack_vmlinux;
