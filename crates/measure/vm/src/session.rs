//! A machine that is up.

use crate::child::Child;
use crate::console::{Console, printable_tail};
use crate::jail::TREE;
use crate::lines::{Files, Lines, Nothing};
use crate::outside::{self, QemuOutside};
use crate::processor::Spenders;
use crate::qemu::{SHARED_BYTES, Streams};
use crate::qmp::Monitor;
use crate::setup::{Boot, Setup};
use crate::share::{self, Server};
use crate::{Interrupt, MachineError, QemuMonitor, Sharing, extra, native, qemu};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use vmtax_clock::{GUEST_CELL, HOST_CELL, Shared};
use vmtax_model::{
    Inside, Machine, Missing, Ping, Probes, ProcessorSeconds, ShareFacts, TrialResult, Warning, WorkloadSpec,
};
use vmtax_wire::{Hello, Observed, Reply, Request, encode};

/// How long QEMU may take over a monitor command, and a machine over its end.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a guest may take over measuring what looking at it costs.
const GETTING_READY: Duration = Duration::from_secs(120);
/// After a machine's stream closed, its process is gone within moments.
const CLOSING: Duration = Duration::from_secs(2);

/// A machine that is up and waits for workloads. Ends with the value, in whatever way that is dropped.
#[derive(Debug)]
pub struct Session<'a> {
    pub(crate) machine: Machine,
    pub(crate) interrupt: &'a Interrupt,
    hello: Hello,
    warnings: Vec<Warning>,
    boot: Duration,
    ready: Duration,
    pub(crate) lines: Lines,
    qemu: Option<Qemu>,
    share: Option<ShareFacts>,
    child: Child,
    /// Ends after the guest.
    server: Option<Server>,
}

/// A guest's QEMU, as it is reached from outside.
#[derive(Debug)]
struct Qemu {
    monitor: Monitor,
    shared: Shared,
    spenders: Spenders,
}

