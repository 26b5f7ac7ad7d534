//! A machine with an agent: the host itself, or a guest with a kernel.

use crate::agent::command::{self, CommandRun, Ran};
use crate::agent::messages::{CLOSE_TIMEOUT, Console, Files, Lines, NoMessage, no_files};
use crate::agent::{Agent, native};
use crate::network::MachineNetwork;
use crate::process::child::Child;
use crate::process::log::log_tail;
use crate::process::{BatchCpu, CpuAccounting, main_thread_ns};
use crate::running::RunningMachine;
use crate::setup::{GuestImage, Setup, VmmProgram};
use crate::share::jail::TREE;
use crate::share::{self, Server};
use crate::vmm::started::{Link, Started, Streams};
use crate::vmm::{self, start_linux};
use crate::{MachineError, Sharing};
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use vmtax_clock::{GUEST_CELL, HOST_CELL, Shared};
use vmtax_model::{
    CpuSeconds, Inside, Measure, Metric, Missing, Ping, Probes, QemuThread, ShareFacts,
    TrialResult, Warning, WorkloadName, WorkloadSpec,
};
use vmtax_vmm::Vm;
use vmtax_vmm::qemu::monitor::QMP_TIMEOUT;
use vmtax_wire::{Hello, Observed, Reply, Request, encode};

/// Time limit for a guest to measure the cost of sampling.
const SAMPLING_TIMEOUT: Duration = Duration::from_secs(120);
/// Another scheduler waits for the requests in flight.
const SETTING_TIMEOUT: Duration = Duration::from_secs(60);
/// Duration of each timing of the guest's shortest system call, which that measurement needs, s.
const SHORTEST_CALL_S: f64 = 0.03;

/// A running machine with an agent.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    agent: Agent<'a>,
    hello: Hello,
    warnings: Vec<Warning>,
    boot: Duration,
    ready: Duration,
    guest: Option<GuestSide>,
    /// It ends after the machine.
    network: Option<MachineNetwork>,
    share: Option<ShareFacts>,
}

/// Parts of a session that only a guest has, and the host itself has not.
#[derive(Debug)]
struct GuestSide {
    vm: Vm,
    /// Memory that both sides see.
    memory: Shared,
    accounting: CpuAccounting,
}

