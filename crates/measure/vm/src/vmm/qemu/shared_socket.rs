//! A QMP socket that serves other programs, too, such as Proxmox's: one client at a time, so it is left after each command.

use super::conversation::Conversation;
use crate::MachineError;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The socket and the process that must listen there.
#[derive(Debug)]
pub(crate) struct SharedSocket {
    pub path: PathBuf,
    pub pid: i32,
}

impl SharedSocket {
    /// Connects. A socket that has a client accepts the connection but sends no greeting within `timeout`.
    pub fn connect(&self, timeout: Duration) -> Result<Conversation, MachineError> {
        let stream = connect(&self.path).map_err(|e| MachineError::Monitor(e.to_string()))?;
        match listener(&stream) {
            Some(of) if of == self.pid => Conversation::begin(stream, timeout, timeout),
            of => {
                let of =
                    of.map_or_else(|| "a process that is not visible here".to_owned(), |of| format!("process {of}"));
                Err(MachineError::Monitor(format!("it is the socket of {of}, not of {}", self.pid)))
            }
        }
    }
}

/// Connects without waiting. While another client has the socket QEMU accepts none: connections that were given up fill its short
/// queue, and the next would wait for ever.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?).map_err(|e| match e {
        Errno::AGAIN => io::Error::new(io::ErrorKind::WouldBlock, "another client has it, and others wait"),
        e => e.into(),
    })?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// The process that listens where a stream leads; `None` where it is in a PID namespace that is not visible here.
pub(crate) fn listener(stream: &UnixStream) -> Option<i32> {
    socket_peercred(stream).ok().map(|peer| peer.pid.as_raw_nonzero().get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_socket_whose_queue_is_full_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("qmp");
        let listens = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listens, 1).unwrap();
        let socket = SharedSocket { path, pid: std::process::id() as i32 };
        let timeout = Duration::from_millis(10);
        let whys: Vec<String> = (0..4).map(|_| socket.connect(timeout).unwrap_err().to_string()).collect();
        assert!(whys[0].contains("within the timeout") && whys[3].contains("another client has it"), "{whys:?}");
    }
}
