//! A QMP socket that serves other programs, too, such as Proxmox's: one client at a time, so it is left after each command.

use super::conversation::Conversation;
use crate::MachineError;
use crate::process::peer::Peer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::collections::BTreeSet;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vmtax_observe::counters::clients;

/// Interval at which a socket with waiting clients is tried.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// The socket and the process that must listen there.
#[derive(Debug)]
pub(crate) struct SharedSocket {
    pub path: PathBuf,
    pub pid: i32,
}

impl SharedSocket {
    /// Connects. A socket that has a client accepts the connection but sends no greeting within `timeout`; one at which another
    /// waits already may not even accept it. A client counts that is connected from half of the time to its end: another vmtax leaves
    /// a socket that does not answer as soon as this one does.
    pub fn connect(&self, timeout: Duration) -> Result<Conversation, MachineError> {
        let half = timeout / 2;
        let clients = || clients(self.pid, &self.path).unwrap_or_default();
        let timed_out = |earlier: &BTreeSet<u64>| MachineError::MonitorTimeout {
            seconds: timeout.as_secs_f64(),
            has_client: !earlier.is_disjoint(&clients()),
        };
        let failed = |error: io::Error, earlier: &BTreeSet<u64>| match error.kind() {
            io::ErrorKind::TimedOut => timed_out(earlier),
            _ => MachineError::Monitor(error.to_string()),
        };
        let mut earlier = BTreeSet::new();
        let stream = match stream_to(self, half) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                earlier = clients();
                stream_to(self, half).map_err(|error| failed(error, &earlier))?
            }
            stream => stream.map_err(|error| failed(error, &earlier))?,
        };
        if !is_readable(&stream, half) {
            earlier = clients();
        }
        Conversation::begin(stream, half, timeout).map_err(|error| match error {
            MachineError::MonitorTimeout { .. } => timed_out(&earlier),
            other => other,
        })
    }
}

/// Waits until there is something to read, for so long.
fn is_readable(stream: &UnixStream, time: Duration) -> bool {
    let mut one = [PollFd::new(stream, PollFlags::IN)];
    let time = Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: i64::from(time.subsec_nanos()),
    };
    poll(&mut one, Some(&time)).is_ok_and(|ready| ready > 0)
}

/// A stream to the process that must listen there, and to no other.
///
/// # Errors
/// [`MachineError::Monitor`] where it does not listen, or another process does.
pub(crate) fn connect_to(
    socket: &SharedSocket,
    timeout: Duration,
) -> Result<UnixStream, MachineError> {
    stream_to(socket, timeout).map_err(|e| MachineError::Monitor(e.to_string()))
}

fn stream_to(socket: &SharedSocket, timeout: Duration) -> io::Result<UnixStream> {
    let stream = connect(&socket.path, timeout)?;
    match Peer::of(&stream).map(|peer| peer.pid) {
        Some(of) if of == socket.pid => Ok(stream),
        of => {
            let of = of.map_or_else(
                || "a process that is not visible here".to_owned(),
                |of| format!("process {of}"),
            );
            Err(io::Error::other(format!(
                "it is the socket of {of}, not of {}",
                socket.pid
            )))
        }
    }
}

/// Connects to a socket. Where as many clients wait for it as it lets wait, a plain `connect` waits without a limit.
///
/// # Errors
/// Of the kind [`io::ErrorKind::TimedOut`] where they wait for longer than `timeout`.
pub(crate) fn connect(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let deadline = Instant::now() + timeout;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => break,
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(RETRY_INTERVAL),
            Err(Errno::AGAIN) => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "no connection is accepted",
                ));
            }
            Err(e) => return Err(e.into()),
        }
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{bind, listen};

    #[test]
    fn a_socket_at_which_others_wait_is_left_after_the_timeout() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("q.sock");
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&socket, 0).unwrap();
        let timeout = Duration::from_millis(100);
        let waiting = connect(&path, timeout).unwrap();
        let began = Instant::now();
        assert_eq!(
            connect(&path, timeout).unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        assert!(began.elapsed() >= timeout);
        drop((waiting, socket));
        assert_eq!(
            connect(&path, timeout).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
    }
}
