//! Receives messages and the console's log from a machine: the log is kept in a file, its last lines are at hand for errors.

use crate::process::log::{BoundedLog, has_panic, log_tail, printable_tail};
use crate::{Interrupt, MachineError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vmtax_wire::{Decoder, Frame, Reply, WireError};

/// Time limit for sending a request.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a process may run after its stream closed, and the console of a guest that ended may stay open.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The streams from a machine: the channel, and a guest's console, which serves as channel where the guest has no
/// virtio-serial.
#[derive(Debug)]
pub(crate) struct Lines {
    channel: Line,
    console: Option<(Line, Console)>,
    answers_on_console: bool,
    /// The share's server, whose end ends every wait: readable once it has ended.
    pub server: Option<OwnedFd>,
    /// The machine's watchdog, whose end ends every wait, too: readable once it has ended.
    pub machine: Option<OwnedFd>,
    log: PathBuf,
}

#[derive(Debug)]
struct Line {
    stream: UnixStream,
    decoder: Decoder,
    open: bool,
}

/// Something that can end a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Interrupt,
    Channel,
    Console,
    Server,
    Machine,
    /// The one of this number among those that the caller names.
    Other(usize),
}

/// Receives files piece by piece: name and bytes. Returns the reason if it rejects one.
pub type Files<'a> = dyn FnMut(&str, &[u8]) -> Result<(), String> + 'a;

/// Rejects all files.
pub fn no_files(name: &str, _: &[u8]) -> Result<(), String> {
    Err(format!("unexpected file '{}'", name.escape_default()))
}

/// The event that ended a wait.
pub(crate) enum Received {
    Frame(Frame<Reply>),
    /// The one of this number among the others has something to read, or ended.
    Other(usize),
}

/// Why a wait ended without a message.
pub(crate) enum NoMessage {
    Closed,
    ServerEnded,
    Timeout,
    Interrupted,
    Invalid(String),
    Failed(std::io::Error),
}

impl Lines {
    /// A machine with a channel and a folder for its logs.
    pub fn new(channel: UnixStream, log: &Path) -> Lines {
        Lines {
            channel: Line::new(channel),
            console: None,
            answers_on_console: false,
            server: None,
            machine: None,
            log: log.to_path_buf(),
        }
    }

    pub fn add_console(&mut self, stream: UnixStream, log: Console) {
        self.console = Some((Line::new(stream), log));
    }

    pub fn send(&mut self, frame: &[u8]) -> std::io::Result<()> {
        let line = match &mut self.console {
            Some((console, _)) if self.answers_on_console => console,
            _ => &mut self.channel,
        };
        send_within(&line.stream, frame, SEND_TIMEOUT)
    }

    /// Waits for the next message on either line; writes the console's log meanwhile, and hands on pieces of files.
    pub fn message(
        &mut self,
        deadline: Instant,
        interrupt: &Interrupt,
        files: &mut Files<'_>,
    ) -> Result<Reply, NoMessage> {
        loop {
            match self.receive(deadline, interrupt, &[])? {
                Received::Frame(Frame::Message(reply)) => {
                    return reply.checked().map_err(NoMessage::Invalid);
                }
                Received::Frame(Frame::Piece { name, bytes }) => {
                    files(&name, &bytes).map_err(NoMessage::Invalid)?;
                }
                Received::Other(_) => {}
            }
        }
    }

    /// Waits for the next frame on either line, its message not checked yet; or for one of the `others` to have something
    /// to read or to end.
    pub fn receive(
        &mut self,
        deadline: Instant,
        interrupt: &Interrupt,
        others: &[BorrowedFd<'_>],
    ) -> Result<Received, NoMessage> {
        loop {
            match self.decoded() {
                Some(frame) => {
                    return frame
                        .map(Received::Frame)
                        .map_err(|e| NoMessage::Invalid(e.to_string()));
                }
                None if !self.channel.open => return Err(NoMessage::Closed),
                None => {
                    if let Some(other) = self.poll(deadline, interrupt, others)? {
                        return Ok(Received::Other(other));
                    }
                }
            }
        }
    }

    fn decoded(&mut self) -> Option<Result<Frame<Reply>, WireError>> {
        if let Some(frame) = self.channel.decoder.frame() {
            return Some(frame);
        }
        let (console, _) = self.console.as_mut()?;
        // A damaged frame between kernel messages is noise there; a whole one is the agent.
        while let Some(frame) = console.decoder.frame() {
            if frame.is_ok() || self.answers_on_console {
                self.answers_on_console = true;
                return Some(frame);
            }
        }
        None
    }

    /// One wait, and what it brought; says which of the others is ready.
    fn poll(
        &mut self,
        deadline: Instant,
        interrupt: &Interrupt,
        others: &[BorrowedFd<'_>],
    ) -> Result<Option<usize>, NoMessage> {
        let ready = self.ready(deadline, interrupt, others)?;
        let is_ready = |source| ready.contains(&source);
        if is_ready(Source::Interrupt) {
            return Err(NoMessage::Interrupted);
        }
        // The console first: what a dying guest said must be in its log when the channel is found closed.
        let console = self.console.as_mut();
        if let Some((line, log)) = console.filter(|_| is_ready(Source::Console)) {
            log.push(&line.receive()?);
        }
        if is_ready(Source::Channel) {
            self.channel.receive()?;
            if !self.channel.open {
                self.drain_console();
            }
        } else if is_ready(Source::Server) {
            // A guest that ends takes its server along, so the guest's own end comes first.
            return Err(NoMessage::ServerEnded);
        } else if is_ready(Source::Machine) {
            // A machine that ends closes its channel first: its watchdog was killed.
            return Err(NoMessage::Closed);
        }
        Ok((0..others.len()).find(|number| is_ready(Source::Other(*number))))
    }

    /// Waits until something can be read or has ended; says of which sources.
    fn ready(
        &self,
        deadline: Instant,
        interrupt: &Interrupt,
        others: &[BorrowedFd<'_>],
    ) -> Result<Vec<Source>, NoMessage> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(NoMessage::Timeout);
        }
        let console = self.console.as_ref().filter(|(line, _)| line.open);
        let optional = [
            (
                Source::Console,
                console.map(|(line, _)| line.stream.as_fd()),
            ),
            (Source::Server, self.server.as_ref().map(AsFd::as_fd)),
            (Source::Machine, self.machine.as_ref().map(AsFd::as_fd)),
        ];
        let mut sources = vec![
            (Source::Interrupt, interrupt.as_fd()),
            (Source::Channel, self.channel.stream.as_fd()),
        ];
        sources.extend(
            optional
                .into_iter()
                .filter_map(|(source, fd)| Some((source, fd?))),
        );
        sources.extend((0..).map(Source::Other).zip(others.iter().copied()));
        let mut fds: Vec<PollFd<'_>> = sources
            .iter()
            .map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
            .collect();
        rustix::io::retry_on_intr(|| poll(&mut fds, Timespec::try_from(left).ok().as_ref()))
            .map_err(|e| NoMessage::Failed(e.into()))?;
        let polled = sources.into_iter().zip(&fds);
        Ok(polled
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|((source, _), _)| source)
            .collect())
    }

