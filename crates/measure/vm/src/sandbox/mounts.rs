//! Mounts that are this process's own, and of what it starts: the host sees nothing of them.

use crate::MachineError;
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_bind_recursive, mount_change};
use rustix::process::{getgid, getuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// From now on what this process mounts is its own. It is for the sake of `tree`, which an error names.
pub(crate) fn own(tree: &Path) -> Result<(), MachineError> {
    if unshare(UnshareFlags::NEWNS).is_err() {
        let failed = |source| MachineError::ReadOnly {
            folder: tree.to_path_buf(),
            source,
        };
        own_users(getuid().as_raw(), getgid().as_raw()).map_err(failed)?;
    }
    keep_private()
}

/// In a new mount namespace: what is mounted from now on does not reach the one that it was copied from.
pub(crate) fn keep_private() -> Result<(), MachineError> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).map_err(|e| {
        let source = match e {
            // A mount on another folder would be the host's too, so nothing can be done from in here.
            Errno::INVAL => io::Error::other(
                "the root folder is not a mount point, as in a chroot: bind-mount it to itself before entering it \
                 (`mount --bind DIR DIR`)",
            ),
            other => other.into(),
        };
        MachineError::system("making mounts private", source)
    })
}

/// An ordinary user may mount in a user namespace alone: there with these ids, and in truth what they were before.
pub(crate) fn own_users(user: u32, group: u32) -> io::Result<()> {
    let (own_user, own_group) = (getuid().as_raw(), getgid().as_raw());
    unshare(UnshareFlags::NEWNS | UnshareFlags::NEWUSER)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {own_user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {own_group} 1"))
}

/// Mounts the tree, with all that is mounted in it, over itself, with these attributes (`MOUNT_ATTR_…`).
pub(crate) fn over_itself(tree: &Path, attributes: u64) -> Result<(), MachineError> {
    let failed = |source| MachineError::ReadOnly {
        folder: tree.to_path_buf(),
        source,
    };
    mount_bind_recursive(tree, tree).map_err(|e| failed(e.into()))?;
    set(tree, attributes).map_err(failed)?;
    // A working folder in the tree is still that below the new mount, and could be written to.
    let whole = fs::canonicalize(tree).map_err(failed)?;
    match std::env::current_dir() {
        Ok(here) if here.starts_with(&whole) => std::env::set_current_dir(here).map_err(failed),
        _ => Ok(()),
    }
}

/// Gives what is mounted at `at`, and all that is mounted below, more attributes: at once, so that none can be forgotten.
pub(crate) fn set(at: &Path, attributes: u64) -> io::Result<()> {
    let path = CString::new(at.as_os_str().as_bytes())?;
    let more = libc::mount_attr {
        attr_set: attributes,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the kernel reads the path, and of the attributes as many bytes as it is told there are.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const more,
            size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

pub(crate) fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: the watchdog has one thread, and no reference to what it shared with its parent.
    unsafe { unshare_unsafe(flags) }
}
