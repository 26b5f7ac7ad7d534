//! Mounts: those that are this process's own, and of what it starts, of which the host sees nothing; and the list of all, which is
//! `/proc/PID/mountinfo`.

use crate::MachineError;
use rustix::fd::OwnedFd;
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount,
    mount_bind, mount_bind_recursive, mount_change, move_mount, open_tree, unmount,
};
use rustix::process::{getgid, getuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use vmtax_model::OWN;
use vmtax_workload::set_mount_attributes;

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
                "the root directory is not a mount point, as in a chroot: bind-mount it to itself before entering it \
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
    set_mount_attributes(tree, attributes).map_err(failed)?;
    // A working folder in the tree is still that below the new mount, and could be written to.
    let whole = fs::canonicalize(tree).map_err(failed)?;
    match std::env::current_dir() {
        Ok(here) if here.starts_with(&whole) => std::env::set_current_dir(here).map_err(failed),
        _ => Ok(()),
    }
}

/// A copy of what is there, with all that is mounted below, to be mounted elsewhere.
pub(crate) fn clone_tree(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    open_tree(CWD, path, flags)
}

/// Mounts such a copy.
pub(crate) fn attach(tree: &OwnedFd, at: &Path) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(tree, c"", CWD, at, flags)
}

/// Covers a folder with an empty one that stays empty.
pub(crate) fn cover(folder: &Path) -> rustix::io::Result<()> {
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("tmpfs", folder, "tmpfs", flags, Some(c"mode=0555"))
}

/// Where a path of the host is in a root that lies at this folder.
pub(crate) fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Gives this process namespaces of its own.
pub(crate) fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: the watchdog has one thread, and no reference to what it shared with its parent.
    unsafe { unshare_unsafe(flags) }
}

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Path of the mount point.
    pub at: PathBuf,
    /// Kind of the file system: `ext4`, `fuse.sshfs`.
    pub kind: String,
}

/// The mounts in the text of `/proc/PID/mountinfo`, in order: what comes later may be mounted over what came before.
pub fn mounts(mountinfo: &str) -> Vec<Mount> {
    mountinfo.lines().filter_map(mount_of_line).collect()
}

/// "36 35 98:0 / /mnt rw,noatime master:1 - ext3 /dev/root rw": optional fields end with the dash.
fn mount_of_line(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(4);
    let at = unescaped(fields.next()?);
    fields.next()?;
    Some(Mount {
        at,
        kind: after.split(' ').next()?.to_owned(),
    })
}

/// Blanks, line ends and backslashes are `\OOO` in there.
fn unescaped(text: &str) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, more @ ..] = rest {
        let octal = more
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[3..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

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
        hide(path).map_err(|e| MachineError::system(format!("covering {}", path.display()), e))?;
    }
    Ok(())
}

/// Nothing is to be seen there.
fn hide(at: &Path) -> io::Result<()> {
    match cover(at) {
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
    use proptest::prelude::*;

    #[test]
    fn a_mount_has_its_place_and_its_kind() {
        let line = "41 30 8:1 /sub /mnt/a\\040b\\134c rw,nosuid,nodev,relatime shared:1 - ext4 /dev/sda1 rw,noexec";
        let all = mounts(&format!("nonsense\n{line}\n42 30 8:1\n"));
        assert_eq!(all.len(), 1);
        assert_eq!(
            (all[0].at.as_path(), all[0].kind.as_str()),
            (Path::new("/mnt/a b\\c"), "ext4")
        );
        assert_eq!(unescaped("\\04"), Path::new("\\04"));
    }

    proptest! {
        #[test]
        fn any_text_is_survived_and_names_come_through(text in "\\PC{0,200}", name in "[a-z \\\\0-7]{0,20}") {
            mounts(&text);
            let escape = |b: u8| match b {
                b' ' | b'\\' => format!("\\{b:03o}"),
                _ => char::from(b).to_string(),
            };
            let escaped: String = name.bytes().map(escape).collect();
            let line = format!("1 2 0:3 / /{escaped} rw - tmpfs x rw");
            prop_assert_eq!(&mounts(&line)[0].at, &PathBuf::from(format!("/{name}")));
        }
    }

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