    /// Reads the rest of the console of a guest that ended. One that goes on printing is not read to its end.
    pub fn drain_console(&mut self) {
        let Some((line, log)) = &mut self.console else {
            return;
        };
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        while line.open {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || line.stream.set_read_timeout(Some(left)).is_err() {
                return;
            }
            // No message of it counts any more: what is not decoded would pile up.
            match line.read() {
                Ok(bytes) => log.push(&bytes),
                Err(_) => return,
            }
        }
    }

    pub fn tail(&self) -> String {
        match &self.console {
            Some((_, console)) => console.tail(),
            None => log_tail(&self.log_path()),
        }
    }

    pub fn log_path(&self) -> PathBuf {
        match &self.console {
            Some((_, console)) => console.path().to_path_buf(),
            None => self.log.join("agent.log"),
        }
    }

    pub fn panicked(&self) -> bool {
        self.console
            .as_ref()
            .is_some_and(|(_, console)| console.has_panic())
    }
}

impl Line {
    fn new(stream: UnixStream) -> Line {
        Line {
            stream,
            decoder: Decoder::new(),
            open: true,
        }
    }

    /// Reads what is there, feeds the decoder, gives the bytes.
    fn receive(&mut self) -> Result<Vec<u8>, NoMessage> {
        let bytes = self.read()?;
        self.decoder.push(&bytes);
        Ok(bytes)
    }

    fn read(&mut self) -> Result<Vec<u8>, NoMessage> {
        let mut buffer = vec![0; 64 * 1024];
        let read = match self.stream.read(&mut buffer) {
            // The other end died with bytes of ours unread.
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => 0,
            Err(e) => return Err(NoMessage::Failed(e)),
            Ok(n) => n,
        };
        self.open = read > 0;
        buffer.truncate(read);
        Ok(buffer)
    }
}

/// Sends all bytes within this time, however few of them the other side reads at once.
fn send_within(stream: &UnixStream, bytes: &[u8], timeout: Duration) -> std::io::Result<()> {
    let deadline = Instant::now() + timeout;
    let mut rest = bytes;
    while !rest.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        let mut fds = [PollFd::new(stream, PollFlags::OUT)];
        rustix::io::retry_on_intr(|| poll(&mut fds, Timespec::try_from(left).ok().as_ref()))?;
        // A write that waits begins its timeout again with each part that is read.
        match rustix::net::send(stream, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(written) => rest = &rest[written..],
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Size of the kept end of a console, bytes.
const TAIL_BYTES: usize = 8 * 1024;

/// A guest's console.
#[derive(Debug)]
pub(crate) struct Console {
    path: PathBuf,
    log: BoundedLog,
    end: Vec<u8>,
}

impl Console {
    pub fn create(path: PathBuf) -> Result<Self, MachineError> {
        let log = BoundedLog::create(&path)?;
        Ok(Console {
            path,
            log,
            end: Vec::new(),
        })
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.log.push(bytes);
        self.end.extend_from_slice(bytes);
        let surplus = self.end.len().saturating_sub(TAIL_BYTES);
        self.end.drain(..surplus);
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last lines, control characters taken out: a guest may send anything.
    pub fn tail(&self) -> String {
        printable_tail(&self.end)
    }

    pub fn has_panic(&self) -> bool {
        has_panic(&self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_little_by_little_does_not_keep_the_sender() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let reader = std::thread::Builder::new();
        let reader = reader.spawn(move || {
            while theirs.read(&mut [0; 1000]).is_ok_and(|read| read > 0) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let begun = Instant::now();
        // 16 s at that pace.
        assert!(send_within(&ours, &vec![0; 16 << 20], Duration::from_millis(300)).is_err());
        assert!(begun.elapsed() < Duration::from_secs(8));
        assert!(send_within(&ours, b"", Duration::ZERO).is_ok());
        drop(ours);
        reader.unwrap().join().unwrap();
    }

    #[test]
    fn the_end_of_an_endless_console_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut console = Console::create(folder.path().join("log")).unwrap();
        for _ in 0..40 {
            console.push(&vec![b'x'; 1 << 20]);
        }
        console.push(b"\nKernel panic: the end");
        assert!(std::fs::metadata(console.path()).unwrap().len() < 17 << 20);
        assert!(console.tail().contains("the end") && console.has_panic());
    }
}
