//! Makes network namespaces with sockets in them. A thread enters them, and ends: the sockets stay where they were made.

use super::veth;
use crate::MachineError;
use crate::sandbox::interface;
use crate::sandbox::mounts::unshare;
use rustix::fd::{AsFd, OwnedFd};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{TcpListener, UdpSocket};
use vmtax_wire::{ECHO, NET_ADDRESS, NET_MASK};

/// The server's interface: the tap, or its end of the veth pair.
pub(super) const OUTSIDE: &str = "vmtax0";
/// The client's end of the veth pair.
const INSIDE: &str = "vmtax1";
const TUN: &str = "/dev/net/tun";

/// The sockets of an echo server, and the end of what it is connected by.
pub(super) struct Made {
    pub udp: OwnedFd,
    /// It listens.
    pub tcp: OwnedFd,
    /// The tap; of a veth pair the network namespace with the other end.
    pub end: OwnedFd,
}

/// Makes the network of a guest, or natively of two namespaces.
pub(super) fn make(is_guest: bool) -> Result<Made, MachineError> {
    let making = std::thread::Builder::new().name("network".to_owned());
    let thread = making
        .spawn(move || if is_guest { behind_tap() } else { behind_veth() })
        .map_err(|e| MachineError::system("starting a thread", e))?;
    thread.join().unwrap_or_else(|_| Err(MachineError::NoNetwork("the thread that makes it ended early".to_owned())))
}

fn behind_tap() -> Result<Made, MachineError> {
    enter_new()?;
    let tun = OpenOptions::new().read(true).write(true).open(TUN);
    let tun = tun.map_err(|e| failed("opening", TUN, &e, "load the kernel module tun: `sudo modprobe tun`"))?;
    let tap = interface::make_tap(&tun, OUTSIDE);
    tap.map_err(|e| failed("making a tap by", TUN, &e.into(), "run vmtax as root, outside of a container"))?;
    let (udp, tcp) = sockets()?;
    Ok(Made { udp, tcp, end: tun.into() })
}

fn behind_veth() -> Result<Made, MachineError> {
    enter_new()?;
    let server = own_namespace()?;
    enter_new()?;
    let client = own_namespace()?;
    veth::make(INSIDE, OUTSIDE, &server)
        .map_err(|e| failed("making", "a veth pair", &e, "load the kernel module veth: `sudo modprobe veth`"))?;
    interface::set_address(INSIDE, NET_ADDRESS)
        .and_then(|()| interface::set_mask(INSIDE, NET_MASK))
        .and_then(|()| interface::enable(INSIDE))
        .map_err(|e| MachineError::system(format!("configuring {INSIDE}"), e))?;
    move_into_link_name_space(server.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|e| MachineError::system("returning to a network namespace", e))?;
    let (udp, tcp) = sockets()?;
    Ok(Made { udp, tcp, end: client.into() })
}

/// A network namespace of this thread's own, without IPv6: its discovery of neighbours would add packets.
fn enter_new() -> Result<(), MachineError> {
    unshare(UnshareFlags::NEWNET).map_err(|e| {
        failed(
            "making",
            "a network namespace",
            &e.into(),
            "run vmtax as root; without root a guest's network could only be QEMU's own (user, slirp), which shows neither tap \
             nor the host's stack",
        )
    })?;
    // A kernel without IPv6 has no such files.
    for of in ["all", "default"] {
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{of}/disable_ipv6"), "1");
    }
    Ok(())
}

fn own_namespace() -> Result<File, MachineError> {
    File::open("/proc/thread-self/ns/net").map_err(|e| MachineError::system("opening a network namespace", e))
}

/// The echo server's sockets, at its address on its interface.
fn sockets() -> Result<(OwnedFd, OwnedFd), MachineError> {
    interface::set_address(OUTSIDE, *ECHO.ip())
        .and_then(|()| interface::set_mask(OUTSIDE, NET_MASK))
        .and_then(|()| interface::enable(OUTSIDE))
        .map_err(|e| MachineError::system(format!("configuring {OUTSIDE}"), e))?;
    let bound = |e| MachineError::system(format!("binding the echo server to {ECHO}"), e);
    Ok((UdpSocket::bind(ECHO).map_err(bound)?.into(), TcpListener::bind(ECHO).map_err(bound)?.into()))
}

fn failed(doing: &str, what: &str, error: &io::Error, fix: &str) -> MachineError {
    MachineError::NoNetwork(format!("{doing} {what}: {error}; {fix}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::time::Duration;

    /// The interfaces that this process's network has.
    fn interfaces() -> Vec<String> {
        let entries = fs::read_dir("/sys/class/net").unwrap().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    #[ignore = "needs root"]
    fn a_veth_pair_carries_packets_between_namespaces_and_the_host_sees_none_of_it() {
        let (before, own) = (interfaces(), fs::metadata("/proc/thread-self/ns/net").unwrap().ino());
        let Made { udp, tcp: _, end } = make(false).unwrap();
        let server = UdpSocket::from(udp);
        server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let asked = std::thread::Builder::new().spawn(move || {
            move_into_link_name_space(end.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            let client = UdpSocket::bind("0.0.0.0:0").unwrap();
            client.send_to(b"hello", ECHO).unwrap();
            client.local_addr().unwrap()
        });
        let asked = asked.unwrap();
        let mut buffer = [0; 16];
        let (bytes, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..bytes], from.ip()), (&b"hello"[..], NET_ADDRESS.into()));
        asked.join().unwrap();
        assert_eq!((interfaces(), fs::metadata("/proc/thread-self/ns/net").unwrap().ino()), (before, own));
    }

    #[test]
    #[ignore = "needs root"]
    fn a_tap_is_in_a_namespace_of_its_own() {
        let before = interfaces();
        let made = make(true).unwrap();
        assert_eq!(interfaces(), before);
        drop(made);
    }
}
