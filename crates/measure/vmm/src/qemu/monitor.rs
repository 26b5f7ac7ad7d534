//! QEMU's monitor: the few commands that are needed, as JSON. A typed schema would refuse the answers of other QEMU versions.

use super::conversation::{Conversation, SharedSocket};
use super::libvirt::{DaemonId, Domain, DomainStats};
use crate::VmmError;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time limit for a monitor command of a QEMU that vmtax started, and for a machine to end.
pub const QMP_TIMEOUT: Duration = Duration::from_secs(10);

/// A running QEMU's monitor. Copies share the connection.
#[derive(Debug, Clone)]
pub struct Monitor {
    way: Arc<Way>,
    /// Time limit for an answer.
    timeout: Duration,
}

/// Connection to a monitor, by its kind.
#[derive(Debug)]
enum Way {
    /// A connection that stays: of a QEMU that vmtax started, which has no other client. Measuring and profiling both use it,
    /// one command at a time.
    Held(Mutex<Conversation>),
    /// A socket that serves one client at a time, and not only vmtax: connected for each command.
    Shared(SharedSocket),
    /// libvirt, which keeps the connection to itself.
    Libvirt(Domain),
}

impl Monitor {
    /// Reads the greeting within `greeting`, and leaves negotiation mode. Each response may take `timeout`.
    ///
    /// # Errors
    /// [`VmmError::Monitor`] where the other end is no monitor, [`VmmError::MonitorTimeout`] where it does not greet.
    pub fn connect(
        stream: UnixStream,
        greeting: Duration,
        timeout: Duration,
    ) -> Result<Monitor, VmmError> {
        let conversation = Conversation::begin(stream, greeting, timeout)?;
        Ok(Monitor::by(Way::Held(Mutex::new(conversation)), timeout))
    }

    /// One whose socket others use, too.
    pub(crate) fn shared(socket: SharedSocket, timeout: Duration) -> Monitor {
        Monitor::by(Way::Shared(socket), timeout)
    }

    /// Returns the monitor of a libvirt domain.
    pub(crate) fn of_domain(domain: Domain, timeout: Duration) -> Monitor {
        Monitor::by(Way::Libvirt(domain), timeout)
    }

    fn by(way: Way, timeout: Duration) -> Monitor {
        let way = Arc::new(way);
        Monitor { way, timeout }
    }

    /// Returns true if commands taint the domain: libvirt taints a domain whose monitor is used.
    pub fn taints(&self) -> bool {
        matches!(*self.way, Way::Libvirt(_))
    }

    /// Executes a command and returns its result; events are skipped.
    ///
    /// # Errors
    /// [`VmmError::Monitor`] where it cannot be reached or refuses the command, [`VmmError::MonitorTimeout`] where it does not
    /// answer.
    pub fn execute(&self, command: &str) -> Result<Value, VmmError> {
        self.execute_with(command, &json!({}))
    }

    /// Executes several commands, each with its arguments, in one conversation. One that QEMU refuses does not end it.
    ///
    /// # Errors
    /// [`VmmError::Monitor`] where the monitor cannot be reached, [`VmmError::MonitorTimeout`] where it does not answer.
    pub(crate) fn execute_all(
        &self,
        commands: &[(&str, Value)],
    ) -> Result<Vec<Result<Value, VmmError>>, VmmError> {
        match &*self.way {
            Way::Shared(socket) => {
                let mut conversation = socket.connect(self.timeout)?;
                let ask = |(command, arguments): &(&str, Value)| {
                    conversation.ask(command, arguments, self.timeout)
                };
                commands.iter().map(ask).collect()
            }
            _ => {
                let ask = |(command, arguments): &(&str, Value)| {
                    match self.execute_with(command, arguments) {
                        // The next would not be answered, either.
                        Err(error @ VmmError::MonitorTimeout { .. }) => Err(error),
                        answer => Ok(answer),
                    }
                };
                commands.iter().map(ask).collect()
            }
        }
    }

