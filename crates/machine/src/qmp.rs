//! QEMU's monitor: the few commands that are needed, as lines of JSON. A typed schema would refuse the answers of other
//! QEMU versions.

use crate::MachineError;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// No answer to our commands comes near this.
const LONGEST_LINE: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Monitor {
    stream: UnixStream,
    unread: Vec<u8>,
}

impl Monitor {
    /// Takes the greeting and leaves negotiation mode.
    pub fn connect(stream: UnixStream, patience: Duration) -> Result<Monitor, MachineError> {
        let mut monitor = Monitor { stream, unread: Vec::new() };
        let greeting = monitor.line(Instant::now() + patience)?;
        if greeting.get("QMP").is_none() {
            return Err(MachineError::Monitor(format!("unexpected greeting {greeting}")));
        }
        monitor.execute("qmp_capabilities", patience)?;
        Ok(monitor)
    }

    /// Gives what the command returns; events in between are passed over.
    pub fn execute(&mut self, command: &str, patience: Duration) -> Result<Value, MachineError> {
        self.execute_with(command, &json!({}), patience)
    }

    /// The same, with arguments.
    pub fn execute_with(
        &mut self,
        command: &str,
        arguments: &Value,
        patience: Duration,
    ) -> Result<Value, MachineError> {
        let deadline = Instant::now() + patience;
        let request = format!("{}\n", json!({ "execute": command, "arguments": arguments }));
        self.stream.write_all(request.as_bytes()).map_err(|e| MachineError::Monitor(format!("{command}: {e}")))?;
        loop {
            let mut answer = self.line(deadline)?;
            if let Some(returned) = answer.get_mut("return") {
                return Ok(returned.take());
            }
            if let Some(error) = answer.get("error") {
                return Err(MachineError::Monitor(format!("{command}: {error}")));
            }
        }
    }

    /// QEMU can fall back to translation; a figure said to be KVM's must be KVM's.
    pub fn check_kvm(&mut self, patience: Duration) -> Result<(), MachineError> {
        let answer = self.execute("query-kvm", patience)?;
        let enabled = answer.get("enabled").and_then(Value::as_bool);
        if enabled == Some(true) { Ok(()) } else { Err(MachineError::NotKvm) }
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
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
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
        assert!(monitor_that_hears("garbage\n").is_err());
        assert!(monitor_that_hears(hello).unwrap_err().to_string().contains("in time"));
    }
}
