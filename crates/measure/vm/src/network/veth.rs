//! Makes a veth pair between two network namespaces, by rtnetlink.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use std::fs::File;
use std::io;

/// Message type and flags of `linux/rtnetlink.h` and `linux/netlink.h`.
const NEW_LINK: u16 = 16;
/// `NLM_F_REQUEST | NLM_F_ACK | NLM_F_EXCL | NLM_F_CREATE`.
const FLAGS: u16 = 0x1 | 0x4 | 0x200 | 0x400;
/// Attributes of `linux/if_link.h` and `linux/veth.h`.
const NAME: u16 = 3;
const LINK_INFO: u16 = 18;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const PEER: u16 = 1;
const NAMESPACE: u16 = 28;
/// `struct ifinfomsg`: all zero: the attributes say what is asked for.
const INTERFACE: [u8; 16] = [0; 16];
/// Size of `struct nlmsghdr`, bytes.
const HEADER: usize = 16;

/// Makes a pair: `own` here, `other` in that network namespace.
pub(super) fn make(own: &str, other: &str, namespace: &File) -> io::Result<()> {
    let netlink: OwnedFd = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?;
    send(
        &netlink,
        &request(own, other, namespace.as_raw_fd()),
        SendFlags::empty(),
    )?;
    let mut reply = [0; 4096];
    let (_, length) = recv(&netlink, &mut reply, RecvFlags::empty())?;
    // An acknowledgement is an error of number 0.
    let error = reply
        .get(..length)
        .and_then(|reply| reply.get(HEADER..HEADER + 4))
        .and_then(|n| n.try_into().ok());
    match error.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::other("a netlink reply that is too short")),
    }
}

fn request(own: &str, other: &str, namespace: i32) -> Vec<u8> {
    let of_other = [
        attribute(NAME, &text(other)),
        attribute(NAMESPACE, &namespace.to_ne_bytes()),
    ]
    .concat();
    let peer = attribute(PEER, &[INTERFACE.to_vec(), of_other].concat());
    let info = [attribute(INFO_KIND, b"veth"), attribute(INFO_DATA, &peer)].concat();
    let body = [
        INTERFACE.to_vec(),
        attribute(NAME, &text(own)),
        attribute(LINK_INFO, &info),
    ]
    .concat();
    let mut message = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend(
        NEW_LINK
            .to_ne_bytes()
            .into_iter()
            .chain(FLAGS.to_ne_bytes()),
    );
    // Sequence and sender: there is one request.
    message.extend([0; 8]);
    message.extend(body);
    message
}

fn text(name: &str) -> Vec<u8> {
    name.bytes().chain([0]).collect()
}

/// `struct nlattr` with its data, filled up to a multiple of four bytes.
fn attribute(kind: u16, data: &[u8]) -> Vec<u8> {
    let length = 4 + data.len();
    let mut bytes = (length as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(data);
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_filled_up_and_nested() {
        assert_eq!(attribute(3, b"ab\0"), [7, 0, 3, 0, b'a', b'b', 0, 0]);
        let message = request("a", "b", 5);
        assert_eq!(
            message.len() as u32,
            u32::from_ne_bytes(message[..4].try_into().unwrap())
        );
        assert!(message.windows(4).any(|bytes| bytes == b"veth") && message.len() % 4 == 0);
    }
}
