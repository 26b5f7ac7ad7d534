//! The side that answers: it sends back what comes (RFC 862).

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{BorrowedFd, RawFd};

/// The descriptor of the UDP socket: standard input.
const UDP: RawFd = 0;
/// The descriptor of the TCP socket that listens.
const TCP: RawFd = 4;
/// Longer requests are answered in pieces.
const MAX_BYTES: usize = 64 << 10;

/// Answers on the sockets that this process was started with, UDP on standard input and TCP on descriptor 4, until it is ended.
/// A thread waits for each, so that an answer takes a wake-up and two system calls and nothing else.
///
/// # Errors
/// When a descriptor is no such socket.
pub fn echo() -> io::Result<()> {
    // SAFETY: descriptor 0 is open in every process, and only borrowed.
    let udp = UdpSocket::from(unsafe { BorrowedFd::borrow_raw(UDP) }.try_clone_to_owned()?);
    // SAFETY: fcntl takes any number, and fails for one that is no descriptor.
    let is_open = unsafe { libc::fcntl(TCP, libc::F_GETFD) } >= 0;
    if !is_open {
        return Err(io::Error::new(io::ErrorKind::NotConnected, "descriptor 4 is not open: vmtax starts this itself"));
    }
    // SAFETY: it is open, as was just seen, and nothing here closes it.
    let tcp = TcpListener::from(unsafe { BorrowedFd::borrow_raw(TCP) }.try_clone_to_owned()?);
    let listener = std::thread::Builder::new().name("echo-tcp".to_owned());
    listener.spawn(move || accept(&tcp))?;
    datagrams(&udp)
}

fn datagrams(socket: &UdpSocket) -> io::Result<()> {
    let mut buffer = vec![0; MAX_BYTES];
    loop {
        match socket.recv_from(&mut buffer) {
            // One that cannot be answered is lost, as on any network.
            Ok((bytes, from)) => drop(socket.send_to(&buffer[..bytes], from)),
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused) => {}
            Err(e) => return Err(e),
        }
    }
}

fn accept(listener: &TcpListener) {
    for stream in listener.incoming() {
        match stream {
            // One connection at a time: there is one client.
            Ok(stream) => drop(answer(stream)),
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {}
            // It would fail again at once.
            Err(_) => return,
        }
    }
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; MAX_BYTES];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            bytes => stream.write_all(&buffer[..bytes])?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::net_rr::run_with_series;
    use crate::{run, set_option};
    use std::net::SocketAddr;
    use vmtax_model::{Places, WorkloadName, WorkloadSpec};

    fn places(address: SocketAddr) -> Places {
        let SocketAddr::V4(echo) = address else { panic!("an IPv4 address") };
        Places { echo: Some(echo), ..Places::default() }
    }

    #[test]
    fn round_trips_are_timed_and_numbered() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let (of_udp, of_tcp) = (places(udp.local_addr().unwrap()), places(tcp.local_addr().unwrap()));
        std::thread::Builder::new().spawn(move || datagrams(&udp)).unwrap();
        std::thread::Builder::new().spawn(move || accept(&tcp)).unwrap();
        for (protocol, places) in [("udp", of_udp), ("tcp", of_tcp)] {
            let mut spec = crate::round_trips(50);
            set_option(&mut spec, "protocol", protocol).unwrap();
            let (result, series) = run_with_series(&spec, &places).unwrap();
            assert_eq!((result.operations[0].latency.count(), result.notes), (50, Vec::new()), "{protocol}");
            let keys: Vec<u64> = series.operations.iter().map(|o| o.key).collect();
            assert_eq!(keys, (20..70).collect::<Vec<u64>>());
            assert!(series.operations.windows(2).all(|pair| pair[0].end <= pair[1].begin));
        }
    }

    #[test]
    fn a_server_that_is_not_there_is_named() {
        let spec = crate::round_trips(1);
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = run(&spec, &places(port)).unwrap_err().to_string();
        assert!(error.contains(&port.to_string()) && error.contains("start an echo server there"), "{error}");
        let error = run(&WorkloadSpec::new(WorkloadName::NetRr), &Places::default()).unwrap_err().to_string();
        assert!(error.contains("--echo ADDRESS:PORT"), "{error}");
    }
}
