//! What a process under the watchdog does not share with the host: a tree that it can only read, a network of its own.

use crate::{MachineError, portmapper};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount_bind_recursive, mount_change, mount_remount, unmount,
};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{geteuid, getgid, getuid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// What a command is to have apart from the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Apart {
    /// A tree that it sees, but cannot write to.
    pub read_only: Option<PathBuf>,
    /// A tree in which it can open no devices. Only root can make any, so nothing changes for others.
    pub no_devices: Option<PathBuf>,
    /// A folder at which it sees the host's root, which it cannot write to there, nor open devices.
    pub root: Option<PathBuf>,
    /// Whether an ordinary user is root in there: of a user namespace with nothing but this user's rights.
    pub as_root: bool,
    /// Whether it has a network of its own, with nothing but a loopback device, where other users cannot reach it.
    pub own_network: bool,
    /// The process whose network it shares.
    pub network_of: Option<i32>,
    /// The program that it finds as its port mapper, in its own network and `/run`: the host's is told nothing.
    pub portmapper: Option<PathBuf>,
}

impl Apart {
    /// Sets this process apart, for what it starts. Gives a tree that is mounted over itself here, which has to be taken
    /// off by [`leave`] before this process can remove it.
    pub(crate) fn enter(&self) -> Result<Option<&Path>, MachineError> {
        let mut mounted = None;
        let own_network = match &self.portmapper {
            Some(_) => portmapper::set_apart().map(|()| true)?,
            // Where that is not allowed, it stays as it is.
            None => self.own_network && unshare(UnshareFlags::NEWNET).is_ok(),
        };
        if own_network {
            // Without it nobody can listen, which is noticed then.
            let _ = loopback_up();
        }
        if let Some(pid) = self.network_of {
            network_of(pid)?;
        }
        if self.as_root && !geteuid().is_root() {
            let what = "becoming root in a user namespace, which this server wants (run as root, or name another server with \
                        share.server)";
            own_users(0, 0).map_err(|e| MachineError::system(what, e))?;
        }
        if let Some(tree) = self.no_devices.as_deref().filter(|_| geteuid().is_root()) {
            // A container may not mount; it has seldom a host's devices either.
            if unshare(UnshareFlags::NEWNS).is_ok() {
                private_mounts()
                    .map_err(|e| MachineError::ReadOnly { folder: tree.to_path_buf(), source: e.into() })?;
                remount(tree, MountFlags::NODEV)?;
                mounted = Some(tree);
            }
        }
        if let Some(at) = self.root.as_deref() {
            own_mounts().map_err(|source| MachineError::ReadOnly { folder: PathBuf::from("/"), source })?;
            crate::root::put_at(at)?;
            mounted = Some(at);
        }
        self.read_only.as_deref().map_or(Ok(()), make_read_only)?;
        Ok(mounted)
    }
}

/// Takes off what [`Apart::enter`] mounted.
pub(crate) fn leave(mounted: Option<&Path>) {
    if let Some(tree) = mounted {
        let _ = unmount(tree, UnmountFlags::DETACH);
    }
}

/// A new network's loopback device is down. It gets a second address: where there is none but 127.0.0.1, libc's
/// `getaddrinfo` finds not even that for those who ask it for addresses that are configured, as nfs-ganesha does.
fn loopback_up() -> rustix::io::Result<()> {
    const SET_FLAGS: Opcode = 0x8914;
    const SET_ADDRESS: Opcode = 0x8916;
    const UP: u8 = 1;
    const FAMILY: u8 = 2;
    // Of those that are nobody's, for documentation.
    let address = [FAMILY, 0, 0, 0, 192, 0, 2, 1];
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: both read an `ifreq`, whose size and layout these are, and write nothing.
    unsafe {
        ioctl(&socket, Setter::<SET_FLAGS, Request>::new(Request::of(b"lo", &[UP])))?;
        ioctl(&socket, Setter::<SET_ADDRESS, Request>::new(Request::of(b"lo:1", &address)))
    }
}

/// `struct ifreq`: a device and what is said of it.
#[repr(C)]
struct Request {
    name: [u8; 16],
    data: [u8; 24],
}

impl Request {
    fn of(name: &[u8], data: &[u8]) -> Request {
        let mut request = Request { name: [0; 16], data: [0; 24] };
        request.name.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
        request.data.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
        request
    }
}

