//! Guest kernels: found, fetched, checked, packed with their modules into an initramfs.
//!
//! A kernel is a bzImage and, unless all is built in, the folder of its modules. [`find`] looks where kernels already
//! are, [`given`] checks one that a person names, [`fetch`] has apt download the distribution's own without installing
//! it, and [`initramfs`] packs what a guest needs to boot straight into one program.

mod apt;
pub mod bzimage;
mod error;
mod fetch;
mod find;
mod initramfs;
pub mod modinfo;
mod modules;
mod release;
#[cfg(test)]
mod testing;
mod vmlinux;

pub use error::KernelError;
pub use fetch::{fetch, list_fetchable};
pub use find::{Found, find, given};
pub use initramfs::{Packed, initramfs};
pub use vmlinux::unpack_vmlinux;

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// The user's cache of vmtax: `$XDG_CACHE_HOME/vmtax`, else `$HOME/.cache/vmtax`. It need not exist yet.
///
/// A relative `XDG_CACHE_HOME` is ignored, as the XDG base directory specification asks.
///
/// # Errors
/// [`KernelError::NoCacheDir`] when neither variable names a folder.
pub fn cache_dir() -> Result<PathBuf, KernelError> {
    cache_from(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"))
}

fn cache_from(xdg: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, KernelError> {
    let absolute = |value: OsString| Some(PathBuf::from(value)).filter(|path| path.is_absolute());
    xdg.and_then(absolute)
        .or_else(|| home.and_then(absolute).map(|home| home.join(".cache")))
        .map(|base| base.join("vmtax"))
        .ok_or(KernelError::NoCacheDir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_follows_xdg_then_home() {
        let from = |xdg: Option<&str>, home: Option<&str>| cache_from(xdg.map(Into::into), home.map(Into::into));
        assert_eq!(from(Some("/x"), Some("/home/u")).unwrap(), PathBuf::from("/x/vmtax"));
        assert_eq!(from(None, Some("/home/u")).unwrap(), PathBuf::from("/home/u/.cache/vmtax"));
        assert_eq!(from(Some("relative"), Some("/home/u")).unwrap(), PathBuf::from("/home/u/.cache/vmtax"));
        assert_eq!(from(Some(""), Some("/home/u")).unwrap(), PathBuf::from("/home/u/.cache/vmtax"));
        assert!(matches!(from(None, None), Err(KernelError::NoCacheDir)));
        assert!(matches!(from(Some(""), Some("")), Err(KernelError::NoCacheDir)));
    }
}
