//! A conversation with QEMU's monitor, in QMP: lines of JSON over a socket, which other programs may use, too; and the process at
//! the other end of a socket.

use crate::VmmError;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::{Pid, getsid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vmtax_model::without_secrets;
use vmtax_observe::counters::clients;

/// No answer to our commands comes near this, bytes.
const MAX_LINE: usize = 1 << 20;

/// Lines of others' conversations that are skipped.
const MAX_OLD_LINES: usize = 1000;

/// A connection that is past its greeting.
#[derive(Debug)]
pub(crate) struct Conversation {
    stream: UnixStream,
    unread: Vec<u8>,
    /// The last command's.
    number: u64,
    /// Program at the other end.
    of: Answerer,
}

/// Who is at the other end.
#[derive(Debug, Clone, Copy)]
enum Answerer {
    Qmp,
    GuestAgent,
}

/// Time limit of an answer.
#[derive(Debug, Clone, Copy)]
struct Limit {
    time: Duration,
    deadline: Instant,
}

impl Limit {
    fn begin(time: Duration) -> Limit {
        Limit {
            time,
            deadline: Instant::now() + time,
        }
    }
}

impl Conversation {
    /// Reads the greeting within `greeting`, and leaves negotiation mode, whose response may take `timeout`.
    pub fn begin(
        stream: UnixStream,
        greeting: Duration,
        timeout: Duration,
    ) -> Result<Conversation, VmmError> {
        let mut conversation = Conversation::over(stream, Answerer::Qmp, 0, timeout)?;
        let greeted = conversation.answer(Limit::begin(greeting))?;
        if greeted.get("QMP").is_none() {
            return Err(VmmError::Monitor(format!("unexpected greeting {greeted}")));
        }
        conversation.execute("qmp_capabilities", &json!({}), timeout)?;
        Ok(conversation)
    }

    /// With a guest's agent, which sends no greeting: what is left of others' conversations is skipped.
    pub fn with_agent(stream: UnixStream, timeout: Duration) -> Result<Conversation, VmmError> {
        let (id, limit) = (u64::from(std::process::id()), Limit::begin(timeout));
        let mut conversation = Conversation::over(stream, Answerer::GuestAgent, id, timeout)?;
        // The byte resets the agent's parser, whatever a client before sent in half.
        conversation.stream.write_all(b"\xff").map_err(failed)?;
        let request = json!({ "execute": "guest-sync", "arguments": { "id": id } });
        let request = format!("{request}\n");
        conversation
            .stream
            .write_all(request.as_bytes())
            .map_err(failed)?;
        // Each line costs the guest's agent a write; what is no JSON ends a line, too.
        for _ in 0..MAX_OLD_LINES {
            let line = conversation.line(limit)?;
            if serde_json::from_slice::<Value>(&line).is_ok_and(|answer| answer["return"] == id) {
                return Ok(conversation);
            }
        }
        Err(VmmError::Monitor(
            "no agent answers in the guest".to_owned(),
        ))
    }

    /// Makes a conversation in which nothing was said yet. A command is small: writing it waits, for `timeout` at most,
    /// only where none is read any more.
    fn over(
        stream: UnixStream,
        of: Answerer,
        number: u64,
        timeout: Duration,
    ) -> Result<Conversation, VmmError> {
        stream.set_write_timeout(Some(timeout)).map_err(failed)?;
        Ok(Conversation {
            stream,
            unread: Vec::new(),
            number,
            of,
        })
    }

    /// Executes a command and returns its result; events are skipped.
    pub fn execute(
        &mut self,
        command: &str,
        arguments: &Value,
        timeout: Duration,
    ) -> Result<Value, VmmError> {
        self.ask(command, arguments, timeout)?
    }

    /// Executes a command as [`Conversation::execute`] does; the inner error is that QEMU refused, after which the
    /// conversation goes on.
    pub fn ask(
        &mut self,
        command: &str,
        arguments: &Value,
        timeout: Duration,
    ) -> Result<Result<Value, VmmError>, VmmError> {
        let limit = Limit::begin(timeout);
        self.number += 1;
        let request = format!(
            "{}\n",
            json!({ "execute": command, "arguments": arguments, "id": self.number })
        );
        self.stream
            .write_all(request.as_bytes())
            .map_err(|e| VmmError::Monitor(format!("{command}: {e}")))?;
        loop {
            let answer = self.answer(limit)?;
            // A late response to a command that timed out.
            if answer.get("id").is_some_and(|id| *id != self.number) {
                continue;
            }
            if let Some(result) = returned(command, answer) {
                return Ok(result);
            }
        }
    }

    fn answer(&mut self, limit: Limit) -> Result<Value, VmmError> {
        let line = self.line(limit)?;
        match self.of {
            // Addresses of images may have some.
            Answerer::Qmp => {
                let line = String::from_utf8_lossy(&line);
                serde_json::from_str(&without_secrets(&line)).map_err(failed)
            }
            // What files have is in base64.
            Answerer::GuestAgent => serde_json::from_slice(&line).map_err(failed),
        }
    }

    fn line(&mut self, limit: Limit) -> Result<Vec<u8>, VmmError> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(end) = self.unread.iter().position(|&b| b == b'\n') {
                return Ok(self.unread.drain(..=end).collect());
            }
            let left = limit.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.timeout(limit.time));
            }
            if self.unread.len() > MAX_LINE {
                return Err(VmmError::Monitor(format!(
                    "a response is longer than {MAX_LINE} bytes"
                )));
            }
            let read = self
                .stream
                .set_read_timeout(Some(left))
                .and_then(|()| self.stream.read(&mut buffer));
            match read {
                Ok(0) => return Err(VmmError::Monitor("connection closed".to_owned())),
                Ok(n) => self.unread.extend_from_slice(&buffer[..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) => return Err(failed(e)),
            }
        }
    }

    fn timeout(&self, time: Duration) -> VmmError {
        let seconds = time.as_secs_f64();
        match self.of {
            Answerer::Qmp => VmmError::MonitorTimeout {
                seconds,
                has_client: false,
            },
            Answerer::GuestAgent => {
                VmmError::Monitor(format!("no agent in the guest answered within {seconds} s"))
            }
        }
    }
}