impl<'a> Session<'a> {
    /// Starts a machine and waits for its agent.
    ///
    /// # Errors
    /// [`MachineError`] saying what the machine's console or QEMU said last.
    pub fn start(setup: &Setup<'a>) -> Result<Session<'a>, MachineError> {
        let mut served = match setup.share {
            Some(sharing) => Server::start(sharing, setup)?,
            None => None,
        };
        let began = Instant::now();
        let pair = || UnixStream::pair().map_err(|e| MachineError::system("making a socket pair", e));
        let (channel, their_channel) = pair()?;
        let mut lines = Lines::new(channel, setup.log);
        let machine = setup.machine;
        let (mut server, reach) = served.take().unzip();
        if let Some(server) = &server {
            lines.watch(server.watch()?);
        }
        let mut words = Vec::new();
        let (mut child, warnings, monitor) = match setup.boot {
            Boot::Linux(image) => {
                let (console, their_console) = pair()?;
                let (monitor, their_monitor) = pair()?;
                let log = Console::create(setup.log.join("console.log"))?;
                lines.add_console(console, log);
                let shared = Shared::create(SHARED_BYTES)?;
                let streams = Streams {
                    agent: Some((their_channel.into(), their_console.into())),
                    monitor: their_monitor.into(),
                    shared: shared.descriptor()?,
                    server: reach,
                };
                let guest = qemu::start(setup, image, streams)?;
                words = guest.share;
                (guest.child, Vec::new(), Some((monitor, shared)))
            }
            Boot::Micro(_) => return Err(MachineError::NoAgent { machine }),
            Boot::Host => {
                let (child, warnings) = native::start(setup, their_channel.into())?;
                (child, warnings, None)
            }
        };
        let hello = match lines.message(began + setup.boot_deadline, setup.interrupt, &mut no_files) {
            Ok(Reply::Hello(hello)) => hello,
            Ok(_) => return Err(nonsense(machine, &lines, "an answer before a greeting")),
            Err(nothing) => return Err(boot_error(&lines, nothing, setup, &mut child, server.as_mut())),
        };
        let boot = began.elapsed();
        if hello.cpus != setup.cpus {
            return Err(MachineError::Processors { machine, asked: setup.cpus, got: hello.cpus });
        }
        let qemu = match monitor {
            Some((stream, shared)) => {
                let monitor = Monitor::connect(stream, PATIENCE)?;
                extra::check(setup, &monitor)?;
                let outside = QemuOutside::ask(&monitor)?;
                let spenders =
                    Spenders { qemu: outside.pid, vcpus: outside.vcpus, server: server.as_ref().map(Server::session) };
                Some(Qemu { monitor, shared, spenders })
            }
            None => None,
        };
        let interrupt = setup.interrupt;
        let share = None;
        let ready = boot;
        let mut session =
            Session { machine, interrupt, hello, warnings, boot, ready, lines, qemu, share, child, server };
        session.check_accelerator()?;
        if let Some(sharing) = setup.share.filter(|_| machine.is_guest()) {
            session.mount(setup, sharing, words)?;
            if let Some(besides) = &sharing.host_root {
                session.make_root(besides, setup.boot_deadline)?;
            }
            session.ready = began.elapsed();
        }
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

    /// From the start of its process until it has its share too.
    pub fn ready(&self) -> Duration {
        self.ready
    }

    /// What the reader of figures from this machine should know.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Has the guest mount its share, and notes what took effect.
    fn mount(&mut self, setup: &Setup<'_>, sharing: &Sharing, words: Vec<String>) -> Result<(), MachineError> {
        let request = Request::Share { mount: share::mount(sharing) };
        let line = match self.ask(&request, setup.boot_deadline, &mut no_files) {
            Ok(Reply::Shared { mount }) => mount,
            Ok(Reply::Failed { error: said }) => {
                let (method, log) = (sharing.share.method, qemu::log(setup.log));
                return Err(MachineError::NotMounted { method, said, log });
            }
            Ok(_) => return Err(nonsense(self.machine, &self.lines, "another answer than to a mount")),
            Err(nothing) => return Err(self.error(nothing, "mounting its share".to_owned())),
        };
        let pid = self.qemu.as_ref().and_then(|qemu| qemu.spenders.serving());
        let command = self.server.as_ref().map(|server| server.command.clone()).unwrap_or_default();
        let (facts, warnings) = share::effect(sharing, line, (words, command), pid, setup.log);
        self.share = Some(facts);
        self.warnings.extend(warnings);
        Ok(())
    }

    /// What took effect of the guest's share.
    pub fn share(&self) -> Option<&ShareFacts> {
        self.share.as_ref()
    }

    /// Where the host sees the tree that the guest shares, if that is not where it lies: as long as the session lasts.
    pub fn served(&self) -> Option<PathBuf> {
        let process =
            self.qemu.as_ref()?.spenders.serving().filter(|_| self.server.as_ref().is_some_and(Server::is_jailed))?;
        Some(format!("/proc/{process}/root{TREE}").into())
    }

    /// Ends the machine as a power cut does, but not the server of its share.
    pub fn cut_off(&mut self) {
        self.child.kill();
    }

    /// What the machine cost the host's processors by now; `None` natively.
    pub fn processor(&self) -> Option<ProcessorSeconds> {
        self.qemu.as_ref().map(|qemu| qemu.spenders.spent())
    }

    /// Runs one workload to its end. Under probes, the files of the guest's trace and the workload's own stamps go to
    /// `files` before it returns.
    ///
    /// # Errors
    /// [`MachineError`]; after one that does not leave the machine up, the session is of no more use.
    pub fn run(
        &mut self,
        workload: &WorkloadSpec,
        probes: Probes,
        deadline: Duration,
        files: &mut Files<'_>,
    ) -> Result<(TrialResult, Option<Observed>), MachineError> {
        let request = Request::Run { workload: workload.clone(), probes };
        match self.ask(&request, deadline, files) {
            Ok(Reply::Done { result, observed }) if result.workload.name == workload.name => Ok((*result, observed)),
            Ok(Reply::Done { result, .. }) => {
                Err(nonsense(self.machine, &self.lines, format!("a result of {}", result.workload.name)))
            }
            Ok(Reply::Failed { error }) => Err(MachineError::Workload(error)),
            Ok(_) => Err(nonsense(self.machine, &self.lines, "an answer to nothing")),
            Err(nothing) => Err(self.trial_error(nothing, workload, deadline)),
        }
    }

    /// Lets the guest look at itself from now on.
    ///
    /// # Errors
    /// [`MachineError`] when it does not answer.
    pub fn look(&mut self, inside: Inside) -> Result<(), MachineError> {
        match self.ask(&Request::Look { inside }, GETTING_READY, &mut no_files) {
            Ok(Reply::Looking) => Ok(()),
            Ok(_) => Err(nonsense(self.machine, &self.lines, "another answer than to being looked at")),
            Err(nothing) => Err(self.error(nothing, "getting ready to be looked at".to_owned())),
        }
    }

    /// Ends that; what the guest saw goes to `files`. Gives what it could not see.
    ///
    /// # Errors
    /// [`MachineError`] when it does not answer within `deadline`, or cannot tell.
    pub fn seen(&mut self, deadline: Duration, files: &mut Files<'_>) -> Result<Vec<Missing>, MachineError> {
        match self.ask(&Request::Tell, deadline, files) {
            Ok(Reply::Seen { missing }) => Ok(missing),
            Ok(Reply::Failed { error }) => Err(MachineError::Workload(error)),
            Ok(_) => Err(nonsense(self.machine, &self.lines, "another answer than what it saw")),
            Err(nothing) => Err(self.error(nothing, "telling what it saw".to_owned())),
        }
    }

    /// Exchanges stamps with the guest for `duration`, to bring both sides' clocks together.
    ///
    /// # Errors
    /// [`MachineError::Clock`] when the guest does not answer, or for the host itself.
    pub fn ping(&mut self, duration: Duration) -> Result<Ping, MachineError> {
        let machine = self.machine;
        let request = encode(&Request::Ping).map_err(|e| nonsense(machine, &self.lines, e.to_string()))?;
        let Some(qemu) = &self.qemu else { return Err(MachineError::NoAgent { machine }) };
        self.lines.send(&request).map_err(|e| MachineError::system("asking for stamps", e))?;
        let ping = vmtax_clock::exchange(&qemu.shared, HOST_CELL, GUEST_CELL, duration);
        match self.lines.message(Instant::now() + PATIENCE, self.interrupt, &mut no_files) {
            Ok(Reply::Pinged) => Ok(ping?),
            Ok(Reply::Failed { error }) => Err(MachineError::Workload(error)),
            Ok(_) => Err(nonsense(machine, &self.lines, "another answer than to an exchange of stamps")),
            Err(nothing) => Err(self.error(nothing, "exchanging stamps".to_owned())),
        }
    }

    /// QEMU from outside: its process and its device. `None` natively.
    ///
    /// # Errors
    /// [`MachineError`] when the monitor does not answer.
    pub fn qemu(&mut self) -> Result<Option<QemuOutside>, MachineError> {
        self.qemu.as_mut().map(|qemu| QemuOutside::ask(&qemu.monitor)).transpose()
    }

    /// Its QEMU's monitor, for others who have questions meanwhile; `None` for the host itself.
    pub fn monitor(&self) -> Option<QemuMonitor> {
        self.qemu.as_ref().map(|qemu| QemuMonitor(qemu.monitor.clone()))
    }

    /// Switches QEMU's own log of block requests on or off.
    ///
    /// # Errors
    /// [`MachineError`] when the monitor does not answer or refuses.
    pub fn log_events(&mut self, on: bool) -> Result<(), MachineError> {
        self.qemu.as_mut().map_or(Ok(()), |qemu| outside::log_events(&qemu.monitor, on))
    }

    pub(crate) fn ask(
        &mut self,
        request: &Request,
        patience: Duration,
        files: &mut Files<'_>,
    ) -> Result<Reply, Nothing> {
        let frame = encode(request).map_err(|e| Nothing::Nonsense(e.to_string()))?;
        if self.lines.send(&frame).is_err() {
            self.lines.drain_console();
            return Err(Nothing::Closed);
        }
        self.lines.message(Instant::now() + patience, self.interrupt, files)
    }

    /// Ends the machine in good order: the agent leaves, a guest powers off.
    pub fn end(mut self) {
        if let Ok(leave) = encode(&Request::Leave) {
            let _ = self.lines.send(&leave);
        }
        if self.child.wait(CLOSING).is_none() {
            if let Some(qemu) = &mut self.qemu {
                let _ = qemu.monitor.execute("quit", PATIENCE);
                self.child.wait(CLOSING);
            }
        }
    }

    fn check_accelerator(&mut self) -> Result<(), MachineError> {
        match (self.machine, &mut self.qemu) {
            (Machine::KVM, Some(qemu)) => qemu.monitor.check_kvm(PATIENCE),
            _ => Ok(()),
        }
    }

    fn trial_error(&mut self, nothing: Nothing, workload: &WorkloadSpec, deadline: Duration) -> MachineError {
        match nothing {
            Nothing::TooLate => {
                let (machine, workload, seconds) = (self.machine, workload.name, deadline.as_secs());
                let (tail, log) = (self.lines.tail(), self.lines.log_path());
                MachineError::Deadline { machine, workload, seconds, tail, log }
            }
            other => self.error(other, format!("running {}", workload.name)),
        }
    }

    pub(crate) fn error(&mut self, nothing: Nothing, doing: String) -> MachineError {
        let machine = self.machine;
        let (tail, log) = (self.lines.tail(), self.lines.log_path());
        match nothing {
            Nothing::Closed => {
                let status = self.child.wait(CLOSING).unwrap_or(-1);
                if self.lines.panicked() {
                    return MachineError::Panic { tail, log };
                }
                MachineError::Ended { machine, doing, status, tail, log }
            }
            Nothing::ServerEnded => {
                server_ended(self.server.as_mut(), doing, nonsense(machine, &self.lines, "no server"))
            }
            Nothing::TooLate => MachineError::Silent { machine, seconds: PATIENCE.as_secs(), tail, log },
            Nothing::Interrupted => MachineError::Interrupted,
            Nothing::Nonsense(what) => nonsense(machine, &self.lines, what),
            Nothing::Failed(e) => MachineError::system(format!("listening to {machine}"), e),
        }
    }
}

/// Where no files are expected: says so.
pub fn no_files(name: &str, _: &[u8]) -> Result<(), String> {
    Err(format!("a file '{}' that nobody asked for", name.escape_default()))
}

/// The server's end, which only a machine with a server is told of.
fn server_ended(server: Option<&mut Server>, doing: String, otherwise: MachineError) -> MachineError {
    server.map_or(otherwise, |server| server.ended(&doing))
}

fn boot_error(
    lines: &Lines,
    nothing: Nothing,
    setup: &Setup<'_>,
    child: &mut Child,
    server: Option<&mut Server>,
) -> MachineError {
    let machine = setup.machine;
    let (tail, log) = (lines.tail(), lines.log_path());
    let ended = matches!(nothing, Nothing::Closed | Nothing::ServerEnded);
    if ended && lines.panicked() {
        return MachineError::Panic { tail, log };
    }
    // QEMU gives up without its server, and a server ends in good order without its QEMU: either end has its reason.
    if let Some(server) = server.filter(|_| ended) {
        match server.status() {
            Some(0) => return refused(child, setup).unwrap_or_else(|| server.ended("the guest came up")),
            Some(_) => return server.ended("the guest came up"),
            None => {}
        }
    }
    match nothing {
        Nothing::Closed => refused(child, setup).unwrap_or_else(|| {
            let status = child.wait(CLOSING).unwrap_or(-1);
            MachineError::Ended { machine, doing: "coming up".to_owned(), status, tail, log }
        }),
        Nothing::ServerEnded => nonsense(machine, lines, "the end of a server that there is not"),
        Nothing::TooLate => MachineError::Silent { machine, seconds: setup.boot_deadline.as_secs(), tail, log },
        Nothing::Interrupted => MachineError::Interrupted,
        Nothing::Nonsense(what) => nonsense(machine, lines, what),
        Nothing::Failed(e) => MachineError::system(format!("listening to {machine}"), e),
    }
}

/// What QEMU said when it did not want to go on.
fn refused(child: &mut Child, setup: &Setup<'_>) -> Option<MachineError> {
    let status = child.wait(CLOSING).filter(|status| *status != 0 && setup.machine.is_guest())?;
    let log = qemu::log(setup.log);
    let said = printable_tail(&std::fs::read(&log).unwrap_or_default());
    (!said.is_empty()).then_some(MachineError::Refused { status, said, log })
}

pub(crate) fn nonsense(machine: Machine, lines: &Lines, what: impl Into<String>) -> MachineError {
    MachineError::Nonsense { machine, what: what.into(), log: lines.log_path() }
}
