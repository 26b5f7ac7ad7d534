//! The agent's protocol. Controller and agent exchange messages in frames over any byte stream: a socket, a
//! virtio-serial port, a serial console that also carries a kernel's log.
//!
//! A frame is `VMTX`, a version byte, a kind byte, the payload's length and its CRC-32 (both little endian), and the
//! payload: one message as JSON, or a piece of a file. Bytes between frames are noise and skipped, so that a console will
//! do. Nothing is trusted: the length is bounded before anything is kept, the checksum guards against mixed-in text, and
//! a result's figures are checked before they are used.

mod frame;
mod message;

pub use frame::{Decoder, Frame, MAX_PAYLOAD, MAX_PIECE, PROTOCOL, WireError, encode, piece};
pub use message::{
    Bytes, Hello, Launch, Mount, Observed, Reply, Request, STREAM_PIECE, Size, Stream,
};

use std::net::{Ipv4Addr, SocketAddrV4};

/// The name of the virtio-serial port on which controller and agent meet.
pub const PORT: &str = "org.vmtax.agent";
/// The serial of the guest disk that holds ext4 for files.
pub const FILES_SERIAL: &str = "vmtax-files";
/// The serial of the guest disk that is read raw.
pub const DISK_SERIAL: &str = "vmtax-disk";
/// The serial of the guest disk that holds the shared tree.
pub const SHARE_SERIAL: &str = "vmtax-share";
/// The hardware address of the guest's network card.
pub const SHARE_MAC: &str = "52:54:00:76:6d:78";
/// The hardware address of the guest's network card that is measured.
pub const NET_MAC: &str = "52:54:00:76:6d:79";
/// On a guest's kernel command line, with the address and port of the echo server: it has the network card that is measured.
pub const NET_PARAMETER: &str = "vmtax.net";
/// On a guest's kernel command line: its measured disk appears a moment after its driver, which probes it while the kernel goes on.
pub const DISK_PARAMETER: &str = "vmtax.disk";
/// The address of the measured network card, or natively of its counterpart, and its mask.
pub const NET_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 3, 15);
pub const NET_MASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);
/// The echo server that the measured network reaches, UDP and TCP: the port that RFC 862 gives it.
pub const ECHO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 3, 2), 7);
/// Where a guest has the shared tree.
pub const SHARE: &str = "/share";

/// The name by which a guest mounts the folder of this number that a command may write to.
pub fn writable_tag(number: usize) -> String {
    format!("writable{number}")
}