impl<'a> Session<'a> {
    /// Starts a guest, or natively the agent alone, and waits until the agent responds.
    pub fn start(
        setup: &Setup<'a>,
        guest: Option<(&VmmProgram, &GuestImage)>,
    ) -> Result<Session<'a>, MachineError> {
        let served = match setup.share {
            Some(sharing) => Server::start(sharing, setup)?,
            None => None,
        };
        let (server, reach) = served.unzip();
        let network = setup.network.then(|| MachineNetwork::start(setup));
        let (mut network, link) = network.transpose()?.unzip();
        let began = Instant::now();
        let (channel, their_channel) = socket_pair()?;
        let mut lines = Lines::new(channel, setup.log);
        lines.server = server.as_ref().map(Server::watch).transpose()?;
        let (child, mut warnings, link) = match guest {
            Some((program, image)) => {
                let (console, their_console) = socket_pair()?;
                lines.add_console(console, Console::create(setup.log.join("console.log"))?);
                let streams = Streams {
                    agent: their_channel.into(),
                    console: their_console.into(),
                    server: reach,
                    network: link,
                };
                let Started { mut child, link } = start_linux(setup, program, image, streams)?;
                if let Some(network) = &mut network {
                    network.connect(setup, &mut child)?;
                }
                (child, Vec::new(), Some(link))
            }
            None => {
                let (child, warnings) = native::start(setup, their_channel.into(), link)?;
                (child, warnings, None)
            }
        };
        lines.machine = Some(child.ended()?);
        let mut agent = Agent {
            machine: setup.machine,
            interrupt: setup.interrupt,
            lines,
            child,
            server,
        };
        let vmm_log = link.as_ref().map(|link| link.log.clone());
        let hello = greeting(&mut agent, setup, began, network.as_mut(), vmm_log)?;
        let boot = began.elapsed();
        warnings.extend(network.as_ref().and_then(|network| network.warning.clone()));
        let mut session = Session {
            agent,
            hello,
            warnings,
            boot,
            ready: boot,
            guest: None,
            network,
            share: None,
        };
        if let Some(link) = link {
            session.prepare_guest(setup, link, began)?;
        }
        Ok(session)
    }

    /// Takes hold of the guest that responded, which began then, and gives it what it lacks for workloads.
    fn prepare_guest(
        &mut self,
        setup: &Setup<'_>,
        link: Link,
        began: Instant,
    ) -> Result<(), MachineError> {
        let vm = vmm::connect(setup, self.agent.child.session(), link.control, QMP_TIMEOUT)?;
        let accounting = CpuAccounting {
            vmm: vm.pid(),
            vcpus: vm.vcpus(),
            server: self.agent.server.as_ref().map(Server::session),
            passt: self.network.as_ref().and_then(MachineNetwork::passt),
        };
        self.guest = Some(GuestSide {
            vm,
            memory: link.memory,
            accounting,
        });
        let block_queue = setup.guest.block_queue();
        if !block_queue.is_empty() {
            self.set_block_queue(&block_queue)?;
        }
        if let Some(sharing) = setup.share {
            self.mount(setup, sharing, link.share, link.log)?;
            // A program of the host takes from it what it needs.
            let besides = sharing
                .host_root
                .as_ref()
                .filter(|_| setup.command.is_some());
            if let Some(besides) = besides {
                command::make_root(&mut self.agent, besides, setup.guest.boot_timeout())?;
            }
            self.ready = began.elapsed();
        }
        Ok(())
    }

    /// Has the guest mount its share, and records what took effect. `arguments`: the VMM's for the share; `log`: the VMM's.
    fn mount(
        &mut self,
        setup: &Setup<'_>,
        sharing: &Sharing,
        arguments: Vec<String>,
        log: PathBuf,
    ) -> Result<(), MachineError> {
        let request = Request::Share {
            mount: share::mount(sharing),
        };
        let boot_timeout = setup.guest.boot_timeout();
        let agent = &mut self.agent;
        let line = match agent.answer(&request, boot_timeout, "mounting its share")? {
            Reply::Shared { mount } => mount,
            Reply::Failed { error: said } => {
                return Err(MachineError::NotMounted {
                    method: sharing.share.method,
                    said,
                    log,
                });
            }
            _ => return Err(agent.unexpected("a mount")),
        };
        let pid = self.accounting().and_then(CpuAccounting::serving);
        let command = self
            .agent
            .server
            .as_ref()
            .map(|server| server.command.clone())
            .unwrap_or_default();
        let (facts, warnings) = share::effect(sharing, line, arguments, command, pid, setup.log);
        self.share = Some(facts);
        self.warnings.extend(warnings);
        Ok(())
    }

    fn accounting(&self) -> Option<&CpuAccounting> {
        self.guest.as_ref().map(|guest| &guest.accounting)
    }
}