fn failed(error: impl ToString) -> VmmError {
    VmmError::Monitor(error.to_string())
}

/// The items of an answer that is a list; none of any other.
pub fn items(answer: &Value) -> impl Iterator<Item = &Value> {
    answer.as_array().into_iter().flatten()
}

/// Returns the result from QEMU, or the reason of its refusal; `None` for an event.
pub(crate) fn returned(command: &str, mut answer: Value) -> Option<Result<Value, VmmError>> {
    if let Some(returned) = answer.get_mut("return") {
        return Some(Ok(returned.take()));
    }
    answer
        .get("error")
        .map(|error| Err(VmmError::Monitor(format!("{command}: {error}"))))
}

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
    /// waits already may not even accept it. A client counts that is connected from half of the time to its end: another
    /// vmtax leaves a socket that does not answer as soon as this one does.
    pub fn connect(&self, timeout: Duration) -> Result<Conversation, VmmError> {
        let half = timeout / 2;
        let clients = || clients(self.pid, &self.path).unwrap_or_default();
        let timed_out = |earlier: &BTreeSet<u64>| VmmError::MonitorTimeout {
            seconds: timeout.as_secs_f64(),
            has_client: !earlier.is_disjoint(&clients()),
        };
        let late_or_failed = |error: io::Error, earlier: &BTreeSet<u64>| match error.kind() {
            io::ErrorKind::TimedOut => timed_out(earlier),
            io::ErrorKind::PermissionDenied => VmmError::MonitorDenied(error.to_string()),
            _ => failed(error),
        };
        let mut earlier = BTreeSet::new();
        let stream = match stream_to(self, half) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                earlier = clients();
                stream_to(self, half).map_err(|error| late_or_failed(error, &earlier))?
            }
            stream => stream.map_err(|error| late_or_failed(error, &earlier))?,
        };
        if !is_readable(&stream, half) {
            earlier = clients();
        }
        Conversation::begin(stream, half, timeout).map_err(|error| match error {
            VmmError::MonitorTimeout { .. } => timed_out(&earlier),
            other => other,
        })
    }
}

/// Waits until there is something to read, for so long.
fn is_readable(stream: &UnixStream, time: Duration) -> bool {
    let mut one = [PollFd::new(stream, PollFlags::IN)];
    let time = Timespec::try_from(time).ok();
    poll(&mut one, time.as_ref()).is_ok_and(|ready| ready > 0)
}

/// A stream to the process that must listen there, and to no other.
///
/// # Errors
/// [`VmmError::Monitor`] where it does not listen, or another process does.
pub(crate) fn connect_to(socket: &SharedSocket, timeout: Duration) -> Result<UnixStream, VmmError> {
    stream_to(socket, timeout).map_err(failed)
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

/// The process that connected, or that listens, there, and its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// PID of the process.
    pub pid: i32,
    /// Number of its user.
    pub uid: u32,
}

impl Peer {
    /// `None` where it is in a PID namespace that is not visible here: the kernel gives it the number 0.
    pub fn of(stream: &UnixStream) -> Option<Peer> {
        let peer = getsockopt(stream, PeerCredentials).ok()?;
        (peer.pid() > 0).then(|| Peer {
            pid: peer.pid(),
            uid: peer.uid(),
        })
    }

    /// Returns true if it belongs to this session. Its user is compared, too: one that ended may have left its number to another.
    pub fn is_in_session(self, session: i32) -> bool {
        let is_in_session =
            getsid(Some(Pid::from_raw(self.pid))).is_ok_and(|of| of.as_raw() == session);
        let folder = fs::metadata(format!("/proc/{}", self.pid));
        is_in_session && folder.is_ok_and(|folder| folder.uid() == self.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{bind, listen};
    use std::os::unix::net::UnixListener;
    use vmtax_model::testing::{again_in_pid_namespace, handed_over};

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

    /// In a PID namespace the listener's process has no number, nor has its own session.
    #[test]
    fn who_is_not_visible_has_no_number_and_no_session() {
        if let Some(path) = handed_over() {
            assert_eq!(Peer::of(&UnixStream::connect(path).unwrap()), None);
            let own = Peer::of(&UnixStream::pair().unwrap().0).unwrap();
            assert_eq!(own.pid, std::process::id() as i32);
            assert!(!own.is_in_session(own.pid));
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listens = UnixListener::bind(&path).unwrap();
        assert_eq!(
            Peer::of(&UnixStream::connect(&path).unwrap()).unwrap().pid,
            std::process::id() as i32
        );
        again_in_pid_namespace(&path).unwrap();
    }
}
