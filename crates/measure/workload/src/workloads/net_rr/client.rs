//! The side that asks.

use crate::error::WorkloadError;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// Room for a key, and more than an acknowledgement without data differs by.
pub(crate) const MIN_BYTES: u64 = 16;
/// One packet, with all headers and options, on a card of 1,500 bytes.
pub(crate) const MAX_BYTES: u64 = 1400;
/// After which a request counts as lost.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// So many requests in a row without a response mean that there is no server.
const MAX_LOST: u32 = 5;
/// Bytes of a request's key.
const KEY: usize = 8;

enum Socket {
    Udp(UdpSocket),
    Tcp(TcpStream),
    /// A new connection for each request.
    TcpEach,
}

/// Address of a client's server, and the protocol to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transport {
    pub server: SocketAddrV4,
    pub is_tcp: bool,
    /// True if each request has a connection of its own.
    pub connects_each: bool,
}

/// A client with one request under way at a time.
pub(super) struct Client {
    socket: Socket,
    transport: Transport,
    request: Vec<u8>,
    response: Vec<u8>,
    lost_in_a_row: u32,
    /// Datagrams that were no response to the request under way.
    pub others: u64,
}

impl Client {
    pub fn connect(transport: Transport, bytes: usize) -> Result<Client, WorkloadError> {
        let connected = match transport {
            Transport {
                is_tcp: true,
                connects_each: true,
                ..
            } => Ok(Socket::TcpEach),
            Transport { is_tcp: true, .. } => connection(transport.server).map(Socket::Tcp),
            _ => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
                socket.connect(transport.server)?;
                socket.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
                Ok(Socket::Udp(socket))
            }),
        };
        let (request, response) = (vec![0x5a; bytes], vec![0; bytes]);
        match connected {
            Ok(socket) => Ok(Client {
                socket,
                transport,
                request,
                response,
                lost_in_a_row: 0,
                others: 0,
            }),
            Err(source) => Err(no_answer(
                transport.server,
                protocol(transport),
                Some(source),
            )),
        }
    }

    /// Sends the request of this key and waits for its response; whether one came.
    #[inline(always)]
    pub fn round_trip(&mut self, key: u64) -> Result<bool, WorkloadError> {
        self.request[..KEY].copy_from_slice(&key.to_le_bytes());
        let (request, response) = (&self.request, &mut self.response);
        let answered = match &mut self.socket {
            Socket::Udp(socket) => udp(socket, request, response, &mut self.others),
            Socket::Tcp(stream) => tcp(stream, request, response),
            // Its end is a part of it.
            Socket::TcpEach => connection(self.transport.server)
                .and_then(|mut stream| tcp(&mut stream, request, response)),
        };
        match answered {
            Ok(true) if self.response == self.request => {
                self.lost_in_a_row = 0;
                Ok(true)
            }
            Ok(true) => Err(self.failed(Some(io::Error::other("another answer")))),
            Ok(false) if self.lost_in_a_row < MAX_LOST => {
                self.lost_in_a_row += 1;
                Ok(false)
            }
            Ok(false) => Err(self.failed(None)),
            Err(source) => Err(self.failed(Some(source))),
        }
    }

    fn failed(&self, source: Option<io::Error>) -> WorkloadError {
        no_answer(self.transport.server, protocol(self.transport), source)
    }
}

fn protocol(transport: Transport) -> &'static str {
    if transport.is_tcp { "tcp" } else { "udp" }
}

fn connection(server: SocketAddrV4) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&server.into(), RESPONSE_TIMEOUT * MAX_LOST)?;
    stream.set_nodelay(true)?;
    // TCP itself repeats what was lost.
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT * MAX_LOST))?;
    Ok(stream)
}

#[inline(always)]
fn tcp(stream: &mut TcpStream, request: &[u8], response: &mut [u8]) -> io::Result<bool> {
    stream.write_all(request)?;
    stream.read_exact(response)?;
    Ok(true)
}

/// A datagram and its answer. Late answers to earlier ones, and what others send, are passed over and counted: they do not
/// make the wait for this one's longer than twice the timeout.
#[inline(always)]
fn udp(
    socket: &UdpSocket,
    request: &[u8],
    response: &mut [u8],
    others: &mut u64,
) -> io::Result<bool> {
    socket.send(request)?;
    let mut deadline = None;
    loop {
        match socket.recv(response) {
            Ok(bytes) if bytes == request.len() && response[..KEY] == request[..KEY] => {
                return Ok(true);
            }
            Ok(_) => {
                *others += 1;
                if Instant::now()
                    > *deadline.get_or_insert_with(|| Instant::now() + RESPONSE_TIMEOUT)
                {
                    return Ok(false);
                }
            }
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                return Ok(false);
            }
            Err(e) => return Err(e),
        }
    }
}

/// The error of a server that does not answer.
pub(crate) fn no_answer(
    server: SocketAddrV4,
    protocol: &'static str,
    source: Option<io::Error>,
) -> WorkloadError {
    let fix =
        "start a server there, or let a firewall pass it; vmtax's guests have one of their own";
    WorkloadError::NoEcho {
        server,
        protocol,
        source,
        fix,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_other_datagrams_does_not_hold_a_request_for_ever() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let std::net::SocketAddr::V4(address) = server.local_addr().unwrap() else {
            panic!("an IPv4 address")
        };
        let flood = std::thread::Builder::new().spawn(move || {
            let (_, client) = server.recv_from(&mut [0; 64]).unwrap();
            let until = Instant::now() + RESPONSE_TIMEOUT * 4;
            while Instant::now() < until {
                drop(server.send_to(b"another answer", client));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let flood = flood.unwrap();
        let transport = Transport {
            server: address,
            is_tcp: false,
            connects_each: false,
        };
        let mut client = Client::connect(transport, 64).unwrap();
        let began = Instant::now();
        assert!(!client.round_trip(7).unwrap());
        assert!(
            began.elapsed() < RESPONSE_TIMEOUT * 3 && client.others > 10,
            "{:?}",
            began.elapsed()
        );
        drop(client);
        flood.join().unwrap();
    }
}
