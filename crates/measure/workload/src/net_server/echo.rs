//! Sends back what comes (RFC 862).

use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};

/// Longer requests are answered in pieces.
const MAX_BYTES: usize = 64 << 10;

/// Sends each datagram back to its sender, until the socket fails.
pub(super) fn datagrams(socket: &UdpSocket) -> io::Result<()> {
    let mut buffer = vec![0; MAX_BYTES];
    loop {
        match socket.recv_from(&mut buffer) {
            // One that cannot be answered is lost, as on any network.
            Ok((bytes, from)) => drop(socket.send_to(&buffer[..bytes], from)),
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused
                ) => {}
            Err(e) => return Err(e),
        }
    }
}

/// Answers a connection until it ends.
pub(super) fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; MAX_BYTES];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            bytes => stream.write_all(&buffer[..bytes])?,
        }
    }
}
