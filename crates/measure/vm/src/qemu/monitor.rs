//! QEMU's monitor: the few commands that are needed, as lines of JSON. A typed schema would refuse the answers of other
//! QEMU versions.
//!
//! A socket takes one visitor, and who measures and who profiles a guest both have questions: so all copies of a monitor
//! share one conversation, a command at a time.

use crate::MachineError;
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long QEMU may take over a monitor command, and a machine over its end.
pub(crate) const QMP_TIMEOUT: Duration = Duration::from_secs(10);

/// No answer to our commands comes near this.
const LONGEST_LINE: usize = 1 << 20;

#[derive(Debug, Clone)]
pub(crate) struct Monitor(Arc<Mutex<Conversation>>);

#[derive(Debug)]
struct Conversation {
    stream: UnixStream,
    unread: Vec<u8>,
    /// The last command's.
    number: u64,
}

impl Monitor {
    /// Takes the greeting and leaves negotiation mode.
    pub fn connect(stream: UnixStream, patience: Duration) -> Result<Monitor, MachineError> {
        let mut conversation = Conversation { stream, unread: Vec::new(), number: 0 };
        let greeting = conversation.line(Instant::now() + patience)?;
        if greeting.get("QMP").is_none() {
            return Err(MachineError::Monitor(format!("unexpected greeting {greeting}")));
        }
        let monitor = Monitor(Arc::new(Mutex::new(conversation)));
        monitor.execute("qmp_capabilities", patience)?;
        Ok(monitor)
    }

    /// Gives what the command returns; events in between are passed over.
    pub fn execute(&self, command: &str, patience: Duration) -> Result<Value, MachineError> {
        self.execute_with(command, &json!({}), patience)
    }

    /// The same, with arguments.
    pub fn execute_with(&self, command: &str, arguments: &Value, patience: Duration) -> Result<Value, MachineError> {
        self.taken().execute(command, arguments, Instant::now() + patience)
    }

    /// What a person's command prints, such as `info mtree -f`; of a processor, where the command is about one.
    pub fn human(&self, line: &str, processor: Option<u32>, patience: Duration) -> Result<String, MachineError> {
        let mut arguments = json!({ "command-line": line });
        if let Some(processor) = processor {
            arguments["cpu-index"] = processor.into();
        }
        let text = self.execute_with("human-monitor-command", &arguments, patience)?;
        let unknown = || MachineError::Monitor(format!("{line}: no text"));
        text.as_str().map(str::to_owned).ok_or_else(unknown)
    }

    /// QEMU can fall back to translation; a figure said to be KVM's must be KVM's.
    pub fn check_kvm(&self, patience: Duration) -> Result<(), MachineError> {
        let answer = self.execute("query-kvm", patience)?;
        let enabled = answer.get("enabled").and_then(Value::as_bool);
        if enabled == Some(true) { Ok(()) } else { Err(MachineError::NotKvm) }
    }

    /// Who panicked in the middle left at most an answer unread, which its number tells from others.
    fn taken(&self) -> MutexGuard<'_, Conversation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Conversation {
    fn execute(&mut self, command: &str, arguments: &Value, deadline: Instant) -> Result<Value, MachineError> {
        self.number += 1;
        let request = format!("{}\n", json!({ "execute": command, "arguments": arguments, "id": self.number }));
        self.stream.write_all(request.as_bytes()).map_err(|e| MachineError::Monitor(format!("{command}: {e}")))?;
        loop {
            let mut answer = self.line(deadline)?;
            // The answer to a command that was given up came late.
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
            if left.is_zero() || self.unread.len() > LONGEST_LINE {
                return Err(MachineError::Monitor("no answer in time".to_owned()));
            }
            let read = self.stream.set_read_timeout(Some(left)).and_then(|()| self.stream.read(&mut buffer));
            match read {
                Ok(0) => return Err(MachineError::Monitor("closed".to_owned())),
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

    fn monitor_that_hears(lines: &str) -> Result<Value, MachineError> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(lines.as_bytes()).unwrap();
        let patience = Duration::from_millis(200);
        Monitor::connect(ours, patience)?.execute("query-kvm", patience)
    }

    #[test]
    fn events_are_passed_over_and_errors_are_told() {
        let hello = "{\"QMP\": {}}\n{\"return\": {}}\n";
        let answer =
            monitor_that_hears(&format!("{hello}{{\"event\": \"RESUME\"}}\n{{\"return\": {{\"enabled\": true}}}}\n"));
        assert_eq!(answer.unwrap()["enabled"], true);
        let refused = monitor_that_hears(&format!("{hello}{{\"error\": {{\"desc\": \"no\"}}}}\n"));
        assert!(refused.unwrap_err().to_string().contains("no"));
        let late = "{\"return\": {\"enabled\": true}, \"id\": 1}\n{\"return\": {\"enabled\": false}, \"id\": 2}\n";
        assert_eq!(monitor_that_hears(&format!("{hello}{late}")).unwrap()["enabled"], false, "the first is another's");
        assert!(monitor_that_hears("garbage\n").is_err());
        assert!(monitor_that_hears(hello).unwrap_err().to_string().contains("in time"));
    }
}
