//! The folder of recordings: opened once, and as root only where no other user can change it.

use crate::RecordingError;
use crate::file::UNFINISHED;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    Access, AtFlags, Dir, FlockOperation, Mode, OFlags, access, flock, fstat, mkdirat, open,
    openat, unlinkat,
};
use rustix::io::Errno;
use rustix::path::Arg;
use rustix::process::geteuid;
use std::ffi::CString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use vmtax_trust::{Owner, Untrusted, untrusted, untrusted_parent};

/// A folder of recordings.
#[derive(Debug)]
pub struct RecordingsFolder {
    path: PathBuf,
    folder: OwnedFd,
}

impl RecordingsFolder {
    /// Opens the folder, and makes it where there is none, closed to other users.
    ///
    /// # Errors
    /// [`RecordingError::Untrusted`] if this is root and another user can change the path; [`RecordingError::Write`].
    pub fn create(path: &Path) -> Result<RecordingsFolder, RecordingError> {
        Ok(RecordingsFolder {
            folder: create(path)?,
            path: path.to_owned(),
        })
    }

    /// Opens the folder.
    ///
    /// # Errors
    /// [`RecordingError::NoFolder`], [`RecordingError::Read`], [`RecordingError::Untrusted`] as [`RecordingsFolder::create`].
    pub fn open(path: &Path) -> Result<RecordingsFolder, RecordingError> {
        let fail = RecordingError::read_folder(path);
        check(path, path, &fail)?;
        Ok(RecordingsFolder {
            folder: enter_named(path).map_err(|e| fail(e.into()))?,
            path: path.to_owned(),
        })
    }

    /// As it was named.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the folder of a recording, with a number behind its name when that exists: two may begin in the same second.
    pub(crate) fn make_recording(&self, name: &str) -> Result<(PathBuf, OwnedFd), RecordingError> {
        let mut numbered = name.to_owned();
        for number in 2.. {
            match mkdirat(&self.folder, &numbered, Mode::RWXU) {
                Err(Errno::EXIST) => numbered = format!("{name}-{number}"),
                Err(e) => {
                    return Err(RecordingError::write(&self.path.join(numbered))(e.into()));
                }
                Ok(()) => break,
            }
        }
        let path = self.path.join(&numbered);
        let folder =
            enter(&self.folder, &numbered).map_err(|e| RecordingError::write(&path)(e.into()))?;
        mark_in_use(&folder);
        Ok((path, folder))
    }

    /// Clears up after killed processes: in each recording of this user that no process is writing, removes the file that
    /// was being written, and what `remove` takes out of the recording's folder.
    pub fn sweep(&self, mut remove: impl FnMut(BorrowedFd<'_>)) {
        for name in names(&self.folder).unwrap_or_default() {
            let Ok(recording) = enter(&self.folder, name) else {
                continue;
            };
            let is_own = fstat(&recording).is_ok_and(|stat| stat.st_uid == geteuid().as_raw());
            if is_own && mark_in_use(&recording) {
                let _ = unlinkat(&recording, UNFINISHED, AtFlags::empty());
                remove(recording.as_fd());
            }
        }
    }
}

/// Checks that a recording may be written at or below a path, as far as it exists: to be called before time is spent.
///
/// # Errors
/// [`RecordingError::Untrusted`] if this is root and another user can change the path; [`RecordingError::Write`] if what exists
/// of it is no directory, or closed to this user.
pub fn check_place(path: &Path) -> Result<(), RecordingError> {
    let fail = RecordingError::write(path);
    let absolute = std::path::absolute(path).map_err(&fail)?;
    let exists = |part: &&Path| part.symlink_metadata().is_ok();
    let Some(existing) = absolute.ancestors().find(exists) else {
        return Ok(());
    };
    if existing == absolute {
        check(path, existing, &fail)?;
    } else {
        let found = untrusted_parent(existing, Owner::RootOrSudoUser).map_err(&fail)?;
        refuse(path, found)?;
    }
    if !existing.metadata().map_err(&fail)?.is_dir() {
        return Err(fail(Errno::NOTDIR.into()));
    }
    access(existing, Access::WRITE_OK | Access::EXEC_OK).map_err(|e| fail(e.into()))
}

/// Opens a folder, and makes it where there is none, closed to other users.
pub(crate) fn create(path: &Path) -> Result<OwnedFd, RecordingError> {
    let fail = RecordingError::write(path);
    // Nothing is made where another user could redirect it: each part is checked before the next is made in it.
    check_place(path)?;
    let absolute = std::path::absolute(path).map_err(&fail)?;
    let missing: Vec<&Path> = absolute
        .ancestors()
        .take_while(|part| part.symlink_metadata().is_err())
        .collect();
    for part in missing.into_iter().rev() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(part)
            .map_err(&fail)?;
        check(path, part, &fail)?;
    }
    enter_named(path).map_err(|e| fail(e.into()))
}

/// Checks that `part` of `path` is one that root may use.
fn check(
    path: &Path,
    part: &Path,
    fail: impl Fn(io::Error) -> RecordingError,
) -> Result<(), RecordingError> {
    refuse(path, untrusted(part, Owner::RootOrSudoUser).map_err(fail)?)
}

fn refuse(path: &Path, found: Option<Untrusted>) -> Result<(), RecordingError> {
    found.map_or(Ok(()), |found| {
        Err(RecordingError::Untrusted {
            path: path.to_owned(),
            found,
        })
    })
}

/// Opens a folder that the user named: its links were checked.
fn enter_named(path: &Path) -> rustix::io::Result<OwnedFd> {
    open(
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Opens a folder in another; a link in its place is refused.
fn enter(folder: &OwnedFd, name: impl Arg) -> rustix::io::Result<OwnedFd> {
    openat(
        folder,
        name,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Locks a recording for as long as the descriptor is open; whether it was free. The kernel gives the lock back however its
/// holder ends.
pub(crate) fn mark_in_use(recording: &OwnedFd) -> bool {
    flock(recording, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Returns the names in a folder, without `.` and `..`.
fn names(folder: &OwnedFd) -> rustix::io::Result<Vec<CString>> {
    let entries = Dir::read_from(folder)?.map(|entry| Ok(entry?.file_name().to_owned()));
    let is_entry = |name: &CString| !matches!(name.as_bytes(), b"." | b"..");
    entries
        .filter(|name| name.as_ref().map_or(true, is_entry))
        .collect()
}
