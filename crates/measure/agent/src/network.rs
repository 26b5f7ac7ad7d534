//! Configures a guest's network card, for a network share, a command, or measuring it.

use crate::devices::wait_for;
use std::fs;
use std::io;
use std::mem;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use vmtax_wire::{NET_ADDRESS, NET_MAC, NET_MASK, NET_PARAMETER};

/// Sets the address of the card with this hardware address, and enables it.
pub(crate) fn configure(mac: &str, address: Ipv4Addr, mask: Ipv4Addr) -> Result<(), String> {
    let name = wait_for(|| card(mac)).ok_or_else(|| format!("no network card '{mac}' appeared"))?;
    // Any socket takes these requests.
    let socket =
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(|e| format!("a socket: {e}"))?;
    let failed =
        |what: &'static str| move |e: io::Error| format!("{what} of the network card: {e}");
    let mut request = request(&name);
    request.ifr_ifru.ifru_addr = plain(address);
    ioctl(&socket, libc::SIOCSIFADDR, &mut request).map_err(failed("the address"))?;
    request.ifr_ifru.ifru_netmask = plain(mask);
    ioctl(&socket, libc::SIOCSIFNETMASK, &mut request).map_err(failed("the mask"))?;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    ioctl(&socket, libc::SIOCSIFFLAGS, &mut request).map_err(failed("enabling"))
}

/// Sets the default route.
pub(crate) fn route_all(gateway: Ipv4Addr) -> Result<(), String> {
    let socket =
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(|e| format!("a socket: {e}"))?;
    // SAFETY: all of it are numbers and one pointer, for which zero is a value.
    let mut route: libc::rtentry = unsafe { mem::zeroed() };
    route.rt_dst = plain(Ipv4Addr::UNSPECIFIED);
    route.rt_genmask = plain(Ipv4Addr::UNSPECIFIED);
    route.rt_gateway = plain(gateway);
    route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
    // SAFETY: the descriptor is open, and the request reads a whole `rtentry`, which this is.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCADDRT as _, &raw const route) } {
        0 => Ok(()),
        _ => Err(format!(
            "the route by {gateway}: {}",
            io::Error::last_os_error()
        )),
    }
}

/// Enables the loopback device.
pub(crate) fn loopback() -> Result<(), String> {
    let socket =
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(|e| format!("a socket: {e}"))?;
    let mut request = request("lo");
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    ioctl(&socket, libc::SIOCSIFFLAGS, &mut request).map_err(|e| format!("enabling lo: {e}"))
}

/// The card with the address that the host gave it; a guest's kernel may have other interfaces.
fn card(mac: &str) -> Option<String> {
    let is_ours = |entry: &fs::DirEntry| {
        fs::read_to_string(entry.path().join("address"))
            .is_ok_and(|address| address.trim_end() == mac)
    };
    fs::read_dir("/sys/class/net")
        .ok()?
        .flatten()
        .find(is_ours)?
        .file_name()
        .into_string()
        .ok()
}

/// Configures the card that is measured; `None` where the guest was given none.
pub(crate) fn measured() -> Option<Result<SocketAddrV4, String>> {
    // The controller names the echo server on the kernel's command line: a card appears a moment after its driver.
    let line = fs::read_to_string("/proc/cmdline").ok()?;
    let named = |word: &str| {
        word.strip_prefix(NET_PARAMETER)?
            .strip_prefix('=')
            .map(str::to_owned)
    };
    let echo = line.split_whitespace().find_map(named)?;
    let echo = echo
        .parse()
        .map_err(|_| format!("{NET_PARAMETER}={echo} is no address with a port"));
    Some(echo.and_then(|echo| configure(NET_MAC, NET_ADDRESS, NET_MASK).map(|()| echo)))
}

fn request(name: &str) -> libc::ifreq {
    // SAFETY: all of it are numbers and arrays of numbers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // One less than there is room for: the last stays zero.
    let room = request.ifr_name.len() - 1;
    for (place, byte) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    request
}

fn plain(address: Ipv4Addr) -> libc::sockaddr {
    // Port, then address, in network order.
    let mut data = [0; 14];
    for (place, byte) in data[2..6].iter_mut().zip(address.octets()) {
        *place = byte as libc::c_char;
    }
    libc::sockaddr {
        sa_family: libc::AF_INET as libc::sa_family_t,
        sa_data: data,
    }
}

fn ioctl(socket: &UdpSocket, what: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the descriptor is open, and these requests read a whole `ifreq`, which this is.
    match unsafe { libc::ioctl(socket.as_raw_fd(), what as _, std::ptr::from_mut(request)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
