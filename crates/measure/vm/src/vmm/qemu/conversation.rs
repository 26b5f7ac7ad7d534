//! A conversation with QEMU's monitor over its socket, in QMP: lines of JSON.

use crate::MachineError;
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

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
    ) -> Result<Conversation, MachineError> {
        // A command is small: it waits only where none is read any more.
        stream
            .set_write_timeout(Some(timeout))
            .map_err(|e| MachineError::Monitor(e.to_string()))?;
        let mut conversation = Conversation {
            stream,
            unread: Vec::new(),
            number: 0,
            of: Answerer::Qmp,
        };
        let greeted = conversation.answer(Limit::begin(greeting))?;
        if greeted.get("QMP").is_none() {
            return Err(MachineError::Monitor(format!(
                "unexpected greeting {greeted}"
            )));
        }
        conversation.execute("qmp_capabilities", &json!({}), timeout)?;
        Ok(conversation)
    }

    /// With a guest's agent, which sends no greeting: what is left of others' conversations is skipped.
    pub fn with_agent(stream: UnixStream, timeout: Duration) -> Result<Conversation, MachineError> {
        let error = |e: std::io::Error| MachineError::Monitor(e.to_string());
        stream.set_write_timeout(Some(timeout)).map_err(error)?;
        let (id, limit) = (u64::from(std::process::id()), Limit::begin(timeout));
        let mut conversation = Conversation {
            stream,
            unread: Vec::new(),
            number: id,
            of: Answerer::GuestAgent,
        };
        // The byte resets the agent's parser, whatever a client before sent in half.
        let request = format!(
            "{}\n",
            json!({ "execute": "guest-sync", "arguments": { "id": id } })
        );
        conversation.stream.write_all(b"\xff").map_err(error)?;
        conversation
            .stream
            .write_all(request.as_bytes())
            .map_err(error)?;
        // Each line costs the guest's agent a write; what is no JSON ends a line, too.
        for _ in 0..MAX_OLD_LINES {
            let line = conversation.line(limit)?;
            if serde_json::from_slice::<Value>(&line).is_ok_and(|answer| answer["return"] == id) {
                return Ok(conversation);
            }
        }
        Err(MachineError::Monitor(
            "no agent answers in the guest".to_owned(),
        ))
    }

    /// Executes a command and returns its result; events are skipped.
    pub fn execute(
        &mut self,
        command: &str,
        arguments: &Value,
        timeout: Duration,
    ) -> Result<Value, MachineError> {
        self.ask(command, arguments, timeout)?
    }

    /// Executes a command as [`Conversation::execute`] does; the inner error is that QEMU refused, after which the
    /// conversation goes on.
    pub fn ask(
        &mut self,
        command: &str,
        arguments: &Value,
        timeout: Duration,
    ) -> Result<Result<Value, MachineError>, MachineError> {
        let limit = Limit::begin(timeout);
        self.number += 1;
        let request = format!(
            "{}\n",
            json!({ "execute": command, "arguments": arguments, "id": self.number })
        );
        self.stream
            .write_all(request.as_bytes())
            .map_err(|e| MachineError::Monitor(format!("{command}: {e}")))?;
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

    fn answer(&mut self, limit: Limit) -> Result<Value, MachineError> {
        let line = self.line(limit)?;
        serde_json::from_slice(&line).map_err(|e| MachineError::Monitor(e.to_string()))
    }

    fn line(&mut self, limit: Limit) -> Result<Vec<u8>, MachineError> {
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
                return Err(MachineError::Monitor(format!(
                    "a response is longer than {MAX_LINE} bytes"
                )));
            }
            let read = self
                .stream
                .set_read_timeout(Some(left))
                .and_then(|()| self.stream.read(&mut buffer));
            match read {
                Ok(0) => return Err(MachineError::Monitor("connection closed".to_owned())),
                Ok(n) => self.unread.extend_from_slice(&buffer[..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) => return Err(MachineError::Monitor(e.to_string())),
            }
        }
    }
}

impl Conversation {
    fn timeout(&self, time: Duration) -> MachineError {
        let seconds = time.as_secs_f64();
        match self.of {
            Answerer::Qmp => MachineError::MonitorTimeout {
                seconds,
                has_client: false,
            },
            Answerer::GuestAgent => {
                MachineError::Monitor(format!("no agent in the guest answered within {seconds} s"))
            }
        }
    }
}

/// Returns the result from QEMU, or the reason of its refusal; `None` for an event.
pub(crate) fn returned(command: &str, mut answer: Value) -> Option<Result<Value, MachineError>> {
    if let Some(returned) = answer.get_mut("return") {
        return Some(Ok(returned.take()));
    }
    answer
        .get("error")
        .map(|error| Err(MachineError::Monitor(format!("{command}: {error}"))))
}
