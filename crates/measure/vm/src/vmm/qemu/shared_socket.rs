//! A QMP socket that serves other programs, too, such as Proxmox's: one client at a time, so it is left after each command.

use super::conversation::Conversation;
use crate::MachineError;
use rustix::net::sockopt::socket_peercred;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
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
        let stream = UnixStream::connect(&self.path).map_err(|e| MachineError::Monitor(e.to_string()))?;
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

/// The process that listens where a stream leads; `None` where it is in a PID namespace that is not visible here.
pub(crate) fn listener(stream: &UnixStream) -> Option<i32> {
    socket_peercred(stream).ok().map(|peer| peer.pid.as_raw_nonzero().get())
}
