//! passt, which connects a guest to the sockets of a network namespace: a process of its own, without rights, to which QEMU passes
//! packets by a stream, or the guest's memory and queues by vhost-user. <https://passt.top>

use super::make::{HOST_MAC, mac_bytes};
use crate::MachineError;
use crate::process::child::{Child, FIRST_DESCRIPTOR, Start};
use crate::process::log::log_tail;
use crate::process::watchdog::Supervision;
use crate::sandbox::Namespaces;
use crate::sandbox::rights::Rights;
use crate::setup::Setup;
use rustix::fd::OwnedFd;
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use vmtax_model::NetBackend;
use vmtax_vmm::Peer;
use vmtax_wire::{ECHO, NET_ADDRESS, NET_MAC, NET_MASK};

/// Time limit for the start of passt.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which vmtax checks whether the VMM has connected.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Time limit for passt to end after its VMM has.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// Name of the file with what passt prints.
const LOG: &str = "passt.log";
/// Bytes of an ARP packet, with the header of Ethernet.
const ARP_BYTES: u32 = 42;

/// Starts passt in a network namespace, whose loopback device of this name the guest reaches at the echo server's address. Gives
/// QEMU's end of its stream, once it answers.
pub(super) fn start(
    setup: &Setup<'_>,
    namespace: OwnedFd,
    loopback: &str,
) -> Result<(Child, OwnedFd), MachineError> {
    let (ours, theirs) =
        UnixStream::pair().map_err(|e| MachineError::system("making a socket pair", e))?;
    let mut child = spawn(setup, namespace, loopback, theirs, NetBackend::Passt)?;
    if let Err(error) = answers(&ours) {
        child.kill();
        return Err(failure(setup, &format!("does not answer ({error})")));
    }
    Ok((child, ours.into()))
}

/// A socket to which QEMU connects, to hand over the guest's memory and queues: QEMU takes none that is connected already.
#[derive(Debug)]
pub(super) struct VhostUser {
    listener: UnixListener,
    namespace: OwnedFd,
}

