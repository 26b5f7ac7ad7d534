//! Network interfaces of this thread's network namespace: addresses and flags.

use rustix::fd::AsFd;
use rustix::ioctl::{Opcode, Setter, ioctl};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
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

/// Enables an interface.
pub(crate) fn enable(name: &str) -> rustix::io::Result<()> {
    set::<SET_FLAGS>(name, &[UP])
}

/// Gives an interface another name, while it is not enabled.
pub(crate) fn rename(name: &str, other: &str) -> rustix::io::Result<()> {
    // The last byte of a name stays zero.
    set::<SET_NAME>(name, &other.as_bytes()[..other.len().min(15)])
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
pub(crate) fn set_neighbour(name: &str, address: Ipv4Addr, mac: [u8; 6]) -> rustix::io::Result<()> {
    let mut neighbour = Neighbour {
        address: [0; 16],
        mac: [0; 16],
        flags: PERMANENT,
        mask: [0; 16],
        name: [0; 16],
    };
    neighbour.address[..8].copy_from_slice(&plain(address));
    neighbour.mac[..8].copy_from_slice(&hardware(mac));
    neighbour.name[..15]
        .iter_mut()
        .zip(name.bytes())
        .for_each(|(to, from)| *to = from);
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: it reads an `arpreq`, whose size and layout this is, and writes nothing.
    unsafe { ioctl(&socket, Setter::<SET_NEIGHBOUR, Neighbour>::new(neighbour)) }
}

/// Makes an open `/dev/net/tun` a tap of this name, which lasts as long as that is open; or a further queue of one, where it has several.
pub(crate) fn make_tap(tun: impl AsFd, name: &str, has_queues: bool) -> rustix::io::Result<()> {
    let flags = TAP | if has_queues { MULTI_QUEUE } else { 0 };
    // SAFETY: it reads an `ifreq`, whose size and layout this is; what it writes are the flags and the name.
    unsafe {
        ioctl(
            tun,
            Setter::<SET_TUN, Request>::new(Request::of(name.as_bytes(), &flags.to_ne_bytes())),
        )
    }
}

fn set<const WHAT: Opcode>(name: &str, data: &[u8]) -> rustix::io::Result<()> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: these read an `ifreq`, whose size and layout this is, and write nothing.
    unsafe {
        ioctl(
            &socket,
            Setter::<WHAT, Request>::new(Request::of(name.as_bytes(), data)),
        )
    }
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
struct Neighbour {
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
    fn of(name: &[u8], data: &[u8]) -> Request {
        let mut request = Request {
            name: [0; 16],
            data: [0; 24],
        };
        // The last byte of a name stays zero.
        request.name[..15]
            .iter_mut()
            .zip(name)
            .for_each(|(to, from)| *to = *from);
        request
            .data
            .iter_mut()
            .zip(data)
            .for_each(|(to, from)| *to = *from);
        request
    }
}
