//! QEMU's monitor: the few commands that are needed, as lines of JSON. A typed schema would refuse the answers of other
//! QEMU versions.
//!
//! A QMP socket serves one client, but measuring and profiling a guest both use it: all copies of a monitor share one
//! connection, one command at a time.

use crate::MachineError;
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a QEMU of the lab may take over a monitor command, and a machine over its end.
pub(crate) const QMP_TIMEOUT: Duration = Duration::from_secs(10);

/// No answer to our commands comes near this, bytes.
const MAX_LINE: usize = 1 << 20;

/// A running QEMU's monitor. Copies share the connection.
#[derive(Debug, Clone)]
pub struct Monitor {
    conversation: Arc<Mutex<Conversation>>,
    /// How long an answer may take.
    timeout: Duration,
}

#[derive(Debug)]
struct Conversation {
    stream: UnixStream,
    unread: Vec<u8>,
    /// The last command's.
    number: u64,
}

impl Monitor {
    /// Reads the greeting within `greeting`, and leaves negotiation mode. Each response may take `timeout`.
    pub(crate) fn connect(stream: UnixStream, greeting: Duration, timeout: Duration) -> Result<Monitor, MachineError> {
        // A command is small: it waits only where none is read any more.
        stream.set_write_timeout(Some(timeout)).map_err(|e| MachineError::Monitor(e.to_string()))?;
        let mut conversation = Conversation { stream, unread: Vec::new(), number: 0 };
        let greeted = conversation.line(Instant::now() + greeting)?;
        if greeted.get("QMP").is_none() {
            return Err(MachineError::Monitor(format!("unexpected greeting {greeted}")));
        }
        let monitor = Monitor { conversation: Arc::new(Mutex::new(conversation)), timeout };
        monitor.execute("qmp_capabilities")?;
        Ok(monitor)
    }

    /// Executes a command and returns its result; events are skipped.
    pub(crate) fn execute(&self, command: &str) -> Result<Value, MachineError> {
        self.execute_with(command, &json!({}))
    }

    /// The same, with arguments.
    pub(crate) fn execute_with(&self, command: &str, arguments: &Value) -> Result<Value, MachineError> {
        self.lock().execute(command, arguments, Instant::now() + self.timeout)
    }

    /// A thread that panicked left at most one response unread, which its id distinguishes.
    fn lock(&self) -> MutexGuard<'_, Conversation> {
        self.conversation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Conversation {
    fn execute(&mut self, command: &str, arguments: &Value, deadline: Instant) -> Result<Value, MachineError> {
        self.number += 1;
        let request = format!("{}\n", json!({ "execute": command, "arguments": arguments, "id": self.number }));
        self.stream.write_all(request.as_bytes()).map_err(|e| MachineError::Monitor(format!("{command}: {e}")))?;
        loop {
            let mut answer = self.line(deadline)?;
            // A late response to a command that timed out.
            if answer.get("id").is_some_and(|id| *id != self.number) {
                continue;
            }
            if let Some(returned) = answer.get_mut("return") {
                return Ok(returned.take());
            }
            if let Some(error) = answer.get("error") {
                return Err(MachineError::Monitor(format!("{command}: {error}")));
            }
        }
    }

    fn line(&mut self, deadline: Instant) -> Result<Value, MachineError> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(end) = self.unread.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return serde_json::from_slice(&line).map_err(|e| MachineError::Monitor(e.to_string()));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.unread.len() > MAX_LINE {
                return Err(MachineError::Monitor("no response within the timeout".to_owned()));
            }
            let read = self.stream.set_read_timeout(Some(left)).and_then(|()| self.stream.read(&mut buffer));
            match read {
                Ok(0) => return Err(MachineError::Monitor("connection closed".to_owned())),
                Ok(n) => self.unread.extend_from_slice(&buffer[..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) => return Err(MachineError::Monitor(e.to_string())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn monitor_that_reads(lines: &str) -> Result<Value, MachineError> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(lines.as_bytes()).unwrap();
        let timeout = Duration::from_millis(200);
        Monitor::connect(ours, timeout, timeout)?.execute("query-kvm")
    }

    #[test]
    fn events_are_skipped_and_errors_are_reported() {
        let hello = "{\"QMP\": {}}\n{\"return\": {}}\n";
        let answer =
            monitor_that_reads(&format!("{hello}{{\"event\": \"RESUME\"}}\n{{\"return\": {{\"enabled\": true}}}}\n"));
        assert_eq!(answer.unwrap()["enabled"], true);
        let refused = monitor_that_reads(&format!("{hello}{{\"error\": {{\"desc\": \"no\"}}}}\n"));
        assert!(refused.unwrap_err().to_string().contains("no"));
        let late = "{\"return\": {\"enabled\": true}, \"id\": 1}\n{\"return\": {\"enabled\": false}, \"id\": 2}\n";
        assert_eq!(monitor_that_reads(&format!("{hello}{late}")).unwrap()["enabled"], false, "the first is another's");
        assert!(monitor_that_reads("garbage\n").is_err());
        assert!(monitor_that_reads(hello).unwrap_err().to_string().contains("within the timeout"));
    }
}
