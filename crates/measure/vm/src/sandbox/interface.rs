//! Network interfaces of this thread's network namespace: addresses and flags, by ioctls, and pairs of interfaces, by rtnetlink.

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::ioctl::{Opcode, Setter, ioctl};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;

const SET_FLAGS: Opcode = 0x8914;
const SET_NAME: Opcode = 0x8923;
const SET_HARDWARE_ADDRESS: Opcode = 0x8924;
/// Request number of `SIOCSARP`, which sets an ARP entry.
const SET_NEIGHBOUR: Opcode = 0x8955;
const SET_ADDRESS: Opcode = 0x8916;
const SET_MASK: Opcode = 0x891c;
/// `TUNSETIFF` of `linux/if_tun.h`.
const SET_TUN: Opcode = 0x4004_54ca;
const UP: u8 = 1;
const FAMILY: u8 = 2;
/// Hardware type of Ethernet (`ARPHRD_ETHER`).
const ETHERNET: u8 = 1;
/// `ATF_COM | ATF_PERM`: complete, and for ever.
const PERMANENT: i32 = 0x02 | 0x04;
/// `IFF_TAP | IFF_NO_PI | IFF_VNET_HDR`: Ethernet frames, each behind the header of virtio-net, as QEMU likes them best.
const TAP: u16 = 0x0002 | 0x1000 | 0x4000;
/// Flag for several queues (`IFF_MULTI_QUEUE`).
const MULTI_QUEUE: u16 = 0x0100;
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

/// Enables an interface.
pub(crate) fn enable(name: &str) -> rustix::io::Result<()> {
    set::<SET_FLAGS>(name, &[UP])
}

/// Gives an interface another name, while it is not enabled.
pub(crate) fn rename(name: &str, other: &str) -> rustix::io::Result<()> {
    set::<SET_NAME>(name, &interface_name(other))
}

/// Gives an interface, or an alias of one (`lo:1`), an address.
pub(crate) fn set_address(name: &str, address: Ipv4Addr) -> rustix::io::Result<()> {
    set::<SET_ADDRESS>(name, &plain(address))
}

/// Gives an interface a mask.
pub(crate) fn set_mask(name: &str, mask: Ipv4Addr) -> rustix::io::Result<()> {
    set::<SET_MASK>(name, &plain(mask))
}

/// Gives an interface a hardware address, while it is not enabled.
pub(crate) fn set_mac(name: &str, mac: [u8; 6]) -> rustix::io::Result<()> {
    set::<SET_HARDWARE_ADDRESS>(name, &hardware(mac))
}

/// Tells the kernel the hardware address of an address behind an interface, so that it does not ask for it.
pub(crate) fn set_neighbor(name: &str, address: Ipv4Addr, mac: [u8; 6]) -> rustix::io::Result<()> {
    let neighbor = Neighbor {
        address: filled(&plain(address)),
        mac: filled(&hardware(mac)),
        flags: PERMANENT,
        mask: [0; 16],
        name: interface_name(name),
    };
    let socket = control_socket()?;
    // SAFETY: it reads an `arpreq`, whose size and layout this is, and writes nothing.
    unsafe { ioctl(&socket, Setter::<SET_NEIGHBOUR, Neighbor>::new(neighbor)) }
}

/// Makes an open `/dev/net/tun` a tap of this name, which lasts as long as that is open; or a further queue of one, where
/// it has several.
pub(crate) fn make_tap(tun: impl AsFd, name: &str, has_queues: bool) -> rustix::io::Result<()> {
    let flags = TAP | if has_queues { MULTI_QUEUE } else { 0 };
    let request = Request::new(name, &flags.to_ne_bytes());
    // SAFETY: it reads an `ifreq`, whose size and layout this is; what it writes are the flags and the name.
    unsafe { ioctl(tun, Setter::<SET_TUN, Request>::new(request)) }
}

/// The socket by which the kernel is told of interfaces.
fn control_socket() -> rustix::io::Result<OwnedFd> {
    socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )
}

fn set<const WHAT: Opcode>(name: &str, data: &[u8]) -> rustix::io::Result<()> {
    let socket = control_socket()?;
    let request = Request::new(name, data);
    // SAFETY: these read an `ifreq`, whose size and layout this is, and write nothing.
    unsafe { ioctl(&socket, Setter::<WHAT, Request>::new(request)) }
}

/// The bytes, followed by zeros; as many as there is room for.
fn filled<const ROOM: usize>(bytes: &[u8]) -> [u8; ROOM] {
    let mut all = [0; ROOM];
    all.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    all
}

/// The name of an interface, the last byte of which stays zero.
fn interface_name(name: &str) -> [u8; 16] {
    filled(&name.as_bytes()[..name.len().min(15)])
}

/// `struct sockaddr_in`, as far as it says anything.
fn plain(address: Ipv4Addr) -> [u8; 8] {
    let [a, b, c, d] = address.octets();
    [FAMILY, 0, 0, 0, a, b, c, d]
}

/// `struct sockaddr` of Ethernet, as far as it says anything.
fn hardware(mac: [u8; 6]) -> [u8; 8] {
    let [a, b, c, d, e, f] = mac;
    [ETHERNET, 0, a, b, c, d, e, f]
}

/// An ARP entry, the kernel's `struct arpreq`.
#[repr(C)]
struct Neighbor {
    address: [u8; 16],
    mac: [u8; 16],
    flags: i32,
    mask: [u8; 16],
    name: [u8; 16],
}

/// `struct ifreq`: a device and its setting.
#[repr(C)]
struct Request {
    name: [u8; 16],
    data: [u8; 24],
}

impl Request {
    fn new(name: &str, data: &[u8]) -> Request {
        Request {
            name: interface_name(name),
            data: filled(data),
        }
    }
}

/// Makes a veth pair: `own` here, `other` in that network namespace.
pub(crate) fn make_veth_pair(own: &str, other: &str, namespace: &File) -> io::Result<()> {
    let netlink: OwnedFd = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?;
    send(
        &netlink,
        &pair_request(own, other, namespace.as_raw_fd()),
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

/// The message that asks for such a pair.
fn pair_request(own: &str, other: &str, namespace: i32) -> Vec<u8> {
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

/// A name with the zero at its end.
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
        let message = pair_request("a", "b", 5);
        assert_eq!(
            message.len() as u32,
            u32::from_ne_bytes(message[..4].try_into().unwrap())
        );
        assert!(message.windows(4).any(|bytes| bytes == b"veth") && message.len() % 4 == 0);
    }
}
