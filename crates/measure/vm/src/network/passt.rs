//! passt, which connects a guest to the sockets of a network namespace: a process of its own, without rights, which QEMU reaches
//! by a stream of packets. <https://passt.top>

use super::link::{HOST_MAC, mac_bytes};
use crate::MachineError;
use crate::process::child::{Child, FIRST_DESCRIPTOR, Start};
use crate::process::log::log_tail;
use crate::process::watchdog::Supervision;
use crate::sandbox::namespaces::Namespaces;
use crate::sandbox::rights::{Rights, RightsOfUser, unprivileged_user};
use crate::setup::Setup;
use rustix::fd::OwnedFd;
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use vmtax_wire::{ECHO, NET_ADDRESS, NET_MAC, NET_MASK};

/// How long it may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an ARP packet, with the header of Ethernet.
const ARP_BYTES: u32 = 42;

/// Starts passt in a network namespace, whose loopback device of this name the guest reaches at the echo server's address. Gives
/// QEMU's end of its stream, once it answers.
pub(super) fn start(setup: &Setup<'_>, namespace: OwnedFd, loopback: &str) -> Result<(Child, OwnedFd), MachineError> {
    let program = vmtax_host::find_program("passt").ok_or_else(|| {
        let fix = "`apt-get install passt`, or use backend=user";
        MachineError::NoNetwork(format!("backend=passt needs passt, which is not installed: {fix}"))
    })?;
    let (ours, theirs) = UnixStream::pair().map_err(|e| MachineError::system("making a socket pair", e))?;
    let stream = FIRST_DESCRIPTOR.to_string();
    let (address, mask, gateway) = (NET_ADDRESS.to_string(), NET_MASK.to_string(), ECHO.ip().to_string());
    let program = program.display().to_string();
    let place = ["--fd", &stream, "--ipv4-only", "--interface", loopback];
    let guest = ["--address", &address, "--netmask", &mask, "--gateway", &gateway, "--mac-addr", HOST_MAC];
    let no_servers = ["--no-dhcp", "--dns", "none", "--search", "none"];
    let command = [[&program, "--foreground"].as_slice(), &place, &guest, &no_servers].concat();
    let log = setup.log.join("passt.log");
    let user = unprivileged_user().map(|id| RightsOfUser { id, ..RightsOfUser::default() });
    let mut child = Child::spawn(Start {
        command: command.into_iter().map(str::to_owned).collect(),
        stdin: None,
        descriptors: vec![theirs.into(), namespace],
        log: &log,
        supervision: Supervision {
            namespaces: Namespaces { network_in: Some(FIRST_DESCRIPTOR + 1), ..Namespaces::default() },
            rights: Some(Rights { user, no_set_id: false }),
            removed: vec![setup.scratch.folder().to_path_buf()],
            ..Supervision::default()
        },
    })?;
    match answers(&ours) {
        Ok(()) => Ok((child, ours.into())),
        Err(error) => {
            child.kill();
            let (said, log) = (log_tail(&log), log.display());
            let fix = "use backend=user, or another passt";
            Err(MachineError::NoNetwork(format!("passt does not answer ({error}); {fix}. Its log is {log}:\n{said}")))
        }
    }
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
    let header = [ARP_BYTES.to_be_bytes().as_slice(), &[0xff; 6], &own, &[8, 6]].concat();
    [&header[..], &REQUEST, &own, &octets(&NET_ADDRESS), &[0; 6], &octets(ECHO.ip())].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_one_whole_packet() {
        let request = arp_request();
        assert_eq!(request.len(), 4 + ARP_BYTES as usize);
        assert!(request.ends_with(&[0, 0, 0, 0, 0, 0, 10, 0, 3, 2]), "{request:x?}");
        assert_eq!(request[10..16], [0x52, 0x54, 0, 0x76, 0x6d, 0x79]);
    }
}
