//! Isolation of processes from the host: namespaces, mounts, a root, rights.

pub(crate) mod interface;
pub(crate) mod mounts;
pub(crate) mod overlay;
pub(crate) mod reach;
pub(crate) mod rights;

use crate::MachineError;
use crate::sandbox::mounts::unshare;
use rustix::fd::AsFd;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::geteuid;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// The isolation of a command from the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Namespaces {
    /// A tree that it sees, but cannot write to.
    pub read_only: Option<PathBuf>,
    /// Trees in which it can open no devices. Only root can make any, so nothing changes for others.
    pub no_devices: Vec<PathBuf>,
    /// A folder at which it sees the host's root, which it cannot write to there, nor open devices.
    pub root: Option<PathBuf>,
    /// True if an ordinary user is root in there: of a user namespace with nothing but this user's rights.
    pub as_root: bool,
    /// True if it has a network of its own, with nothing but a loopback device, where other users cannot reach it.
    pub own_network: bool,
    /// The process whose network it shares.
    pub network_of: Option<i32>,
    /// The descriptor of the network namespace that it is in.
    pub network_in: Option<i32>,
}

impl Namespaces {
    /// Sets this process apart, for what it starts. Gives trees that are mounted over themselves here, which have to be
    /// taken off by [`leave`] before this process can remove them.
    pub(crate) fn enter(&self) -> Result<Vec<&Path>, MachineError> {
        let mut mounted = Vec::new();
        if self.own_network {
            let what = "creating a network namespace for the server (run as root where namespaces are allowed)";
            unshare(UnshareFlags::NEWNET).map_err(|e| MachineError::system(what, e))?;
            // Without it nobody can listen, which is noticed then.
            let _ = loopback_up();
        }
        if let Some(pid) = self.network_of {
            network_of(pid)?;
        }
        if let Some(descriptor) = self.network_in {
            join_network(&format!("/proc/self/fd/{descriptor}"))
                .map_err(|e| MachineError::system("joining a network namespace", e))?;
        }
        if self.as_root && !geteuid().is_root() {
            let what = "becoming root in a user namespace, which this server needs (run as root, or use another server with \
                        share.server)";
            mounts::own_users(0, 0).map_err(|e| MachineError::system(what, e))?;
        }
        // A container may not mount; it has seldom a host's devices either.
        if !self.no_devices.is_empty()
            && geteuid().is_root()
            && unshare(UnshareFlags::NEWNS).is_ok()
        {
            mounts::keep_private()?;
            for tree in &self.no_devices {
                mounts::over_itself(tree, libc::MOUNT_ATTR_NODEV)?;
                mounted.push(tree.as_path());
            }
        }
        if let Some(at) = self.root.as_deref() {
            mounts::own(Path::new("/"))?;
            mounts::put_at(at)?;
            mounted.push(at);
        }
        if let Some(tree) = self.read_only.as_deref() {
            // Whatever is asked of the command, and whatever is wrong with it, the tree stays as it is.
            mounts::own(tree)?;
            mounts::over_itself(tree, libc::MOUNT_ATTR_RDONLY)?;
        }
        Ok(mounted)
    }
}

/// Takes off what [`Namespaces::enter`] mounted.
pub(crate) fn leave(mounted: Vec<&Path>) {
    for tree in mounted.into_iter().rev() {
        let _ = unmount(tree, UnmountFlags::DETACH);
    }
}

/// A new network's loopback device is down. It gets a second address: where there is none but 127.0.0.1, libc's
/// `getaddrinfo` finds not even that for those who ask it for addresses that are configured, as nfs-ganesha does.
fn loopback_up() -> rustix::io::Result<()> {
    // Of those that are nobody's, for documentation.
    const SECOND: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    interface::enable("lo")?;
    interface::set_address("lo:1", SECOND)
}

/// Joins the network namespace of this file.
fn join_network(file: &str) -> io::Result<()> {
    let namespace = Some(LinkNameSpaceType::Network);
    Ok(move_into_link_name_space(
        File::open(file)?.as_fd(),
        namespace,
    )?)
}

/// Joins the network of a process, unless this process is in it.
fn network_of(pid: i32) -> Result<(), MachineError> {
    let (theirs, own) = (format!("/proc/{pid}/ns/net"), "/proc/self/ns/net");
    let joined = fs::read_link(&theirs).and_then(|network| {
        if network == fs::read_link(own)? {
            return Ok(());
        }
        join_network(&theirs)
    });
    joined.map_err(|e| MachineError::system(format!("joining the network of process {pid}"), e))
}
