//! What each kind of server is started with, and how it is reached.

use rustix::fd::OwnedFd;

/// How a server will be reached.
pub(super) enum ServerEndpoint {
    /// By this stream, which QEMU gets.
    Stream(OwnedFd),
    /// At these ports.
    Ports([u16; 2]),
}

/// What a server is started with.
pub(super) struct ServerCommand {
    pub command: Vec<String>,
    /// What runs it in a root of its own, if it has one.
    pub jail: Vec<String>,
    pub descriptors: Vec<OwnedFd>,
    pub endpoint: ServerEndpoint,
    /// Whether it wants to be root, if only in a user namespace.
    pub as_root: bool,
}
