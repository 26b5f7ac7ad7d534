//! The side of the network workloads that answers: an echo server (RFC 862), UDP and TCP, and at the port after its own what takes
//! and gives bulk data.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// The descriptors that it is started with: the echo server's UDP socket is standard input; the echo server's TCP socket,
/// and UDP and TCP sockets for bulk data follow the watchdog's.
const ECHO_UDP: RawFd = 0;
const ECHO_TCP: RawFd = 4;
const BULK_UDP: RawFd = 5;
const BULK_TCP: RawFd = 6;
/// Connections to the echo server that are served at once, by a thread each.
pub(crate) const MAX_CONNECTIONS: u64 = 64;
/// Connections for bulk data that are served at once: one, while another ends.
const BULK_CONNECTIONS: u64 = 2;

/// Number of the server's threads.
pub const SERVER_THREADS: u64 = 2 + MAX_CONNECTIONS + BULK_CONNECTIONS;

/// Where the server of this echo server takes and gives bulk data.
pub const fn bulk_address(echo: SocketAddrV4) -> SocketAddrV4 {
    SocketAddrV4::new(*echo.ip(), echo.port().wrapping_add(1))
}

/// Answers on the sockets that this process was started with until it is ended. A thread waits for each UDP socket, and as many as
/// there may be connections for each TCP socket, so that an answer takes a wake-up and two system calls and nothing else.
///
/// # Errors
/// When a descriptor is no such socket.
pub fn serve() -> io::Result<()> {
    let (echo_udp, echo_tcp) = (opened(ECHO_UDP)?.into(), opened(ECHO_TCP)?.into());
    let (bulk_udp, bulk_tcp) = (opened(BULK_UDP)?.into(), opened(BULK_TCP)?.into());

    accept("echo-tcp", MAX_CONNECTIONS, &echo_tcp, echo_stream)?;
    accept("bulk-tcp", BULK_CONNECTIONS, &bulk_tcp, bulk_stream)?;
    let counter = std::thread::Builder::new().name("bulk-udp".to_owned());
    counter.spawn(move || count_datagrams(&bulk_udp))?;
    echo_datagrams(&echo_udp)
}

/// Connections are served by the thread that accepts them.
fn accept(
    name: &str,
    connections: u64,
    listener: &TcpListener,
    serve: fn(TcpStream) -> io::Result<()>,
) -> io::Result<()> {
    use io::ErrorKind::{ConnectionAborted, Interrupted};
    for _ in 0..connections {
        let listener = listener.try_clone()?;
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread.spawn(move || {
            for stream in listener.incoming() {
                match stream {
                    Ok(stream) => drop(serve(stream)),
                    Err(e) if matches!(e.kind(), Interrupted | ConnectionAborted) => {}
                    // It would fail again at once.
                    Err(_) => return,
                }
            }
        })?;
    }
    Ok(())
}

/// A copy of a descriptor that this process was started with.
fn opened(descriptor: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl takes any number, and fails for one that is no descriptor.
    if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } < 0 {
        let why =
            format!("descriptor {descriptor} is not open: only vmtax itself starts this server");
        return Err(io::Error::new(io::ErrorKind::NotConnected, why));
    }
    // SAFETY: it is open, as was just seen, and nothing here closes it.
    unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()
}

/// A server in threads of this process, for tests: at any port for the echo server, and the one after it.
#[cfg(test)]
pub(crate) fn in_this_process() -> SocketAddrV4 {
    use std::net::{Ipv4Addr, SocketAddr};
    loop {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let SocketAddr::V4(echo) = udp.local_addr().unwrap() else {
            unreachable!("it was bound to an IPv4 address")
        };
        let bulk = bulk_address(echo);
        let (Ok(tcp), Ok(bulk_udp), Ok(bulk_tcp)) = (
            TcpListener::bind(echo),
            UdpSocket::bind(bulk),
            TcpListener::bind(bulk),
        ) else {
            continue;
        };
        accept("echo-tcp", MAX_CONNECTIONS, &tcp, echo_stream).unwrap();
        accept("bulk-tcp", BULK_CONNECTIONS, &bulk_tcp, bulk_stream).unwrap();
        std::thread::Builder::new()
            .spawn(move || echo_datagrams(&udp))
            .unwrap();
        std::thread::Builder::new()
            .spawn(move || count_datagrams(&bulk_udp))
            .unwrap();
        return echo;
    }
}

/// Longer requests are answered in pieces.
const ECHO_BYTES: usize = 64 << 10;

/// Receives the next datagram. The kernel reports here as well that an earlier answer reached nobody: that is passed over.
#[inline(always)]
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    use io::ErrorKind::{ConnectionRefused, Interrupted};
    loop {
        match socket.recv_from(buffer) {
            Err(e) if matches!(e.kind(), Interrupted | ConnectionRefused) => {}
            received => return received,
        }
    }
}

/// Sends each datagram back to its sender, until the socket fails.
fn echo_datagrams(socket: &UdpSocket) -> io::Result<()> {
    let mut buffer = vec![0; ECHO_BYTES];
    loop {
        let (bytes, from) = receive(socket, &mut buffer)?;
        // One that cannot be answered is lost, as on any network.
        drop(socket.send_to(&buffer[..bytes], from));
    }
}

/// Answers a connection until it ends.
fn echo_stream(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; ECHO_BYTES];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            bytes => stream.write_all(&buffer[..bytes])?,
        }
    }
}

/// Most bytes of a send, and of what is received at once.
const SEND_BYTES: usize = 1 << 20;
/// Bytes received at once.
const RECEIVED: usize = 128 << 10;
/// A datagram with this asks how many others came from its sender: the answer is their number, little endian, in eight bytes.
pub(crate) const COUNT_QUESTION: &[u8] = b"vmtax: how many datagrams?";
/// Bytes of a [`header`].
const HEADER: usize = 5;

/// Where a stream goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the server, which reads until the client has no more, and ends the connection.
    ToServer = b'>' as isize,
    /// From the server, until the client ends the connection.
    FromServer = b'<' as isize,
}

/// Returns the bytes that a client sends first: the direction of the stream, and the bytes of each of the server's
/// sends.
pub(crate) fn header(direction: Direction, size: u32) -> [u8; HEADER] {
    let mut header = [direction as u8; HEADER];
    header[1..].copy_from_slice(&size.to_le_bytes());
    header
}

/// Serves a connection until it ends.
fn bulk_stream(mut stream: TcpStream) -> io::Result<()> {
    let mut asked = [0; HEADER];
    stream.read_exact(&mut asked)?;
    let [direction, size @ ..] = asked;
    if direction == Direction::ToServer as u8 {
        let mut buffer = vec![0; RECEIVED];
        while stream.read(&mut buffer)? > 0 {}
        return Ok(());
    }
    let size = (u32::from_le_bytes(size) as usize).clamp(1, SEND_BYTES);
    let data = vec![0x5a; size];
    loop {
        stream.write_all(&data)?;
    }
}

/// Counts the datagrams of one sender after the other.
fn count_datagrams(socket: &UdpSocket) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    let (mut sender, mut counted): (Option<SocketAddr>, u64) = (None, 0);
    loop {
        let (bytes, from) = receive(socket, &mut buffer)?;
        if sender != Some(from) {
            (sender, counted) = (Some(from), 0);
        }
        if buffer[..bytes] == *COUNT_QUESTION {
            let _ = socket.send_to(&counted.to_le_bytes(), from);
        } else {
            counted += 1;
        }
    }
}
