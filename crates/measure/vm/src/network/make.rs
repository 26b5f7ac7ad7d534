//! Makes network namespaces with sockets in them, and the ends by which a machine is connected. A thread enters them, and ends: the
//! sockets stay where they were made.

use crate::MachineError;
use crate::sandbox::interface;
use crate::sandbox::mounts::unshare;
use rustix::fd::{AsFd, OwnedFd};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use vmtax_wire::{ECHO, NET_ADDRESS, NET_MAC, NET_MASK};
use vmtax_workload::bulk_address;

/// The server's interface: the tap, its end of the veth pair, or the loopback device. Tracepoints name interfaces alone
/// and not their namespace, so another vmtax on this host must not have one of this name.
pub(super) fn outside() -> String {
    own_name('o')
}

/// The client's end of the veth pair.
fn inside() -> String {
    own_name('i')
}

/// A name that no other process gives: 15 bytes at most, as the kernel's are (`IFNAMSIZ`).
fn own_name(end: char) -> String {
    // A PID has seven digits at most.
    format!("vmtax{end}{}", std::process::id())
}

/// The device by which taps are made.
const TUN: &str = "/dev/net/tun";
/// The loopback device of a new namespace.
const LOOPBACK: &str = "lo";
/// Number of ports that are tried, at most, until one is free for UDP and for TCP.
const PORTS: u32 = 100;

/// Network of an echo server, by its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    /// A tap, for a guest.
    Tap { queues: usize },
    /// A veth pair between two namespaces.
    Veth,
    /// The loopback device of a namespace. It is given the server's name, so that host events tell it from the host's own.
    Loopback,
}

/// The sockets of an echo server, and the end of what it is connected by.
pub(super) struct Made {
    pub udp: OwnedFd,
    /// TCP socket of the echo server, then UDP and TCP for bulk data: those of streams listen.
    pub others: Vec<OwnedFd>,
    /// Where the echo server listens.
    pub echo: SocketAddrV4,
    /// The tap; of a veth pair the namespace with the other end; of a loopback device its namespace.
    pub end: NetworkEnd,
}

/// Makes a network in namespaces of its own.
///
/// # Errors
/// [`MachineError::NoNamespace`] without the rights, [`MachineError::NoNetwork`] naming what else is missing.
pub(super) fn make(network: Network) -> Result<Made, MachineError> {
    let making = std::thread::Builder::new().name("network".to_owned());
    let thread = making
        .spawn(move || match network {
            Network::Tap { queues } => behind_tap(queues),
            Network::Veth => behind_veth(),
            Network::Loopback => behind_loopback(),
        })
        .map_err(|e| MachineError::system("starting a thread", e))?;
    thread.join().unwrap_or_else(|_| {
        Err(MachineError::NoNetwork(
            "the thread that makes it ended early".to_owned(),
        ))
    })
}

fn behind_tap(queues: usize) -> Result<Made, MachineError> {
    enter_new()?;
    let queue = || {
        let tun = OpenOptions::new().read(true).write(true).open(TUN);
        let tun = tun.map_err(|e| {
            let fix = "load the kernel module tun: `sudo modprobe tun`";
            failed(&format!("opening {TUN}"), &e, fix)
        })?;
        let tap = interface::make_tap(&tun, &outside(), queues > 1);
        tap.map_err(|e| {
            let fix = "run vmtax as root, outside of a container";
            failed(&format!("making a tap by {TUN}"), &e.into(), fix)
        })?;
        Ok(tun.into())
    };
    let tap = (0..queues)
        .map(|_| queue())
        .collect::<Result<_, MachineError>>()?;
    interface::set_mac(&outside(), mac_bytes(HOST_MAC))
        .map_err(|e| MachineError::system(format!("configuring {}", outside()), e))?;
    configure(&outside(), *ECHO.ip())?;
    // The micro-guest answers no request for its hardware address; the other guests need none.
    interface::set_neighbor(&outside(), NET_ADDRESS, mac_bytes(NET_MAC))
        .map_err(|e| MachineError::system(format!("naming the guest to {}", outside()), e))?;
    listening(ECHO, NetworkEnd::Tap(tap))
}

fn behind_loopback() -> Result<Made, MachineError> {
    enter_new()?;
    let name = outside();
    interface::rename(LOOPBACK, &name)
        .and_then(|()| interface::enable(&name))
        .map_err(|e| MachineError::system(format!("configuring {LOOPBACK}"), e))?;
    let namespace = own_namespace()?;
    listening(
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, ECHO.port()),
        NetworkEnd::Namespace(namespace.into()),
    )
}

/// A server on the host's loopback device, at a free port: without rights, nothing of its own can be made.
pub(super) fn on_host_loopback() -> Result<Made, MachineError> {
    for _ in 0..PORTS {
        let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|udp| Ok((udp.local_addr()?.port(), udp)));
        let (port, udp) =
            free.map_err(|e| MachineError::system("binding the echo server to 127.0.0.1", e))?;
        let echo = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        // Somebody may listen there by TCP, or at the next port.
        if let Ok(others) = others(echo) {
            return Ok(Made {
                udp: udp.into(),
                others,
                echo,
                end: NetworkEnd::Host,
            });
        }
    }
    let why = "ports of 127.0.0.1 were tried: none was free for UDP and TCP together with the next one; try again";
    Err(MachineError::NoNetwork(format!("{PORTS} {why}")))
}