fn network_of(pid: i32) -> Result<(), MachineError> {
    let (theirs, own) = (format!("/proc/{pid}/ns/net"), "/proc/self/ns/net");
    let failed = |e| MachineError::system(format!("joining the network of process {pid}"), e);
    if fs::read_link(&theirs).map_err(failed)? == fs::read_link(own).map_err(failed)? {
        return Ok(());
    }
    let network = File::open(&theirs).map_err(failed)?;
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).map_err(|e| failed(e.into()))
}

pub(crate) fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: the watchdog has one thread, and no reference to what it shared with its parent.
    unsafe { unshare_unsafe(flags) }
}

/// Whatever is asked of the command, and whatever is wrong with it, the tree stays as it is.
fn make_read_only(tree: &Path) -> Result<(), MachineError> {
    own_mounts().map_err(|source| MachineError::ReadOnly { folder: tree.to_path_buf(), source })?;
    remount(tree, MountFlags::RDONLY)
}

/// Among this process's own mounts the tree, with all that is mounted in it, is mounted over itself, so.
fn remount(tree: &Path, so: MountFlags) -> Result<(), MachineError> {
    let failed = |source| MachineError::ReadOnly { folder: tree.to_path_buf(), source };
    mount_bind_recursive(tree, tree).map_err(|e| failed(e.into()))?;
    let whole = fs::canonicalize(tree).map_err(failed)?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(failed)?;
    for (at, flags) in mounts.lines().filter_map(mount_of).filter(|(at, _)| at.starts_with(&whole)) {
        match mount_remount(&at, flags | MountFlags::BIND | so, c"") {
            // Another is mounted over it.
            Err(Errno::INVAL | Errno::NOENT) if at != whole => {}
            done => done.map_err(|e| MachineError::ReadOnly { folder: at.clone(), source: e.into() })?,
        }
    }
    // A working folder in the tree is still that below the new mount, and could be written to.
    match std::env::current_dir() {
        Ok(here) if here.starts_with(&whole) => std::env::set_current_dir(here).map_err(failed),
        _ => Ok(()),
    }
}

/// From now on what this process mounts is its own.
fn own_mounts() -> std::io::Result<()> {
    if unshare(UnshareFlags::NEWNS).is_err() {
        own_users(getuid().as_raw(), getgid().as_raw())?;
    }
    Ok(private_mounts()?)
}

/// In a new mount namespace: what is mounted from now on does not reach the one that it was copied from.
pub(crate) fn private_mounts() -> rustix::io::Result<()> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
}

/// An ordinary user may mount in a user namespace alone: there with these ids, and in truth what they were before.
fn own_users(user: u32, group: u32) -> std::io::Result<()> {
    let (own_user, own_group) = (getuid().as_raw(), getgid().as_raw());
    unshare(UnshareFlags::NEWNS | UnshareFlags::NEWUSER)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {own_user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {own_group} 1"))
}

/// Where a line of `mountinfo` is mounted, and what must be kept of how: an ordinary user may not take these back.
fn mount_of(line: &str) -> Option<(PathBuf, MountFlags)> {
    let mut fields = line.split(' ').skip(4);
    let (at, options) = (unescaped(fields.next()?), fields.next()?);
    let kept = [
        ("ro", MountFlags::RDONLY),
        ("nosuid", MountFlags::NOSUID),
        ("nodev", MountFlags::NODEV),
        ("noexec", MountFlags::NOEXEC),
    ];
    let has = |name: &str| options.split(',').any(|option| option == name);
    Some((at, kept.into_iter().filter(|(name, _)| has(name)).map(|(_, flag)| flag).collect()))
}

/// Blanks, line ends and backslashes are `\OOO` in there.
pub(crate) fn unescaped(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, more @ ..] = rest {
        let octal = more.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
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
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_keeps_what_protects_the_host() {
        let line = "41 30 8:1 /sub /mnt/a\\040b\\134c rw,nosuid,nodev,relatime shared:1 - ext4 /dev/sda1 rw,noexec";
        let (at, flags) = mount_of(line).unwrap();
        assert_eq!(at, Path::new("/mnt/a b\\c"));
        assert_eq!(flags, MountFlags::NOSUID | MountFlags::NODEV);
        assert_eq!(mount_of("nonsense"), None);
        assert_eq!(unescaped("\\04"), Path::new("\\04"));
    }
}
