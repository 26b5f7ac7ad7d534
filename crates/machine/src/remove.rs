//! Removes what a guest made: folders closed to their owner, or one in another deeper than files may be open.

use rustix::io::Errno;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Removes a file or a folder with everything below; links are not followed. What is not there is no error.
///
/// # Errors
/// What the kernel said of the first that would not go.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return fs::remove_file(path),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    }
    // Fast, but with an open file for each level.
    if fs::remove_dir_all(path).is_ok() {
        return Ok(());
    }
    gone(open_up(path))?;
    loop {
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries.flatten().collect::<Vec<_>>(),
            Err(e) => return gone(Err(e)),
        };
        if entries.is_empty() {
            return gone(fs::remove_dir(path));
        }
        let mut failed = None;
        for entry in entries {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let done = if is_folder { lift(&entry.path(), path) } else { fs::remove_file(entry.path()) };
            failed = failed.or(gone(done).err());
        }
        if let Some(error) = failed {
            return Err(error);
        }
    }
}

/// Somebody else may remove the same, as the watchdogs of a server and of its guest do.
fn gone(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Moves a folder's folders to `top`, and removes the rest of it, and it: no path grows longer than two names.
fn lift(folder: &Path, top: &Path) -> io::Result<()> {
    open_up(folder)?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_symlink() || !path.is_dir() {
            fs::remove_file(&path)?;
            continue;
        }
        // Moving a folder writes to it: its parent changes.
        open_up(&path)?;
        fs::rename(&path, top.join(format!("{:016x}", fastrand::u64(..))))?;
    }
    match fs::remove_dir(folder) {
        // What was made in the meantime is for the next pass.
        Err(e) if e.raw_os_error() == Some(Errno::NOTEMPTY.raw_os_error()) => Ok(()),
        done => done,
    }
}

/// Lets the owner in.
pub(crate) fn open_up(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, Permissions::from_mode(0o700))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{DirBuilder, create_dir, write};
    use std::os::unix::fs::{DirBuilderExt, symlink};

    #[test]
    fn closed_and_deep_folders_go_and_links_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (top, kept) = (place.path().join("top"), place.path().join("kept"));
        write(&kept, "").unwrap();
        create_dir(&top).unwrap();
        symlink(place.path(), top.join("link")).unwrap();
        let folders: Vec<_> = (0..5).map(|n| top.join(format!("folder{n}"))).collect();
        for folder in &folders {
            create_dir(folder).unwrap();
            write(folder.join("file"), "").unwrap();
            symlink(place.path(), folder.join("link")).unwrap();
            DirBuilder::new().mode(0o000).create(folder.join("closed")).unwrap();
            fs::set_permissions(folder, Permissions::from_mode(0o000)).unwrap();
        }
        remove(&top).unwrap();
        assert!(!top.exists() && kept.exists());
        remove(&top).unwrap();
        remove(&kept).unwrap();
        assert!(!kept.exists());
    }

    #[test]
    fn folders_deeper_than_a_path_may_be_long_go_by_lifting() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().join("top");
        create_dir(&top).unwrap();
        // Built from the inside out, since no path to the innermost would be short enough.
        create_dir(place.path().join("in")).unwrap();
        for _ in 0..600 {
            create_dir(place.path().join("out")).unwrap();
            fs::rename(place.path().join("in"), place.path().join("out/a-rather-long-name")).unwrap();
            fs::rename(place.path().join("out"), place.path().join("in")).unwrap();
        }
        fs::rename(place.path().join("in"), top.join("deep")).unwrap();
        while let Some(folder) = fs::read_dir(&top).unwrap().next() {
            lift(&folder.unwrap().path(), &top).unwrap();
        }
        remove(&top).unwrap();
        assert!(!top.exists());
    }
}
