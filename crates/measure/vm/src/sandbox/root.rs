//! The host's root as guests are given it: in a mount namespace of the server's own, read-only whatever is asked of it,
//! with the file systems mounted on it, except those that a guest has itself.

use crate::MachineError;
use crate::sandbox::mounts::{self, Mount, below, mounts};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, mount_bind, mount_bind_recursive, unmount};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use vmtax_model::OWN;
use vmtax_workload::set_mount_attributes;

/// File systems mounted on the host's root: those that guests see, and those that they do not see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RootMounts {
    /// Guests see these.
    pub followed: Vec<PathBuf>,
    /// Guests do not: each with its kind.
    pub refused: Vec<(PathBuf, String)>,
    /// Nor these, of the kernel, which say nothing in a guest; those where a guest has its own are not among them.
    pub(crate) kernels: Vec<PathBuf>,
}

/// The mounts of this process's root, and what guests see of them.
///
/// # Errors
/// [`MachineError::System`] when they cannot be read.
pub fn root_mounts() -> Result<RootMounts, MachineError> {
    let text = fs::read_to_string("/proc/self/mountinfo")
        .map_err(|e| MachineError::system("reading the mounts", e))?;
    let mut all = RootMounts::default();
    for Mount { at, kind, .. } in visible(&text) {
        match mount_use(&at, &kind) {
            MountUse::Followed => all.followed.push(at),
            MountUse::Refused => all.refused.push((at, kind)),
            MountUse::Kernels => all.kernels.push(at),
            MountUse::Own => {}
        }
    }
    Ok(all)
}

/// The treatment of a mount in the root of a guest.
#[derive(Debug, PartialEq, Eq)]
enum MountUse {
    Followed,
    Refused,
    /// It means nothing in a guest.
    Kernels,
    /// A guest has its own there.
    Own,
}

fn mount_use(at: &Path, kind: &str) -> MountUse {
    if OWN.iter().any(|own| at.starts_with(own)) {
        return MountUse::Own;
    }
    match kind {
        // Of the host's kernel, without meaning in a guest.
        "autofs" | "binfmt_misc" | "bpf" | "cgroup" | "cgroup2" | "configfs" | "debugfs"
        | "devpts" | "devtmpfs" | "efivarfs" | "fusectl" | "hugetlbfs" | "mqueue" | "nsfs"
        | "proc" | "pstore" | "rpc_pipefs" | "securityfs" | "selinuxfs" | "sysfs" | "tracefs" => {
            MountUse::Kernels
        }
        // Another user's is closed to root, and any may hang.
        _ if kind == "fuse" || kind.starts_with("fuse.") => MountUse::Refused,
        _ => MountUse::Followed,
    }
}

/// Each mount but the root itself. What is mounted over is not seen, and left out.
fn visible(mountinfo: &str) -> Vec<Mount> {
    let mut all: Vec<Mount> = Vec::new();
    for mount in mounts(mountinfo)
        .into_iter()
        .filter(|mount| mount.at != Path::new("/"))
    {
        all.retain(|other| other.at != mount.at);
        all.push(mount);
    }
    all
}

/// Puts the root at the folder `at`, in the mount namespace of this process alone.
pub(crate) fn put_at(at: &Path) -> Result<(), MachineError> {
    let failed = |source: io::Error| MachineError::NoRoot { source };
    let found = root_mounts()?;
    mount_bind_recursive("/", at).map_err(|e| failed(e.into()))?;
    set_mount_attributes(at, libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NODEV).map_err(failed)?;
    let refused = found.refused.iter().map(|(path, _)| path);
    let gone: Vec<PathBuf> = refused
        .chain(&found.kernels)
        .map(|path| below(at, path))
        .collect();
    let own = OWN.map(|path| below(at, Path::new(path)));
    for path in own.iter().chain(&gone) {
        while unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).is_ok() {}
    }
    // In a user namespace the kernel keeps mounts together: what cannot be taken off is covered.
    let left = fs::read_to_string("/proc/self/mountinfo").map_err(failed)?;
    let left: Vec<PathBuf> = mounts(&left).into_iter().map(|mount| mount.at).collect();
    for path in gone.iter().filter(|path| left.contains(path)) {
        cover(path).map_err(|e| MachineError::system(format!("covering {}", path.display()), e))?;
    }
    Ok(())
}

/// Nothing is to be seen there.
fn cover(at: &Path) -> io::Result<()> {
    match mounts::cover(at) {
        // A file is covered by a file.
        Err(Errno::NOTDIR) => Ok(mount_bind("/dev/null", at)?),
        // Its mount point was removed: nobody gets there.
        Err(Errno::NOENT) => Ok(()),
        done => Ok(done?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_followed_or_refused_by_name() {
        let text = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
                    23 22 0:21 / /proc rw - proc proc rw\n\
                    24 22 0:22 / /dev/shm rw - tmpfs tmpfs rw\n\
                    25 22 254:1 / /srv/my\\040data rw,noatime shared:1 master:2 - xfs /dev/vdb rw\n\
                    26 22 0:44 / /home/x/remote rw - fuse.sshfs x:/ rw\n\
                    27 22 0:50 / /mnt rw - cgroup2 none rw\n\
                    nonsense\n";
        let all: Vec<(PathBuf, MountUse)> = visible(text)
            .into_iter()
            .map(|m| (m.at.clone(), mount_use(&m.at, &m.kind)))
            .collect();
        let expected = [
            ("/proc", MountUse::Own),
            ("/dev/shm", MountUse::Own),
            ("/srv/my data", MountUse::Followed),
            ("/home/x/remote", MountUse::Refused),
            ("/mnt", MountUse::Kernels),
        ];
        assert_eq!(
            all,
            expected.map(|(at, mount_use)| (PathBuf::from(at), mount_use))
        );
    }
}
