//! The side that asks.

use crate::error::WorkloadError;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::time::Duration;

/// Room for a number, and more than an acknowledgement without data differs by.
pub(super) const MIN_BYTES: u64 = 16;
/// One packet, with all headers and options, on a card of 1,500 bytes.
pub(super) const MAX_BYTES: u64 = 1400;
/// After which a request counts as lost.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// So many requests in a row without a response mean that there is no server.
const MAX_LOST: u32 = 5;
/// Bytes of a request's number.
const NUMBER: usize = 8;

enum Socket {
    Udp(UdpSocket),
    Tcp(TcpStream),
}

/// A client with one request under way at a time.
pub(super) struct Client {
    socket: Socket,
    server: SocketAddrV4,
    request: Vec<u8>,
    response: Vec<u8>,
    lost_in_a_row: u32,
}

impl Client {
    pub fn connect(server: SocketAddrV4, protocol: &str, bytes: usize) -> Result<Client, WorkloadError> {
        let connected = match protocol {
            "tcp" => TcpStream::connect_timeout(&server.into(), RESPONSE_TIMEOUT * MAX_LOST).and_then(|stream| {
                stream.set_nodelay(true)?;
                // TCP itself repeats what was lost.
                stream.set_read_timeout(Some(RESPONSE_TIMEOUT * MAX_LOST))?;
                Ok(Socket::Tcp(stream))
            }),
            _ => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
                socket.connect(server)?;
                socket.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
                Ok(Socket::Udp(socket))
            }),
        };
        let (request, response) = (vec![0x5a; bytes], vec![0; bytes]);
        match connected {
            Ok(socket) => Ok(Client { socket, server, request, response, lost_in_a_row: 0 }),
            Err(source) => {
                let protocol = if protocol == "tcp" { "tcp" } else { "udp" };
                Err(no_echo(server, protocol, Some(source)))
            }
        }
    }

    /// Sends the request of this number and waits for its response; whether one came.
    #[inline(always)]
    pub fn round_trip(&mut self, number: u64) -> Result<bool, WorkloadError> {
        self.request[..NUMBER].copy_from_slice(&number.to_le_bytes());
        let (request, response) = (&self.request, &mut self.response);
        let answered = match &mut self.socket {
            Socket::Udp(socket) => udp(socket, request, response),
            Socket::Tcp(stream) => stream.write_all(request).and_then(|()| stream.read_exact(response)).map(|()| true),
        };
        match (answered, &self.socket) {
            (Ok(true), _) if self.response == self.request => {
                self.lost_in_a_row = 0;
                Ok(true)
            }
            (Ok(true), _) => Err(no_echo(self.server, self.protocol(), Some(io::Error::other("another answer")))),
            (Ok(false), _) if self.lost_in_a_row < MAX_LOST => {
                self.lost_in_a_row += 1;
                Ok(false)
            }
            (Ok(false), _) => Err(no_echo(self.server, "udp", None)),
            (Err(source), _) => Err(no_echo(self.server, self.protocol(), Some(source))),
        }
    }

    fn protocol(&self) -> &'static str {
        if matches!(self.socket, Socket::Udp(_)) { "udp" } else { "tcp" }
    }
}

/// A datagram and its answer; late answers to earlier ones are passed over.
#[inline(always)]
fn udp(socket: &UdpSocket, request: &[u8], response: &mut [u8]) -> io::Result<bool> {
    socket.send(request)?;
    loop {
        match socket.recv(response) {
            Ok(bytes) if bytes == request.len() && response[..NUMBER] == request[..NUMBER] => return Ok(true),
            Ok(_) => {}
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => return Ok(false),
            Err(e) => return Err(e),
        }
    }
}

fn no_echo(server: SocketAddrV4, protocol: &'static str, source: Option<io::Error>) -> WorkloadError {
    let fix = "start an echo server there, or let a firewall pass it; vmtax's guests have one of their own";
    WorkloadError::NoEcho { server, protocol, source, fix }
}
