//! The host's root as guests are given it: in a mount namespace of the server's own, read-only whatever is asked of it,
//! with what is mounted on it, but for what a guest has of its own.

use crate::MachineError;
use crate::apart::unescaped;
use rustix::fd::AsRawFd;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{UnmountFlags, mount_bind_recursive, unmount};
use std::ffi::CString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Below these a guest has its own, whatever the host has.
const OWN: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];
/// File systems that say something of the host's kernel, or serve it: they mean nothing in a guest.
const KERNELS: &[&str] = &[
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "sysfs",
    "tracefs",
];

/// What becomes of the file systems mounted on the host's root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RootMounts {
    /// Guests see these.
    pub followed: Vec<PathBuf>,
    /// Guests do not: each with its kind. Those of the kernel, of which a guest has its own, are not named.
    pub refused: Vec<(PathBuf, String)>,
}

/// The mounts of this process's root, and what guests see of them.
///
/// # Errors
/// [`MachineError::System`] when they cannot be read.
pub fn root_mounts() -> Result<RootMounts, MachineError> {
    let text = fs::read_to_string("/proc/self/mountinfo").map_err(|e| MachineError::system("reading the mounts", e))?;
    let mut all = RootMounts::default();
    for (at, kind) in mounts(&text) {
        match fate(&at, &kind) {
            Fate::Followed => all.followed.push(at),
            Fate::Refused => all.refused.push((at, kind)),
            Fate::Kernels => {}
        }
    }
    Ok(all)
}

#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Followed,
    Refused,
    /// A guest has its own.
    Kernels,
}

fn fate(at: &Path, kind: &str) -> Fate {
    if OWN.iter().any(|own| at.starts_with(own)) || KERNELS.contains(&kind) {
        Fate::Kernels
    } else if kind == "fuse" || kind.starts_with("fuse.") {
        // Another user's is closed to root, and any may hang.
        Fate::Refused
    } else {
        Fate::Followed
    }
}

/// Each mount but the root itself: where, and its kind. What is mounted over is not seen, and left out.
fn mounts(mountinfo: &str) -> Vec<(PathBuf, String)> {
    let mut all: Vec<(PathBuf, String)> = Vec::new();
    for line in mountinfo.lines() {
        // "36 35 98:0 / /mnt rw,noatime master:1 - ext3 /dev/root rw": optional fields end with the dash.
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let (Some(at), Some(kind)) = (before.split(' ').nth(4), after.split(' ').next()) else { continue };
        let at = unescaped(at);
        if at != Path::new("/") {
            all.retain(|(other, _)| *other != at);
            all.push((at, kind.to_owned()));
        }
    }
    all
}

/// Puts the root at the folder `at`, in the mount namespace of this process alone.
pub(crate) fn put_at(at: &Path) -> Result<(), MachineError> {
    let failed = |source: io::Error| MachineError::ReadOnly { folder: PathBuf::from("/"), source };
    let found = root_mounts()?;
    mount_bind_recursive("/", at).map_err(|e| failed(e.into()))?;
    read_only(at).map_err(failed)?;
    let below = |path: &Path| at.join(path.strip_prefix("/").unwrap_or(path));
    let refused = found.refused.iter().map(|(path, _)| path.as_path());
    for path in OWN.iter().map(Path::new).chain(refused) {
        // In a user namespace the kernel keeps them together; who serves there may no more than its user.
        while unmount(below(path), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).is_ok() {}
    }
    Ok(())
}

/// All of it, with what is mounted below: no remount can be forgotten.
fn read_only(at: &Path) -> io::Result<()> {
    let folder = openat(CWD, at, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let path = CString::new("")?;
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NODEV,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: the kernel reads the path, and of the attributes as many bytes as it is told there are.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            folder.as_raw_fd(),
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mounts_are_followed_or_refused_by_name() {
        let text = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
                    23 22 0:21 / /proc rw - proc proc rw\n\
                    24 22 0:22 / /dev/shm rw - tmpfs tmpfs rw\n\
                    25 22 254:1 / /srv/my\\040data rw,noatime shared:1 master:2 - xfs /dev/vdb rw\n\
                    26 22 0:44 / /home/x/remote rw - fuse.sshfs x:/ rw\n\
                    27 22 0:50 / /mnt rw - cgroup2 none rw\n\
                    nonsense\n";
        let all: Vec<(PathBuf, Fate)> = mounts(text)
            .into_iter()
            .map(|(at, kind)| {
                let f = fate(&at, &kind);
                (at, f)
            })
            .collect();
        let expected = [
            ("/proc", Fate::Kernels),
            ("/dev/shm", Fate::Kernels),
            ("/srv/my data", Fate::Followed),
            ("/home/x/remote", Fate::Refused),
            ("/mnt", Fate::Kernels),
        ];
        assert_eq!(all, expected.map(|(at, fate)| (PathBuf::from(at), fate)));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "\\PC{0,200}", name in "[a-z \\\\0-7]{0,20}") {
            mounts(&text);
            let escaped: String = name.bytes().map(|b| if b == b' ' || b == b'\\' { format!("\\{b:03o}") } else { char::from(b).to_string() }).collect();
            prop_assert_eq!(unescaped(&escaped), PathBuf::from(name));
        }
    }
}
