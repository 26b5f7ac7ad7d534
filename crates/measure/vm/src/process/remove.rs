//! Removes what a guest made: folders closed to their owner, or one in another deeper than files may be open. By
//! descriptors: what a guest puts in a folder's place meanwhile is not followed.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::path::Arg;
use std::ffi::{CStr, CString};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Removes a file or a folder with everything below; links are not followed. What is not there is no error.
///
/// # Errors
/// The first error of the kernel.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    // Fast, and by descriptors too, but with one for each level.
    if fs::remove_dir_all(path).is_ok() {
        return Ok(());
    }
    let top = match enter(CWD, path) {
        // No folder.
        Err(Errno::NOTDIR | Errno::LOOP) => return gone(unlinkat(CWD, path, AtFlags::empty())),
        Err(Errno::NOENT) => return Ok(()),
        top => top?,
    };
    loop {
        let names = match names(&top) {
            Err(Errno::NOENT) => return Ok(()),
            names => names?,
        };
        if names.is_empty() {
            return gone(unlinkat(CWD, path, AtFlags::REMOVEDIR));
        }
        let failed: Vec<_> = names
            .iter()
            .filter_map(|name| gone(lift(top.as_fd(), name)).err())
            .collect();
        if let Some(error) = failed.into_iter().next() {
            return Err(error);
        }
    }
}

/// Somebody else may remove the same, as the watchdogs of a server and of its guest do.
fn gone(done: rustix::io::Result<()>) -> io::Result<()> {
    match done {
        Err(Errno::NOENT) => Ok(()),
        done => Ok(done?),
    }
}

/// Removes a file. Of a folder, moves the folders to `top`, and removes the rest, and it: nothing is deeper than two names.
fn lift(top: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<()> {
    if is_removed(top, name)? {
        return Ok(());
    }
    let folder = enter(top, name)?;
    for name in names(&folder)? {
        if !is_removed(folder.as_fd(), &name)? {
            // Moving a folder writes to it: its parent changes.
            enter(&folder, &name)?;
            renameat(&folder, &name, top, format!("{:016x}", fastrand::u64(..)))?;
        }
    }
    match unlinkat(top, name, AtFlags::REMOVEDIR) {
        // What was made in the meantime is for the next pass.
        Err(Errno::NOTEMPTY) => Ok(()),
        done => done,
    }
}

/// Removes what is no folder; gives whether it was none.
fn is_removed(folder: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<bool> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => Ok(false),
        done => done.map(|()| true),
    }
}

/// Returns the names of a directory's entries, without `.` and `..`.
fn names(folder: &OwnedFd) -> rustix::io::Result<Vec<CString>> {
    let entries = Dir::read_from(folder)?.map(|entry| Ok(entry?.file_name().to_owned()));
    let is_own = |name: &CString| !matches!(name.as_bytes(), b"." | b"..");
    entries
        .filter(|name| name.as_ref().map_or(true, is_own))
        .collect()
}

/// Opens a folder, and lets its owner in; what is a link by now is refused.
pub(crate) fn enter(at: impl AsFd, name: impl Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = openat(at, name, flags | OFlags::PATH, Mode::empty())?;
    let found_itself = format!("/proc/self/fd/{}", found.as_raw_fd());
    fs::set_permissions(found_itself, Permissions::from_mode(0o700))
        .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    openat(&found, c".", flags, Mode::empty())
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
            DirBuilder::new()
                .mode(0o000)
                .create(folder.join("closed"))
                .unwrap();
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
            fs::rename(
                place.path().join("in"),
                place.path().join("out/a-rather-long-name"),
            )
            .unwrap();
            fs::rename(place.path().join("out"), place.path().join("in")).unwrap();
        }
        fs::rename(place.path().join("in"), top.join("deep")).unwrap();
        let opened = enter(CWD, &top).unwrap();
        while let Some(name) = names(&opened).unwrap().first() {
            lift(opened.as_fd(), name).unwrap();
        }
        remove(&top).unwrap();
        assert!(!top.exists());
    }

    #[test]
    fn a_link_in_a_folders_place_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (theirs, top) = (place.path().join("theirs"), place.path().join("top"));
        for folder in [&theirs, &top, &top.join("folder")] {
            create_dir(folder).unwrap();
        }
        write(theirs.join("kept"), "").unwrap();
        fs::set_permissions(&theirs, Permissions::from_mode(0o751)).unwrap();
        // As if it had become one after its parent was read.
        symlink(&theirs, top.join("link")).unwrap();
        let opened = enter(CWD, &top).unwrap();
        assert!(enter(&opened, c"link").is_err() && enter(CWD, top.join("link")).is_err());
        lift(opened.as_fd(), c"link").unwrap();
        assert_eq!(names(&opened).unwrap(), [c"folder".to_owned()]);
        assert_eq!(
            fs::metadata(&theirs).unwrap().permissions().mode() & 0o777,
            0o751
        );
        assert!(theirs.join("kept").exists());
    }
}
