//! Where apt works for root: its methods, which speak to servers, run as a user of apt's own, to whom root's cache is closed.

use crate::ResultExt;
use crate::apt::error::AptError;
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use tempfile::TempDir;

/// On a disk, unlike `/tmp`, and as open.
const PARENT: &str = "/var/tmp";
const NAME: &str = "vmtax-apt-";
/// `APT::Sandbox::User`, as distributions have it.
const USER: &str = "_apt";

/// A folder that apt's user can pass, and nobody but root can list.
#[derive(Debug)]
pub(super) struct SandboxFolder {
    folder: TempDir,
    user: u32,
    /// Held as long as it is in use; the kernel gives it back however its holder ends.
    _lock: File,
}

impl SandboxFolder {
    /// `None` where apt changes no user: where this is not root, or there is no such user. Removes what killed fetches left.
    pub fn create() -> Result<Option<SandboxFolder>, AptError> {
        let Some(user) = user()? else { return Ok(None) };
        sweep();
        let folder = tempfile::Builder::new()
            .prefix(NAME)
            .tempdir_in(PARENT)
            .writing(PARENT)?;
        let lock = File::open(folder.path()).reading(folder.path())?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).writing(folder.path())?;
        fs::set_permissions(folder.path(), Permissions::from_mode(0o711)).writing(folder.path())?;
        Ok(Some(SandboxFolder {
            folder,
            user,
            _lock: lock,
        }))
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Gives apt's user a folder to write to.
    pub fn hand_over(&self, folder: &Path) -> Result<(), AptError> {
        Ok(chown(folder, Some(self.user), None).writing(folder)?)
    }
}

/// The number of apt's user, if this is root.
pub(super) fn user() -> Result<Option<u32>, AptError> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").reading("/etc/passwd")?;
    let mut fields = users.lines().map(|line| line.split(':'));
    Ok(fields.find_map(|mut line| (line.next()? == USER).then(|| line.nth(1)?.parse().ok())?))
}

/// Removes root's folders that no process holds.
fn sweep() {
    let folders = fs::read_dir(PARENT).into_iter().flatten().flatten();
    for entry in folders.filter(|entry| entry.file_name().to_string_lossy().starts_with(NAME)) {
        let path = entry.path();
        let is_own = path
            .symlink_metadata()
            .is_ok_and(|about| about.is_dir() && about.uid() == 0);
        let is_free = || {
            File::open(&path).is_ok_and(|folder| {
                flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok()
            })
        };
        if is_own && is_free() {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "needs root"]
    fn what_a_killed_fetch_left_goes_and_what_is_in_use_stays() {
        let Some(used) = SandboxFolder::create().unwrap() else {
            return;
        };
        let left = tempfile::Builder::new()
            .prefix(NAME)
            .tempdir_in(PARENT)
            .unwrap()
            .keep();
        fs::write(left.join("package"), "").unwrap();
        let other = SandboxFolder::create().unwrap().unwrap();
        assert!(!left.exists() && used.path().exists() && other.path().exists());
        assert_eq!(used.path().metadata().unwrap().mode() & 0o777, 0o711);
    }
}