fn behind_veth() -> Result<Made, MachineError> {
    enter_new()?;
    let server = own_namespace()?;
    enter_new()?;
    let client = own_namespace()?;
    interface::make_veth_pair(&inside(), &outside(), &server).map_err(|e| {
        let fix = "load the kernel module veth: `sudo modprobe veth`";
        failed("making a veth pair", &e, fix)
    })?;
    configure(&inside(), NET_ADDRESS)?;
    move_into_link_name_space(server.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|e| MachineError::system("returning to a network namespace", e))?;
    configure(&outside(), *ECHO.ip())?;
    listening(ECHO, NetworkEnd::Namespace(client.into()))
}

/// A network namespace of this thread's own, without IPv6: its discovery of neighbors would add packets.
fn enter_new() -> Result<(), MachineError> {
    unshare(UnshareFlags::NEWNET).map_err(|e| MachineError::NoNamespace { source: e.into() })?;
    // A kernel without IPv6 has no such files.
    for of in ["all", "default"] {
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{of}/disable_ipv6"), "1");
    }
    Ok(())
}

fn own_namespace() -> Result<File, MachineError> {
    File::open("/proc/thread-self/ns/net")
        .map_err(|e| MachineError::system("opening a network namespace", e))
}

fn configure(name: &str, address: Ipv4Addr) -> Result<(), MachineError> {
    interface::set_address(name, address)
        .and_then(|()| interface::set_mask(name, NET_MASK))
        .and_then(|()| interface::enable(name))
        .map_err(|e| MachineError::system(format!("configuring {name}"), e))
}

/// The echo server's sockets in this thread's namespace.
fn listening(echo: SocketAddrV4, end: NetworkEnd) -> Result<Made, MachineError> {
    let bound = |e| MachineError::system(format!("binding the echo server to {echo}"), e);
    let udp = UdpSocket::bind(echo).map_err(bound)?.into();
    Ok(Made {
        udp,
        others: others(echo).map_err(bound)?,
        echo,
        end,
    })
}

/// The sockets besides the echo server's for UDP, as [`vmtax_workload::serve`] takes them.
fn others(echo: SocketAddrV4) -> io::Result<Vec<OwnedFd>> {
    let bulk = bulk_address(echo);
    Ok(vec![
        TcpListener::bind(echo)?.into(),
        UdpSocket::bind(bulk)?.into(),
        TcpListener::bind(bulk)?.into(),
    ])
}

/// The error of something that is missing, with what helps.
fn failed(doing: &str, error: &io::Error, fix: &str) -> MachineError {
    MachineError::NoNetwork(format!("{doing}: {error}; {fix}"))
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::time::Duration;

    /// The interfaces that this process's network has.
    fn interfaces() -> Vec<String> {
        let entries = fs::read_dir("/sys/class/net").unwrap().flatten();
        entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    #[ignore = "needs root"]
    fn a_veth_pair_carries_packets_between_namespaces_and_the_host_sees_none_of_it() {
        let (before, own) = (
            interfaces(),
            fs::metadata("/proc/thread-self/ns/net").unwrap().ino(),
        );
        let Made {
            udp,
            others: _,
            echo,
            end,
        } = make(Network::Veth).unwrap();
        let end = end.descriptors().pop().unwrap();
        let server = UdpSocket::from(udp);
        server
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let asked = std::thread::Builder::new().spawn(move || {
            move_into_link_name_space(end.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            let client = UdpSocket::bind("0.0.0.0:0").unwrap();
            client.send_to(b"hello", echo).unwrap();
            client.local_addr().unwrap()
        });
        let asked = asked.unwrap();
        let mut buffer = [0; 16];
        let (bytes, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!(
            (&buffer[..bytes], from.ip()),
            (&b"hello"[..], NET_ADDRESS.into())
        );
        asked.join().unwrap();
        assert_eq!(
            (
                interfaces(),
                fs::metadata("/proc/thread-self/ns/net").unwrap().ino()
            ),
            (before, own)
        );
    }

    #[test]
    fn an_interface_has_a_name_that_the_kernel_takes_whole() {
        for name in [outside(), inside()] {
            assert!(
                name.len() < 16 && name.contains(&std::process::id().to_string()),
                "{name}"
            );
        }
        assert_ne!(outside(), inside());
    }

    #[test]
    #[ignore = "needs root"]
    fn a_tap_and_a_loopback_device_are_in_namespaces_of_their_own() {
        let before = interfaces();
        let made =
            [Network::Tap { queues: 1 }, Network::Loopback].map(|network| make(network).unwrap());
        assert_eq!(interfaces(), before);
        drop(made);
        let made = make(Network::Tap { queues: 3 }).unwrap();
        assert!(matches!(&made.end, NetworkEnd::Tap(queues) if queues.len() == 3));
        drop(made);
    }

    #[test]
    fn without_rights_a_server_has_one_port_of_the_hosts_loopback_device() {
        let Made {
            udp,
            others,
            echo,
            end,
        } = on_host_loopback().unwrap();
        assert!(echo.ip().is_loopback() && end.descriptors().is_empty());
        let tcp = TcpListener::from(others.into_iter().next().unwrap());
        assert_eq!(
            UdpSocket::from(udp).local_addr().unwrap(),
            tcp.local_addr().unwrap()
        );
    }
}
