//! Takes and gives bulk data: streams by TCP in either direction, and datagrams, which it counts.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};

/// Most bytes of a send, and of what is received at once.
const MAX_BYTES: usize = 1 << 20;
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
pub(super) fn transfer(mut stream: TcpStream) -> io::Result<()> {
    let mut asked = [0; HEADER];
    stream.read_exact(&mut asked)?;
    let [direction, size @ ..] = asked;
    if direction == Direction::ToServer as u8 {
        let mut buffer = vec![0; RECEIVED];
        while stream.read(&mut buffer)? > 0 {}
        return Ok(());
    }
    let size = (u32::from_le_bytes(size) as usize).clamp(1, MAX_BYTES);
    let data = vec![0x5a; size];
    loop {
        stream.write_all(&data)?;
    }
}

/// Counts the datagrams of one sender after the other.
pub(super) fn count(socket: &UdpSocket) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    let (mut sender, mut counted): (Option<SocketAddr>, u64) = (None, 0);
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((bytes, from)) => {
                if sender != Some(from) {
                    (sender, counted) = (Some(from), 0);
                }
                if buffer[..bytes] == *COUNT_QUESTION {
                    let _ = socket.send_to(&counted.to_le_bytes(), from);
                } else {
                    counted += 1;
                }
            }
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused
                ) => {}
            Err(e) => return Err(e),
        }
    }
}
