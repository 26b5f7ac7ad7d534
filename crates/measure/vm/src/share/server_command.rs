//! The command of a share's server, and its address.

use rustix::fd::OwnedFd;

/// Where a server will listen.
pub(super) enum ServerEndpoint {
    /// By this stream, which QEMU gets.
    Stream(OwnedFd),
    /// At these ports.
    Ports([u16; 2]),
}

/// The command of a server.
pub(super) struct ServerCommand {
    pub command: Vec<String>,
    /// Command that runs the server in a root of its own; empty if it has none.
    pub jail: Vec<String>,
    pub descriptors: Vec<OwnedFd>,
    pub endpoint: ServerEndpoint,
    /// True if the server needs to be root, at least in a user namespace.
    pub as_root: bool,
}
