//! The user's cache, and how things come into it.

use crate::error::AptError;
use crate::{ResultExt, clear};
use rustix::fs::{FlockOperation, flock, statvfs};
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use vmtax_trust::{Owner, untrusted};

/// The user's cache of vmtax: `$XDG_CACHE_HOME/vmtax`, else `$HOME/.cache/vmtax`. It need not exist yet.
///
/// A relative `XDG_CACHE_HOME` is ignored, as the XDG base directory specification asks.
///
/// # Errors
/// [`AptError::NoCacheDir`] when neither variable names a folder; [`AptError::UntrustedCache`] if this is root and another
/// user can change what is in it, as with `sudo -E`.
pub fn cache_dir() -> Result<PathBuf, AptError> {
    let cache = cache_from(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"))?;
    for folder in [cache.join("kernels"), cache.join("qemus")] {
        let Some(part) = folder
            .ancestors()
            .find(|part| part.symlink_metadata().is_ok())
        else {
            continue;
        };
        if let Some(found) = untrusted(part, Owner::Root).reading(part)? {
            return Err(AptError::UntrustedCache { cache, found });
        }
    }
    Ok(cache)
}

fn cache_from(xdg: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, AptError> {
    let absolute = |value: OsString| Some(PathBuf::from(value)).filter(|path| path.is_absolute());
    xdg.and_then(absolute)
        .or_else(|| home.and_then(absolute).map(|home| home.join(".cache")))
        .map(|base| base.join("vmtax"))
        .ok_or(AptError::NoCacheDir)
}

/// Prefix of the work folders of fetches; a fetch that was killed leaves one behind.
const WORK: &str = ".fetch-";

/// The only fetch into a folder of the cache, as long as it lives.
#[derive(Debug)]
pub struct Fetch {
    work: tempfile::TempDir,
    /// The kernel gives the lock back however its holder ends.
    _lock: File,
}

impl Fetch {
    /// Waits until no other fetch works in `shelf`, which is made if it is not there, and sweeps what killed ones left.
    /// `what` names the kind of thing that is fetched: "a kernel". `say` is told when there is something to wait for.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn begin(shelf: &Path, what: &str, say: &mut dyn FnMut(&str)) -> Result<Fetch, AptError> {
        fs::create_dir_all(shelf).writing(shelf)?;
        let path = shelf.join(".lock");
        let lock = File::create(&path).writing(&path)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            say(&format!("another vmtax is fetching {what}: waiting for it"));
            flock(&lock, FlockOperation::LockExclusive).writing(&path)?;
        }
        // Under the lock, so none of it is in use.
        for entry in fs::read_dir(shelf).reading(shelf)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(WORK) {
                fs::remove_dir_all(entry.path()).writing(entry.path())?;
            }
        }
        let work = tempfile::Builder::new()
            .prefix(WORK)
            .tempdir_in(shelf)
            .writing(shelf)?;
        Ok(Fetch { work, _lock: lock })
    }

    /// A folder for it to work in, which goes away with it.
    pub fn work(&self) -> &Path {
        self.work.path()
    }

    /// Makes sure that so many bytes are free.
    ///
    /// # Errors
    /// [`AptError::NoRoom`].
    pub fn need(&self, bytes: u64) -> Result<(), AptError> {
        // A file system that does not tell is tried.
        let have =
            statvfs(self.work()).map_or(u64::MAX, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
        if have >= bytes {
            return Ok(());
        }
        Err(AptError::NoRoom {
            folder: self.work().parent().unwrap_or(self.work()).into(),
            have,
            need: bytes,
        })
    }

    /// Moves a file or folder that was unpacked in [`Fetch::work`] to where it is kept. A link out of there would move the
    /// host's own.
    ///
    /// # Errors
    /// When it is such a link, or `to` cannot be written.
    pub fn keep(&self, from: &Path, to: &Path) -> Result<(), AptError> {
        let folder = to.parent().unwrap_or(to);
        fs::create_dir_all(folder).writing(folder)?;
        let work = fs::canonicalize(self.work()).reading(self.work())?;
        let real = fs::canonicalize(from).reading(from)?;
        if !real.starts_with(&work) {
            let why = "it is a link to a file that the package does not contain";
            return Ok(Err(io::Error::other(why)).reading(from)?);
        }
        Ok(fs::rename(&real, to).writing(to)?)
    }

    /// Moves `ready`, a finished folder inside [`Fetch::work`], to `home` in one step. What stands there was found
    /// unusable before, and goes.
    ///
    /// # Errors
    /// When `home` cannot be written.
    pub fn settle(&self, ready: &Path, home: &Path) -> Result<(), AptError> {
        clear(home)?;
        Ok(fs::rename(ready, home).writing(home)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_follows_xdg_then_home() {
        let from = |xdg: Option<&str>, home: Option<&str>| {
            cache_from(xdg.map(Into::into), home.map(Into::into))
        };
        assert_eq!(
            from(Some("/x"), Some("/home/u")).unwrap(),
            PathBuf::from("/x/vmtax")
        );
        assert_eq!(
            from(None, Some("/home/u")).unwrap(),
            PathBuf::from("/home/u/.cache/vmtax")
        );
        assert_eq!(
            from(Some("relative"), Some("/home/u")).unwrap(),
            PathBuf::from("/home/u/.cache/vmtax")
        );
        assert_eq!(
            from(Some(""), Some("/home/u")).unwrap(),
            PathBuf::from("/home/u/.cache/vmtax")
        );
        assert!(matches!(from(None, None), Err(AptError::NoCacheDir)));
        assert!(matches!(
            from(Some(""), Some("")),
            Err(AptError::NoCacheDir)
        ));
    }

    #[test]
    fn what_does_not_fit_is_said_beforehand() {
        let shelf = tempfile::tempdir().unwrap();
        let fetch = Fetch::begin(&shelf.path().join("kernels"), "a kernel", &mut |_| {}).unwrap();
        fetch.need(1).unwrap();
        let error = fetch.need(1 << 60).unwrap_err().to_string();
        assert!(
            error.contains("XDG_CACHE_HOME") && error.contains("kernels"),
            "{error}"
        );
    }
}
