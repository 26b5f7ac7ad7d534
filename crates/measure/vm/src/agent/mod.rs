//! Machines with an agent: the conversation with it, the console, and the user's command between both.

pub(crate) mod command;
pub(crate) mod messages;
pub(crate) mod native;
pub(crate) mod session;
pub(crate) mod streams;

use crate::agent::messages::{CLOSE_TIMEOUT, Files, Lines, NoMessage, no_files};
use crate::process::child::Child;
use crate::share::Server;
use crate::{Interrupt, MachineError};
use std::time::{Duration, Instant};
use vmtax_model::{Machine, WorkloadName};
use vmtax_vmm::qemu::monitor::QMP_TIMEOUT;
use vmtax_wire::{Reply, Request, encode};

/// The agent of a machine, with the processes that it depends on.
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
    pub fn ask(
        &mut self,
        request: &Request,
        timeout: Duration,
        files: &mut Files<'_>,
    ) -> Result<Reply, NoMessage> {
        let frame = encode(request).map_err(|e| NoMessage::Invalid(e.to_string()))?;
        if self.lines.send(&frame).is_err() {
            self.lines.drain_console();
            return Err(NoMessage::Closed);
        }
        self.reply(timeout, files)
    }

    /// Sends a request and waits for the answer; the error where none comes says what the machine was `doing`.
    pub fn answer(
        &mut self,
        request: &Request,
        timeout: Duration,
        doing: &str,
    ) -> Result<Reply, MachineError> {
        self.ask(request, timeout, &mut no_files)
            .map_err(|reason| self.error(reason, doing))
    }

    /// Waits for a message.
    pub fn reply(&mut self, timeout: Duration, files: &mut Files<'_>) -> Result<Reply, NoMessage> {
        self.lines
            .message(Instant::now() + timeout, self.interrupt, files)
    }

    /// Sends a request that has no answer.
    pub fn send_request(&mut self, request: &Request) -> Result<(), MachineError> {
        let frame = encode(request).map_err(|e| self.invalid_message(e.to_string()))?;
        self.send(&frame)
    }

    /// Sends a frame while a command runs.
    pub fn send(&mut self, frame: &[u8]) -> Result<(), MachineError> {
        if self.lines.send(frame).is_err() {
            self.lines.drain_console();
            return Err(self.error(NoMessage::Closed, "running the command"));
        }
        Ok(())
    }

    /// The error of a machine that did not answer while it was `doing` something.
    pub fn error(&mut self, reason: NoMessage, doing: &str) -> MachineError {
        let machine = self.machine;
        let (tail, log) = (self.lines.tail(), self.lines.log_path());
        match reason {
            NoMessage::Closed => {
                let status = self.child.wait(CLOSE_TIMEOUT).unwrap_or(-1);
                if self.lines.panicked() {
                    return MachineError::Panic { tail, log };
                }
                MachineError::Ended {
                    machine,
                    doing: doing.to_owned(),
                    status,
                    tail,
                    log,
                }
            }
            NoMessage::ServerEnded => match &mut self.server {
                Some(server) => server.ended(doing),
                None => self.invalid_message("no server"),
            },
            NoMessage::Timeout => MachineError::Silent {
                machine,
                seconds: QMP_TIMEOUT.as_secs(),
                tail,
                log,
            },
            NoMessage::Interrupted => MachineError::Interrupted,
            NoMessage::Invalid(what) => self.invalid_message(what),
            NoMessage::Failed(e) => MachineError::system(format!("listening to {machine}"), e),
        }
    }

    /// The error of a workload that had no result in time.
    pub fn timeout(&self, workload: WorkloadName, timeout: Duration) -> MachineError {
        MachineError::Timeout {
            machine: self.machine,
            workload,
            seconds: timeout.as_secs(),
            tail: self.lines.tail(),
            log: self.lines.log_path(),
        }
    }

    /// The error of an agent that answered something else than it was asked for.
    pub fn unexpected(&self, asked: &str) -> MachineError {
        self.invalid_message(format!("an unexpected reply to {asked}"))
    }

    /// The error of an agent that sent an invalid message.
    pub fn invalid_message(&self, what: impl Into<String>) -> MachineError {
        MachineError::InvalidMessage {
            machine: self.machine,
            what: what.into(),
            log: self.lines.log_path(),
        }
    }
}