impl VhostUser {
    /// Makes it, with its abstract name, where this host's passt can be a vhost-user back end.
    pub fn prepare(
        namespace: OwnedFd,
        loopback: &str,
    ) -> Result<(VhostUser, String), MachineError> {
        let failed = |e| MachineError::system("making a socket for vhost-user", e);
        if !vmtax_host::passt_has_vhost_user(&program(NetBackend::VhostUser)?) {
            let error =
                "backend=vhost-user needs a passt of December 2024 or later: use backend=passt";
            return Err(MachineError::NoNetwork(error.to_owned()));
        }
        let name = format!(
            "{loopback}-{}",
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_nanos()
        );
        let address = SocketAddr::from_abstract_name(&name).map_err(failed)?;
        let listener = UnixListener::bind_addr(&address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok((
            VhostUser {
                listener,
                namespace,
            },
            name,
        ))
    }

    /// Starts passt once this VMM has connected, which then waits for passt to answer. Any user may connect to an abstract
    /// name: others are turned away. `None` where the VMM ended instead.
    pub fn connect(
        self,
        setup: &Setup<'_>,
        loopback: &str,
        vmm: &mut Child,
    ) -> Result<Option<Child>, MachineError> {
        let deadline = Instant::now() + setup.guest.boot_timeout();
        while Instant::now() < deadline {
            match self.listener.accept() {
                Ok((stream, _))
                    if Peer::of(&stream).is_some_and(|peer| peer.is_in_session(vmm.session())) =>
                {
                    return spawn(
                        setup,
                        self.namespace,
                        loopback,
                        stream,
                        NetBackend::VhostUser,
                    )
                    .map(Some);
                }
                Ok(_) => {}
                Err(e) if e.kind() != io::ErrorKind::WouldBlock => {
                    return Err(MachineError::system(
                        "waiting for QEMU to connect to passt",
                        e,
                    ));
                }
                Err(_) if vmm.wait(POLL_INTERVAL).is_some() => return Ok(None),
                Err(_) => {}
            }
        }
        let log = setup.log.join("qemu.log");
        Err(MachineError::NoNetwork(format!(
            "QEMU does not connect to passt: see {}",
            log.display()
        )))
    }
}

/// The process, with its end of a socket.
fn spawn(
    setup: &Setup<'_>,
    namespace: OwnedFd,
    loopback: &str,
    socket: UnixStream,
    backend: NetBackend,
) -> Result<Child, MachineError> {
    let mut command = vec![program(backend)?.display().to_string()];
    command.extend(arguments(loopback, backend));
    socket
        .set_nonblocking(false)
        .map_err(|e| MachineError::system("preparing passt's socket", e))?;
    Child::spawn(Start {
        command,
        stdin: None,
        descriptors: vec![socket.into(), namespace],
        log: &setup.log.join(LOG),
        supervision: Supervision {
            namespaces: Namespaces {
                network_in: Some(FIRST_DESCRIPTOR + 1),
                ..Namespaces::default()
            },
            rights: Some(Rights::of_no_one(false)),
            removed: vec![setup.scratch.folder().to_path_buf()],
            ..Supervision::default()
        },
    })
}

/// The arguments of passt, whose end of the socket is the first descriptor that it is given.
fn arguments(loopback: &str, backend: NetBackend) -> Vec<String> {
    let vhost = (backend == NetBackend::VhostUser).then_some("--vhost-user");
    let descriptor = FIRST_DESCRIPTOR.to_string();
    let (address, mask) = (NET_ADDRESS.to_string(), NET_MASK.to_string());
    let gateway = ECHO.ip().to_string();
    let place = ["--fd", &descriptor, "--ipv4-only", "--interface", loopback];
    let guest = ["--address", &address, "--netmask", &mask];
    let server = ["--gateway", &gateway, "--mac-addr", HOST_MAC];
    let no_servers = ["--no-dhcp", "--dns", "none", "--search", "none"];
    let all = ["--foreground"].into_iter().chain(vhost).chain(place);
    all.chain(guest)
        .chain(server)
        .chain(no_servers)
        .map(str::to_owned)
        .collect()
}

/// Returns the path of passt's executable.
fn program(backend: NetBackend) -> Result<PathBuf, MachineError> {
    vmtax_host::find_program("passt").ok_or_else(|| {
        let (name, fix): (&str, _) = (
            backend.into(),
            "`apt-get install passt` (Fedora: `dnf install passt`; Arch: `pacman -S passt`), or use backend=user",
        );
        MachineError::NoNetwork(format!(
            "backend={name} needs passt, which is not installed: {fix}"
        ))
    })
}

/// Why there is no network: what passt did, and the end of its log.
fn failure(setup: &Setup<'_>, what: &str) -> MachineError {
    let log = setup.log.join(LOG);
    let (said, log) = (log_tail(&log), log.display());
    let fix = "use backend=user, or another passt";
    MachineError::NoNetwork(format!("passt {what}; {fix}. Its log is {log}:\n{said}"))
}

/// Why there is no network where passt has ended with an error by itself; it ends in good order when its VMM does.
pub(super) fn ended(child: &mut Child, setup: &Setup<'_>) -> Option<MachineError> {
    let status = child.wait(END_TIMEOUT).filter(|status| *status != 0)?;
    Some(failure(
        setup,
        &format!("ended with status {status} while the guest booted"),
    ))
}

/// Asks passt for the hardware address of the echo server, as a guest would, and waits for the answer.
fn answers(mut stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(START_TIMEOUT))?;
    stream.write_all(&arp_request())?;
    let mut answer = [0; 4 + ARP_BYTES as usize];
    stream.read_exact(&mut answer)?;
    stream.set_read_timeout(None)
}

/// An ARP request (RFC 826) for the echo server's address, behind its length.
fn arp_request() -> Vec<u8> {
    // Of Ethernet and IPv4, with their lengths; a request.
    const REQUEST: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 1];
    let own = mac_bytes(NET_MAC);
    let octets = |address: &Ipv4Addr| address.octets();
    let header = [
        ARP_BYTES.to_be_bytes().as_slice(),
        &[0xff; 6],
        &own,
        &[8, 6],
    ]
    .concat();
    [
        &header[..],
        &REQUEST,
        &own,
        &octets(&NET_ADDRESS),
        &[0; 6],
        &octets(ECHO.ip()),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_one_whole_packet() {
        let request = arp_request();
        assert_eq!(request.len(), 4 + ARP_BYTES as usize);
        assert!(
            request.ends_with(&[0, 0, 0, 0, 0, 0, 10, 0, 3, 2]),
            "{request:x?}"
        );
        assert_eq!(request[10..16], [0x52, 0x54, 0, 0x76, 0x6d, 0x79]);
    }
}