impl RunningMachine for Session<'_> {
    fn boot(&self) -> Duration {
        self.boot
    }

    fn ready(&self) -> Duration {
        self.ready
    }

    fn hello(&self) -> Option<&Hello> {
        Some(&self.hello)
    }

    fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    fn share(&self) -> Option<&ShareFacts> {
        self.share.as_ref()
    }

    fn network_threads(&self) -> Vec<QemuThread> {
        self.network
            .as_ref()
            .map_or_else(Vec::new, MachineNetwork::threads)
    }

    fn served(&self) -> Option<PathBuf> {
        let process = self
            .accounting()?
            .serving()
            .filter(|_| self.agent.server.as_ref().is_some_and(Server::is_jailed))?;
        Some(format!("/proc/{process}/root{TREE}").into())
    }

    fn cut_off(&mut self) {
        self.agent.child.kill();
    }

    fn cpu_time(&self) -> Option<CpuSeconds> {
        self.accounting().map(CpuAccounting::spent)
    }

    fn run(
        &mut self,
        workload: &WorkloadSpec,
        probes: Probes,
        timeout: Duration,
        files: &mut Files<'_>,
    ) -> Result<(TrialResult, Option<Observed>), MachineError> {
        let vmm = self.accounting().map(|accounting| accounting.vmm);
        let agent = &mut self.agent;
        let deadline = Instant::now() + timeout;
        let mut batches = BatchCpu::default();
        let request = Request::Run {
            workload: workload.clone(),
            probes,
        };
        let mut reply = agent.ask(&request, timeout, files);
        while let Ok(Reply::Batch { edge }) = reply {
            batches.add(edge, vmm.and_then(main_thread_ns));
            let left = deadline.saturating_duration_since(Instant::now());
            reply = agent.ask(&Request::GoOn, left, files);
        }
        match reply {
            Ok(Reply::Done { result, .. }) if result.workload.name != workload.name => {
                Err(agent.invalid_message(format!("a result of {}", result.workload.name)))
            }
            Ok(Reply::Done {
                mut result,
                observed,
            }) => {
                // The guest cannot know it.
                result
                    .measures
                    .retain(|measure| measure.metric != Metric::OpenFidsStatCpu);
                let cpu = batches
                    .per_request()
                    .filter(|_| workload.name == WorkloadName::OpenFids);
                result.measures.extend(cpu.map(|value| Measure {
                    metric: Metric::OpenFidsStatCpu,
                    value,
                }));
                Ok((*result, observed))
            }
            Ok(Reply::Failed { error }) => Err(MachineError::Workload(error)),
            Ok(_) => Err(agent.invalid_message("an answer to reason")),
            Err(NoMessage::Timeout) => Err(agent.timeout(workload.name, timeout)),
            Err(reason) => Err(agent.error(reason, &format!("running {}", workload.name))),
        }
    }

    fn exec(
        &mut self,
        run: CommandRun<'_>,
        probes: Probes,
        files: &mut Files<'_>,
    ) -> Result<Ran, MachineError> {
        let accounting = self.guest.as_ref().map(|guest| &guest.accounting);
        command::exec(&mut self.agent, accounting, run, probes, files)
    }

    fn shell(&mut self, option: &str, line: &str, run: CommandRun<'_>) -> Result<(), MachineError> {
        command::shell(&mut self.agent, option, line, run)
    }

    fn set_block_queue(
        &mut self,
        attributes: &BTreeMap<String, String>,
    ) -> Result<(), MachineError> {
        let request = Request::SetBlockQueue {
            attributes: attributes.clone(),
        };
        let doing = "setting its disk's request queue";
        match self.agent.answer(&request, SETTING_TIMEOUT, doing)? {
            Reply::BlockQueueSet => Ok(()),
            Reply::Failed { error } => Err(MachineError::BlockQueue(error)),
            _ => Err(self.agent.unexpected("settings of its disk")),
        }
    }

    fn start_sampling(&mut self, inside: Inside) -> Result<(), MachineError> {
        let request = Request::StartSampling {
            inside,
            shortest_call: vmtax_workload::shortest_call(SHORTEST_CALL_S),
        };
        let doing = "starting to sample the guest";
        match self.agent.answer(&request, SAMPLING_TIMEOUT, doing)? {
            Reply::Sampling => Ok(()),
            _ => Err(self.agent.unexpected("the start of sampling")),
        }
    }

    fn stop_sampling(
        &mut self,
        timeout: Duration,
        files: &mut Files<'_>,
    ) -> Result<Vec<Missing>, MachineError> {
        match self.agent.ask(&Request::StopSampling, timeout, files) {
            Ok(Reply::Samples { missing }) => Ok(missing),
            Ok(Reply::Failed { error }) => Err(MachineError::Workload(error)),
            Ok(_) => Err(self.agent.unexpected("the end of sampling")),
            Err(reason) => Err(self.agent.error(reason, "sending samples")),
        }
    }

    fn ping(&mut self, duration: Duration) -> Result<Ping, MachineError> {
        let agent = &mut self.agent;
        let request = encode(&Request::Ping).map_err(|e| agent.invalid_message(e.to_string()))?;
        let Some(guest) = &self.guest else {
            return Err(MachineError::NoAgent {
                machine: agent.machine,
            });
        };
        agent
            .lines
            .send(&request)
            .map_err(|e| MachineError::system("requesting an exchange of time stamps", e))?;
        let ping = vmtax_clock::exchange(&guest.memory, HOST_CELL, GUEST_CELL, duration);
        match agent.reply(QMP_TIMEOUT, &mut no_files) {
            Ok(Reply::Pinged) => Ok(ping?),
            Ok(Reply::Failed { error }) => Err(MachineError::Workload(error)),
            Ok(_) => Err(agent.unexpected("an exchange of time stamps")),
            Err(reason) => Err(agent.error(reason, "exchanging time stamps")),
        }
    }

    fn vm(&self) -> Option<&Vm> {
        self.guest.as_ref().map(|guest| &guest.vm)
    }

    fn end(self: Box<Self>) {
        let Session {
            mut agent, guest, ..
        } = *self;
        if let Ok(leave) = encode(&Request::Leave) {
            let _ = agent.lines.send(&leave);
        }
        if agent.child.wait(CLOSE_TIMEOUT).is_none() {
            if let Some(guest) = guest {
                guest.vm.quit();
                agent.child.wait(CLOSE_TIMEOUT);
            }
        }
    }
}

