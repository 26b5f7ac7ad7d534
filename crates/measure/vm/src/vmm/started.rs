//! A VMM that was started, and what connects it with this program.

use crate::network::NetworkLink;
use crate::process::child::Child;
use crate::share::ServerAddress;
use rustix::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use vmtax_clock::Shared;

/// The VMM's ends of what connects a guest that has an agent with this program.
pub(crate) struct Streams {
    /// The agent's channel.
    pub agent: OwnedFd,
    /// The serial console.
    pub console: OwnedFd,
    /// The share's server.
    pub server: Option<ServerAddress>,
    /// Link to the network of the measured network card.
    pub network: Option<NetworkLink>,
}

/// A VMM that was started for a guest.
pub(crate) struct Started {
    pub child: Child,
    pub link: Link,
}

/// Connections of a VMM and its guest with this program.
pub(crate) struct Link {
    /// The VMM's arguments for the share.
    pub share: Vec<String>,
    /// Memory that host and guest share: the guest's RAM, or a device's.
    pub memory: Shared,
    /// The VMM's standard output and error.
    pub log: PathBuf,
    /// Our end of the VMM's control socket; of QEMU its QMP monitor.
    pub control: UnixStream,
}
