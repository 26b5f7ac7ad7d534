//! Connection of a machine with its network.

use rustix::fd::OwnedFd;
use std::net::SocketAddrV4;

/// The hardware address of a tap on the host's side.
pub(crate) const HOST_MAC: &str = "52:54:00:76:6d:7a";

/// A hardware address as bytes.
pub(crate) fn mac_bytes(mac: &str) -> [u8; 6] {
    let mut bytes = [0; 6];
    let words = mac
        .split(':')
        .filter_map(|byte| u8::from_str_radix(byte, 16).ok());
    bytes
        .iter_mut()
        .zip(words)
        .for_each(|(byte, word)| *byte = word);
    bytes
}

/// The machine's end of its network, and where it finds the echo server there.
pub(crate) struct NetworkLink {
    pub end: NetworkEnd,
    pub echo: SocketAddrV4,
}

/// The machine's end of its network.
pub(crate) enum NetworkEnd {
    /// The queues of a tap, for a guest's network card.
    Tap(Vec<OwnedFd>),
    /// The stream of packets to passt, for a guest's network card.
    Passt(OwnedFd),
    /// The abstract name of the socket by which passt is given the guest's memory and queues, for a vhost-user back end.
    VhostUser(String),
    /// The network namespace to be in: natively the client's; of a guest QEMU's, whose user-mode network has the server on its
    /// loopback device.
    Namespace(OwnedFd),
    /// None: the server is on the host's loopback device.
    Host,
}

impl NetworkEnd {
    /// Returns the descriptors that the machine's process is given.
    pub fn descriptors(self) -> Vec<OwnedFd> {
        match self {
            NetworkEnd::Tap(queues) => queues,
            NetworkEnd::Passt(end) | NetworkEnd::Namespace(end) => vec![end],
            NetworkEnd::VhostUser(_) | NetworkEnd::Host => Vec::new(),
        }
    }
}
