//! A machine that is up, whichever kind it is.

use crate::micro;
use std::path::PathBuf;
use std::time::Duration;
use vmtax_model::{
    CommandSpec, Inside, Missing, Ping, Probes, ProcessorSeconds, ShareFacts, TrialResult, Warning, WorkloadSpec,
};
use vmtax_vm::{
    Boot, Files, Hello, MachineError, MicroSession, Observed, QemuMonitor, QemuOutside, Ran, Session, Setup, Streams,
    no_files,
};

/// A machine that is up.
pub(crate) enum Up<'a> {
    /// One with an agent: the host itself, or a guest with a kernel.
    Agent(Box<Session<'a>>),
    /// The micro-guest.
    Micro(MicroSession<'a>),
}

impl<'a> Up<'a> {
    pub fn start(setup: &Setup<'a>) -> Result<Up<'a>, MachineError> {
        match setup.boot {
            Boot::Micro(_) => MicroSession::start(setup).map(Up::Micro),
            Boot::Host | Boot::Linux(_) => Session::start(setup).map(|session| Up::Agent(Box::new(session))),
        }
    }

    pub fn boot(&self) -> Duration {
        match self {
            Up::Agent(session) => session.boot(),
            Up::Micro(session) => session.boot(),
        }
    }

    /// Until it has its share too.
    pub fn ready(&self) -> Duration {
        match self {
            Up::Agent(session) => session.ready(),
            Up::Micro(session) => session.boot(),
        }
    }

    /// The agent's greeting, where there is an agent.
    pub fn hello(&self) -> Option<&Hello> {
        match self {
            Up::Agent(session) => Some(session.hello()),
            Up::Micro(_) => None,
        }
    }

    pub fn complaints(&self) -> &[String] {
        self.hello().map_or(&[], |hello| &hello.complaints)
    }

    pub fn warnings(&self) -> &[Warning] {
        match self {
            Up::Agent(session) => session.warnings(),
            Up::Micro(_) => &[],
        }
    }

    /// What took effect of the guest's share.
    pub fn share(&self) -> Option<&ShareFacts> {
        match self {
            Up::Agent(session) => session.share(),
            Up::Micro(_) => None,
        }
    }

    /// Where the host sees the tree that the guest shares, if that is not where it lies.
    pub fn served(&self) -> Option<PathBuf> {
        match self {
            Up::Agent(session) => session.served(),
            Up::Micro(_) => None,
        }
    }

    /// Ends the guest as a power cut does.
    pub fn cut_off(&mut self) {
        if let Up::Agent(session) = self {
            session.cut_off();
        }
    }

    /// What the machine cost the host's processors by now.
    pub fn processor(&self) -> Option<ProcessorSeconds> {
        match self {
            Up::Agent(session) => session.processor(),
            Up::Micro(_) => None,
        }
    }

    /// Runs a command of the user's under probes; what the far side has to give goes to `files`.
    pub fn exec(
        &mut self,
        command: &CommandSpec,
        streams: &Streams,
        deadline: Duration,
        (probes, files): (Probes, &mut Files<'_>),
    ) -> Result<Ran, MachineError> {
        match self {
            Up::Agent(session) => session.exec(command, streams, deadline, (probes, files)),
            Up::Micro(_) => Err(MachineError::Workload("the micro-guest has no kernel to run a command".to_owned())),
        }
    }

    /// Runs a shell's line beside a command.
    pub fn shell(
        &mut self,
        line: (&str, &str),
        command: &CommandSpec,
        streams: &Streams,
        deadline: Duration,
    ) -> Result<(), MachineError> {
        match self {
            Up::Agent(session) => session.shell(line, command, streams, deadline),
            Up::Micro(_) => Err(MachineError::Workload("the micro-guest has no kernel to run a shell".to_owned())),
        }
    }

    /// Runs a workload that nobody observes.
    pub fn run(&mut self, workload: &WorkloadSpec, deadline: Duration) -> Result<TrialResult, MachineError> {
        match self {
            Up::Agent(session) => Ok(session.run(workload, Probes::None, deadline, &mut no_files)?.0),
            Up::Micro(session) => Ok(micro::run(session, workload, deadline)?.0),
        }
    }

    /// Runs a workload under probes; what the far side has to give goes to `files`.
    pub fn run_observed(
        &mut self,
        workload: &WorkloadSpec,
        probes: Probes,
        deadline: Duration,
        files: &mut Files<'_>,
    ) -> Result<(TrialResult, Option<Observed>), MachineError> {
        match self {
            Up::Agent(session) => session.run(workload, probes, deadline, files),
            Up::Micro(session) => {
                let (result, series) = micro::run(session, workload, deadline)?;
                files(vmtax_model::files::SERIES, &series.to_bytes())
                    .map_err(|what| MachineError::System { what, source: std::io::ErrorKind::Other.into() })?;
                Ok((result, None))
            }
        }
    }

    /// Lets the guest look at itself; the micro-guest has no kernel that could.
    pub fn look(&mut self, inside: Inside) -> Result<(), MachineError> {
        match self {
            Up::Agent(session) => session.look(inside),
            Up::Micro(_) => Ok(()),
        }
    }

    /// Ends that: what it saw to `files`, what it could not see.
    pub fn seen(&mut self, deadline: Duration, files: &mut Files<'_>) -> Result<Vec<Missing>, MachineError> {
        match self {
            Up::Agent(session) => session.seen(deadline, files),
            Up::Micro(_) => Ok(Vec::new()),
        }
    }

    pub fn ping(&mut self, duration: Duration) -> Result<Ping, MachineError> {
        match self {
            Up::Agent(session) => session.ping(duration),
            Up::Micro(session) => session.ping(duration),
        }
    }

    pub fn qemu(&mut self) -> Result<Option<QemuOutside>, MachineError> {
        match self {
            Up::Agent(session) => session.qemu(),
            Up::Micro(session) => session.qemu().map(Some),
        }
    }

    /// Its QEMU's monitor, where there is a QEMU.
    pub fn monitor(&self) -> Option<QemuMonitor> {
        match self {
            Up::Agent(session) => session.monitor(),
            Up::Micro(session) => Some(session.monitor()),
        }
    }

    pub fn log_events(&mut self, on: bool) -> Result<(), MachineError> {
        match self {
            Up::Agent(session) => session.log_events(on),
            Up::Micro(session) => session.log_events(on),
        }
    }

    pub fn end(self) {
        match self {
            Up::Agent(session) => session.end(),
            Up::Micro(session) => session.end(),
        }
    }
}
