//! The conversation with a machine's agent.

use crate::agent::messages::{Files, Heard, Lines, Nothing};
use crate::process::child::Child;
use crate::share::Server;
use crate::vmm::qemu::monitor::QMP_TIMEOUT;
use crate::{Interrupt, MachineError};
use rustix::fd::BorrowedFd;
use std::time::{Duration, Instant};
use vmtax_model::Machine;
use vmtax_wire::{Reply, Request, encode};

/// After a machine's stream closed, its process is gone within moments.
pub(crate) const CLOSING: Duration = Duration::from_secs(2);

/// The agent of a machine, with the processes without which there is none.
#[derive(Debug)]
pub(crate) struct Agent<'a> {
    pub machine: Machine,
    pub interrupt: &'a Interrupt,
    pub lines: Lines,
    pub child: Child,
    /// The share's server. Ends after the guest.
    pub server: Option<Server>,
}

impl Agent<'_> {
    /// Sends a request and waits for the answer.
    pub fn ask(&mut self, request: &Request, timeout: Duration, files: &mut Files<'_>) -> Result<Reply, Nothing> {
        let frame = encode(request).map_err(|e| Nothing::Nonsense(e.to_string()))?;
        if self.lines.send(&frame).is_err() {
            self.lines.drain_console();
            return Err(Nothing::Closed);
        }
        self.reply(timeout, files)
    }

    /// Waits for a message.
    pub fn reply(&mut self, timeout: Duration, files: &mut Files<'_>) -> Result<Reply, Nothing> {
        self.lines.message(Instant::now() + timeout, self.interrupt, files)
    }

    /// See [`Lines::heard`].
    pub fn heard(&mut self, until: Instant, others: &[BorrowedFd<'_>]) -> Result<Heard, Nothing> {
        self.lines.heard(until, self.interrupt, others)
    }

    /// Sends a request that has no answer.
    pub fn tell(&mut self, request: &Request) -> Result<(), MachineError> {
        let frame = encode(request).map_err(|e| self.nonsense(e.to_string()))?;
        self.send(&frame)
    }

    pub fn send(&mut self, frame: &[u8]) -> Result<(), MachineError> {
        if self.lines.send(frame).is_err() {
            self.lines.drain_console();
            return Err(self.error(Nothing::Closed, "running the command"));
        }
        Ok(())
    }

    /// The error of a machine that did not answer while it was `doing` something.
    pub fn error(&mut self, nothing: Nothing, doing: &str) -> MachineError {
        let machine = self.machine;
        let (tail, log) = (self.lines.tail(), self.lines.log_path());
        match nothing {
            Nothing::Closed => {
                let status = self.child.wait(CLOSING).unwrap_or(-1);
                if self.lines.panicked() {
                    return MachineError::Panic { tail, log };
                }
                MachineError::Ended { machine, doing: doing.to_owned(), status, tail, log }
            }
            Nothing::ServerEnded => match &mut self.server {
                Some(server) => server.ended(doing),
                None => self.nonsense("no server"),
            },
            Nothing::TooLate => MachineError::Silent { machine, seconds: QMP_TIMEOUT.as_secs(), tail, log },
            Nothing::Interrupted => MachineError::Interrupted,
            Nothing::Nonsense(what) => self.nonsense(what),
            Nothing::Failed(e) => MachineError::system(format!("listening to {machine}"), e),
        }
    }

    /// The error of an agent whose message is none that can follow.
    pub fn nonsense(&self, what: impl Into<String>) -> MachineError {
        MachineError::Nonsense { machine: self.machine, what: what.into(), log: self.lines.log_path() }
    }
}