    /// Executes a command of the agent in a libvirt domain's guest and returns its result.
    ///
    /// # Errors
    /// [`VmmError::Monitor`] for a VM of no libvirt, and where no agent answers.
    pub(crate) fn ask_agent(
        &self,
        command: &str,
        arguments: &Value,
        timeout: Duration,
    ) -> Result<Value, VmmError> {
        match &*self.way {
            Way::Libvirt(domain) => domain.ask_agent(command, arguments, timeout),
            _ => Err(VmmError::Monitor(
                "libvirt does not have this VM".to_owned(),
            )),
        }
    }

    /// The libvirt daemon that has it; `None` for a VM of no libvirt.
    pub fn daemon(&self) -> Option<DaemonId> {
        match &*self.way {
            Way::Libvirt(domain) => Some(domain.daemon()),
            _ => None,
        }
    }

    /// Returns the daemon's statistics of all its domains, by their names, without a taint; empty for a VM of no
    /// libvirt.
    ///
    /// # Errors
    /// [`VmmError::Monitor`] where it does not answer.
    pub fn domain_stats(&self) -> Result<BTreeMap<String, DomainStats>, VmmError> {
        match &*self.way {
            Way::Libvirt(domain) => domain.all_stats(self.timeout),
            _ => Ok(BTreeMap::new()),
        }
    }

    /// Returns a property of one of QEMU's objects, by the object's path.
    pub(crate) fn property(&self, path: &str, name: &str) -> Result<Value, VmmError> {
        let (command, arguments) = qom_get(path, name);
        self.execute_with(command, &arguments)
    }

    /// Executes a command with arguments and returns its result; events are skipped.
    ///
    /// # Errors
    /// [`VmmError::Monitor`] where it cannot be reached or refuses the command, [`VmmError::MonitorTimeout`] where it does not
    /// answer.
    pub fn execute_with(&self, command: &str, arguments: &Value) -> Result<Value, VmmError> {
        match &*self.way {
            Way::Held(conversation) => {
                // A thread that panicked left at most one response unread, which its id distinguishes.
                let mut conversation = conversation.lock().unwrap_or_else(PoisonError::into_inner);
                conversation.execute(command, arguments, self.timeout)
            }
            Way::Shared(socket) => {
                socket
                    .connect(self.timeout)?
                    .execute(command, arguments, self.timeout)
            }
            Way::Libvirt(domain) => domain.execute(command, arguments, self.timeout),
        }
    }
}

/// The command that returns a property of one of QEMU's objects, by the object's path.
pub(super) fn qom_get(path: impl Serialize, property: &str) -> (&'static str, Value) {
    ("qom-get", json!({ "path": path, "property": property }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn monitor_that_reads(lines: &str) -> Result<Value, VmmError> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(lines.as_bytes()).unwrap();
        let timeout = Duration::from_millis(200);
        Monitor::connect(ours, timeout, timeout)?.execute("query-kvm")
    }

    #[test]
    fn events_are_skipped_and_errors_are_reported() {
        let hello = "{\"QMP\": {}}\n{\"return\": {}}\n";
        let answer = monitor_that_reads(&format!(
            "{hello}{{\"event\": \"RESUME\"}}\n{{\"return\": {{\"enabled\": true}}}}\n"
        ));
        assert_eq!(answer.unwrap()["enabled"], true);
        let refused = monitor_that_reads(&format!("{hello}{{\"error\": {{\"desc\": \"no\"}}}}\n"));
        assert!(refused.unwrap_err().to_string().contains("no"));
        let late = "{\"return\": {\"enabled\": true}, \"id\": 1}\n{\"return\": {\"enabled\": false}, \"id\": 2}\n";
        assert_eq!(
            monitor_that_reads(&format!("{hello}{late}")).unwrap()["enabled"],
            false,
            "the first is another's"
        );
        assert!(monitor_that_reads("garbage\n").is_err());
        assert_eq!(
            monitor_that_reads(hello).unwrap_err().to_string(),
            "QMP did not answer within 0.2 s"
        );
    }
}