/// Two ends of a stream.
fn socket_pair() -> Result<(UnixStream, UnixStream), MachineError> {
    UnixStream::pair().map_err(|e| MachineError::system("making a socket pair", e))
}

/// Waits for the greeting of the agent on a machine that began to boot then. `vmm_log`: where a guest's VMM logs.
fn greeting(
    agent: &mut Agent<'_>,
    setup: &Setup<'_>,
    began: Instant,
    network: Option<&mut MachineNetwork>,
    vmm_log: Option<PathBuf>,
) -> Result<Hello, MachineError> {
    let deadline = began + setup.guest.boot_timeout();
    match agent
        .lines
        .message(deadline, agent.interrupt, &mut no_files)
    {
        Ok(Reply::Hello(hello)) if hello.cpus != setup.guest.cpus => Err(MachineError::Vcpus {
            machine: setup.machine,
            asked: setup.guest.cpus,
            got: hello.cpus,
        }),
        Ok(Reply::Hello(hello)) => Ok(hello),
        Ok(_) => Err(agent.invalid_message("a reply before the greeting")),
        Err(reason) => Err(boot_error(agent, network, reason, setup, vmm_log)),
    }
}

/// The error of a machine that did not greet. `vmm_log`: where a guest's VMM logs.
fn boot_error(
    agent: &mut Agent<'_>,
    network: Option<&mut MachineNetwork>,
    reason: NoMessage,
    setup: &Setup<'_>,
    vmm_log: Option<PathBuf>,
) -> MachineError {
    let machine = setup.machine;
    let (tail, log) = (agent.lines.tail(), agent.lines.log_path());
    let ended = matches!(reason, NoMessage::Closed | NoMessage::ServerEnded);
    if ended && agent.lines.panicked() {
        return MachineError::Panic { tail, log };
    }
    let has_failed = ended || matches!(reason, NoMessage::Timeout);
    if let Some(failure) = network
        .filter(|_| has_failed)
        .and_then(|network| network.failure(setup))
    {
        return failure;
    }
    // QEMU gives up without its server, and a server ends in good order without its QEMU: either end has its reason.
    if let Some(server) = agent.server.as_mut().filter(|_| ended) {
        match server.status() {
            Some(0) => {
                return refused(&mut agent.child, vmm_log)
                    .unwrap_or_else(|| server.ended("the guest booted"));
            }
            Some(_) => return server.ended("the guest booted"),
            None => {}
        }
    }
    match reason {
        NoMessage::Closed => match refused(&mut agent.child, vmm_log) {
            Some(refused) => refused,
            None => agent.error(reason, "booting"),
        },
        NoMessage::Timeout => MachineError::Silent {
            machine,
            seconds: setup.guest.boot_timeout().as_secs(),
            tail,
            log,
        },
        other => agent.error(other, "booting"),
    }
}

/// The error of a VMM that ended by itself and logged why.
fn refused(child: &mut Child, vmm_log: Option<PathBuf>) -> Option<MachineError> {
    let log = vmm_log?;
    let status = child.wait(CLOSE_TIMEOUT).filter(|status| *status != 0)?;
    let said = log_tail(&log);
    (!said.is_empty()).then_some(MachineError::Refused { status, said, log })
}
