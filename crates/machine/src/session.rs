//! A machine that is up.

use crate::child::Child;
use crate::console::{Console, printable_tail};
use crate::lines::{Lines, Nothing};
use crate::qemu::Streams;
use crate::qmp::Monitor;
use crate::setup::{Setup, Target};
use crate::{Interrupt, MachineError, native, qemu};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use vmtax_model::{MachineName, TrialResult, Warning, WorkloadSpec};
use vmtax_wire::{Hello, Reply, Request, encode};

/// How long QEMU may take over a monitor command, and a machine over its end.
const PATIENCE: Duration = Duration::from_secs(10);
/// After a machine's stream closed, its process is gone within moments.
const CLOSING: Duration = Duration::from_secs(2);

/// A machine that is up and waits for workloads. Ends with the value, in whatever way that is dropped.
#[derive(Debug)]
pub struct Session<'a> {
    machine: MachineName,
    interrupt: &'a Interrupt,
    hello: Hello,
    warnings: Vec<Warning>,
    boot: Duration,
    lines: Lines,
    monitor: Option<Monitor>,
    child: Child,
}

impl<'a> Session<'a> {
    /// Starts a machine and waits for its agent.
    ///
    /// # Errors
    /// [`MachineError`] saying what the machine's console or QEMU said last.
    pub fn start(setup: &Setup<'a>) -> Result<Session<'a>, MachineError> {
        let began = Instant::now();
        let pair = || UnixStream::pair().map_err(|e| MachineError::system("making a socket pair", e));
        let (channel, their_channel) = pair()?;
        let mut lines = Lines::new(channel, setup.log);
        let machine = setup.target.name();
        let (mut child, warnings, monitor) = match setup.target {
            Target::Kvm(image) | Target::Tcg(image) => {
                let (console, their_console) = pair()?;
                let (monitor, their_monitor) = pair()?;
                let log = Console::create(setup.log.join("console.log"))?;
                lines.add_console(console, log);
                let streams = Streams {
                    agent: their_channel.into(),
                    console: their_console.into(),
                    monitor: their_monitor.into(),
                };
                (qemu::start(setup, image, streams)?, Vec::new(), Some(monitor))
            }
            Target::Native => {
                let (child, warnings) = native::start(setup, their_channel.into())?;
                (child, warnings, None)
            }
        };
        let hello = match lines.message(began + setup.boot_deadline, setup.interrupt) {
            Ok(Reply::Hello(hello)) => hello,
            Ok(_) => return Err(nonsense(machine, &lines, "an answer before a greeting")),
            Err(nothing) => return Err(boot_error(&lines, nothing, setup, &mut child)),
        };
        let boot = began.elapsed();
        if hello.cpus != setup.cpus {
            return Err(MachineError::Processors { machine, asked: setup.cpus, got: hello.cpus });
        }
        let monitor = match monitor {
            Some(stream) => Some(Monitor::connect(stream, PATIENCE)?),
            None => None,
        };
        let mut session = Session { machine, interrupt: setup.interrupt, hello, warnings, boot, lines, monitor, child };
        session.check_accelerator()?;
        Ok(session)
    }

    /// What the agent said first.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// From the start of its process to the agent's first message.
    pub fn boot(&self) -> Duration {
        self.boot
    }

    /// What the reader of figures from this machine should know.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Runs one workload to its end.
    ///
    /// # Errors
    /// [`MachineError`]; after one that does not leave the machine up, the session is of no more use.
    pub fn run(&mut self, workload: &WorkloadSpec, deadline: Duration) -> Result<TrialResult, MachineError> {
        let request = encode(&Request::Run { workload: workload.clone() })
            .map_err(|e| nonsense(self.machine, &self.lines, e.to_string()))?;
        let reply = match self.lines.send(&request) {
            Ok(()) => self.lines.message(Instant::now() + deadline, self.interrupt),
            Err(_) => {
                self.lines.drain_console();
                Err(Nothing::Closed)
            }
        };
        match reply {
            Ok(Reply::Done { result }) if result.workload.name == workload.name => Ok(*result),
            Ok(Reply::Done { result }) => {
                Err(nonsense(self.machine, &self.lines, format!("a result of {}", result.workload.name)))
            }
            Ok(Reply::Failed { error }) => Err(MachineError::Workload(error)),
            Ok(Reply::Hello(_)) => Err(nonsense(self.machine, &self.lines, "a second greeting")),
            Err(nothing) => Err(self.trial_error(nothing, workload, deadline)),
        }
    }

    /// Ends the machine in good order: the agent leaves, a guest powers off.
    pub fn end(mut self) {
        if let Ok(leave) = encode(&Request::Leave) {
            let _ = self.lines.send(&leave);
        }
        if self.child.wait(CLOSING).is_none() {
            if let Some(monitor) = &mut self.monitor {
                let _ = monitor.execute("quit", PATIENCE);
                self.child.wait(CLOSING);
            }
        }
    }

    /// QEMU can fall back to translation; a figure said to be KVM's must be KVM's.
    fn check_accelerator(&mut self) -> Result<(), MachineError> {
        let (MachineName::Kvm, Some(monitor)) = (self.machine, &mut self.monitor) else { return Ok(()) };
        let answer = monitor.execute("query-kvm", PATIENCE)?;
        if answer.get("enabled").and_then(serde_json::Value::as_bool) == Some(true) {
            Ok(())
        } else {
            Err(MachineError::NotKvm)
        }
    }

    fn trial_error(&mut self, nothing: Nothing, workload: &WorkloadSpec, deadline: Duration) -> MachineError {
        let machine = self.machine;
        let (tail, log) = (self.lines.tail(), self.lines.log_path());
        match nothing {
            Nothing::Closed => {
                let status = self.child.wait(CLOSING).unwrap_or(-1);
                if self.lines.panicked() {
                    return MachineError::Panic { tail, log };
                }
                MachineError::Ended { machine, doing: format!("running {}", workload.name), status, tail, log }
            }
            Nothing::TooLate => {
                MachineError::Deadline { machine, workload: workload.name, seconds: deadline.as_secs(), tail, log }
            }
            Nothing::Interrupted => MachineError::Interrupted,
            Nothing::Nonsense(what) => nonsense(machine, &self.lines, what),
            Nothing::Failed(e) => MachineError::system(format!("listening to {machine}"), e),
        }
    }
}

fn boot_error(lines: &Lines, nothing: Nothing, setup: &Setup<'_>, child: &mut Child) -> MachineError {
    let machine = setup.target.name();
    let (tail, log) = (lines.tail(), lines.log_path());
    match nothing {
        Nothing::Closed => {
            let status = child.wait(CLOSING).unwrap_or(-1);
            let qemu_log = qemu::log(setup.log);
            let said = printable_tail(&std::fs::read(&qemu_log).unwrap_or_default());
            if lines.panicked() {
                MachineError::Panic { tail, log }
            } else if machine.is_guest() && !said.is_empty() && status != 0 {
                MachineError::Refused { status, said, log: qemu_log }
            } else {
                MachineError::Ended { machine, doing: "coming up".to_owned(), status, tail, log }
            }
        }
        Nothing::TooLate => MachineError::Silent { machine, seconds: setup.boot_deadline.as_secs(), tail, log },
        Nothing::Interrupted => MachineError::Interrupted,
        Nothing::Nonsense(what) => nonsense(machine, lines, what),
        Nothing::Failed(e) => MachineError::system(format!("listening to {machine}"), e),
    }
}

fn nonsense(machine: MachineName, lines: &Lines, what: impl Into<String>) -> MachineError {
    MachineError::Nonsense { machine, what: what.into(), log: lines.log_path() }
}
