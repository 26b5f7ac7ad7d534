//! A command on a running machine.

use crate::agent::Agent;
use crate::agent::messages::{Files, NoMessage, Received, no_files};
use crate::agent::streams::Terminal;
use crate::process::CpuAccounting;
use crate::{Capture, MachineError, RootExtras, Streams};
use rustix::fd::AsFd;
use rustix::fs::Mode;
use rustix::process::{Resource, getegid, geteuid, getgroups, getrlimit, umask};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, Instant};
use vmtax_model::{
    CommandSpec, CpuSeconds, Execution, Probes, TrialResult, WorkloadName, without_secrets,
};
use vmtax_wire::{
    Frame, Launch, MAX_PAYLOAD, Observed, Reply, Request, STREAM_PIECE, Stream, WireError, encode,
    piece,
};

/// After a command's timeout, how long the agent may take to end it.
const KILL_TIMEOUT: Duration = Duration::from_secs(15);
const INTERRUPT: i32 = rustix::process::Signal::INT.as_raw();
const HANG_UP: i32 = rustix::process::Signal::HUP.as_raw();

/// The outcome of a command.
#[derive(Debug)]
pub enum Ran {
    /// The command ran to its end.
    Done(Box<Finished>),
    /// It could not be started, or timed out: the exit status as in a shell, and the reason.
    NotRun(i32, String),
    /// It was interrupted, and ended.
    Stopped,
}

/// A command that ran.
#[derive(Debug)]
pub struct Finished {
    /// Execution of the command, with its exit status.
    pub execution: Execution,
    /// Figures of the command.
    pub result: TrialResult,
    /// CPU seconds of the host that the command used, in a guest.
    pub cpu_seconds: Option<CpuSeconds>,
    /// Output of the command: standard output, then standard error.
    pub printed: [Capture; 2],
    /// Observation of the command; `None` if it was not observed.
    pub observed: Option<Observed>,
}

/// A command as it is to be run.
#[derive(Debug, Clone, Copy)]
pub struct CommandRun<'a> {
    /// Command to be run.
    pub command: &'a CommandSpec,
    /// The user's streams.
    pub streams: &'a Streams,
    /// After this time it is killed.
    pub timeout: Duration,
}

/// Runs a command between the user's streams.
pub(crate) fn exec(
    agent: &mut Agent<'_>,
    accounting: Option<&CpuAccounting>,
    run: CommandRun<'_>,
    probes: Probes,
    files: &mut Files<'_>,
) -> Result<Ran, MachineError> {
    let launch = launch(&run.command.argv, run);
    Conversation::new(agent, accounting, run, files).hold(launch, probes)
}

/// Runs a shell line, with the command's environment.
pub(crate) fn shell(
    agent: &mut Agent<'_>,
    option: &str,
    line: &str,
    run: CommandRun<'_>,
) -> Result<(), MachineError> {
    let launch = Launch {
        stays: true,
        ..launch(&CommandSpec::shell(line), run)
    };
    let aside = run
        .streams
        .aside()
        .map_err(|e| MachineError::system("taking over standard error", e))?;
    let failed = |why: String| {
        Err(MachineError::Workload(format!(
            "--{option} '{}' failed: {why}",
            without_secrets(line)
        )))
    };
    let run = CommandRun {
        streams: &aside,
        ..run
    };
    match Conversation::new(agent, None, run, &mut no_files).hold(launch, Probes::None)? {
        Ran::Done(done) if done.execution.status == 0 => Ok(()),
        Ran::Done(done) => failed(format!("exit status {}", done.execution.status)),
        Ran::NotRun(_, error) => failed(error),
        Ran::Stopped => Err(MachineError::Interrupted),
    }
}

/// Has a guest make of the host's files a root for commands.
pub(crate) fn make_root(
    agent: &mut Agent<'_>,
    besides: &RootExtras,
    timeout: Duration,
) -> Result<(), MachineError> {
    let host_name =
        OsString::from_vec(rustix::system::uname().nodename().to_bytes().to_vec()).into();
    let writable = besides.writable.iter().map(Into::into).collect();
    let request = Request::Root {
        host_name,
        writable,
        network: besides.network.is_some(),
    };
    match agent.answer(&request, timeout, "making a root for commands")? {
        Reply::Rooted => Ok(()),
        Reply::Failed { error } => Err(MachineError::Workload(error)),
        _ => Err(agent.unexpected("the request for a root")),
    }
}

/// The conversation with the agent about one command.
struct Conversation<'a, 'b> {
    agent: &'a mut Agent<'b>,
    /// The processes whose CPU time is counted, in a guest.
    accounting: Option<&'a CpuAccounting>,
    run: CommandRun<'a>,
    files: &'a mut Files<'a>,
    input: Option<File>,
    /// Room for a piece of it.
    buffer: Vec<u8>,
    /// True if the command waits for more input.
    is_input_wanted: bool,
    /// Output so far: standard output, then standard error.
    printed: [Capture; 2],
    /// True for each of the two whose reader is gone.
    closed: [bool; 2],
    /// True after a stop request.
    is_stopped: bool,
    /// When the command began, and what CPU time was spent by then.
    began: Option<(Instant, CpuSeconds)>,
    /// The seconds that the command took, and what CPU time was spent in them.
    spent: Option<(f64, CpuSeconds)>,
}

impl<'a, 'b> Conversation<'a, 'b> {
    fn new(
        agent: &'a mut Agent<'b>,
        accounting: Option<&'a CpuAccounting>,
        run: CommandRun<'a>,
        files: &'a mut Files<'a>,
    ) -> Conversation<'a, 'b> {
        Conversation {
            agent,
            accounting,
            run,
            files,
            input: None,
            buffer: vec![0; STREAM_PIECE],
            is_input_wanted: false,
            printed: [Capture::default(), Capture::default()],
            closed: [false; 2],
            is_stopped: false,
            began: None,
            spent: None,
        }
    }

    /// Has the agent start the command, and waits for its end.
    fn hold(mut self, launch: Launch, probes: Probes) -> Result<Ran, MachineError> {
        let (streams, timeout) = (self.run.streams, self.run.timeout);
        let terminal = streams.terminal.as_ref();
        self.input = streams
            .input()
            .map_err(|e| MachineError::system("reading standard input again", e))?;
        let launch = Box::new(Launch {
            stdin: self.input.is_some(),
            terminal: terminal.map(Terminal::size),
            ..launch
        });
        let raw = terminal.map(Terminal::raw).transpose();
        let _raw = raw.map_err(|e| MachineError::system("setting the terminal", e))?;
        self.send(&Request::Exec { launch, probes })?;
        let until = Instant::now() + timeout + KILL_TIMEOUT;
        loop {
            let (lines, interrupt) = (&mut self.agent.lines, self.agent.interrupt);
            // Read only where there is something: a pipe that is silent must not keep output and wishes to stop waiting.
            let reading = self.input.as_ref().filter(|_| self.is_input_wanted);
            let reading = reading.map(|file| file.as_fd());
            let resized = terminal.map(Terminal::resized);
            let others: Vec<_> = resized.into_iter().chain(reading).collect();
            let ended = match lines.receive(until, interrupt, &others) {
                Ok(Received::Other(0)) if resized.is_some() => {
                    if let Some(size) = terminal.map(Terminal::new_size) {
                        self.agent.send_request(&Request::Resize { size })?;
                    }
                    None
                }
                Ok(Received::Other(_)) => self.pass_input()?,
                Ok(Received::Frame(Frame::Piece { name, bytes })) => {
                    self.take_piece(&name, &bytes)?;
                    None
                }
                Ok(Received::Frame(Frame::Message(reply))) => self.take_reply(reply)?,
                Err(NoMessage::Interrupted) if !self.is_stopped => {
                    self.stop()?;
                    None
                }
                Err(NoMessage::Timeout) => {
                    return Err(self.agent.timeout(WorkloadName::Exec, timeout));
                }
                Err(reason) => return Err(self.agent.error(reason, "running the command")),
            };
            if let Some(ran) = ended {
                return Ok(ran);
            }
        }
    }

    /// Sends the request for the command, which may be too large.
    fn send(&mut self, request: &Request) -> Result<(), MachineError> {
        match encode(request) {
            Ok(frame) => self.agent.send(&frame),
            Err(WireError::TooLarge(bytes)) => {
                let (mib, most) = (bytes.div_ceil(1 << 20), MAX_PAYLOAD >> 20);
                Err(MachineError::Workload(format!(
                    "the command's arguments and environment have {mib} MiB, the limit is {most} MiB: put arguments into a \
                     file, or run it under `env -i`"
                )))
            }
            Err(e) => Err(self.agent.invalid_message(e.to_string())),
        }
    }

    /// Passes on what there is of the input; [`Ran::Stopped`] where a terminal is gone.
    fn pass_input(&mut self) -> Result<Option<Ran>, MachineError> {
        self.is_input_wanted = false;
        let input = self.input.as_mut();
        let read = input.map_or(Ok(0), |file| file.read(&mut self.buffer));
        // In raw mode nothing that is typed is an end of the input: the terminal is gone.
        if self.run.streams.terminal.is_some() && !matches!(read, Ok(1..)) {
            return Ok(Some(Ran::Stopped));
        }
        let length = read.map_err(|e| MachineError::system("reading standard input", e))?;
        let frame = piece(Stream::Stdin.as_str(), &self.buffer[..length]);
        let frame = frame.map_err(|e| self.agent.invalid_message(e.to_string()))?;
        self.agent.send(&frame).map(|()| None)
    }

    /// Takes a piece of the command's output, or of a file.
    fn take_piece(&mut self, name: &str, bytes: &[u8]) -> Result<(), MachineError> {
        let outputs = [Stream::Stdout, Stream::Stderr];
        let Some(at) = outputs.iter().position(|stream| stream.as_str() == name) else {
            return (self.files)(name, bytes).map_err(|what| self.agent.invalid_message(what));
        };
        self.printed[at].push(bytes);
        let streams = self.run.streams;
        if !self.closed[at] && streams.print(at == 1, bytes, self.agent.interrupt).is_err() {
            self.closed[at] = true;
            let [stdout, stderr] = outputs;
            let stream = if at == 1 { stderr } else { stdout };
            self.agent.send_request(&Request::Close { stream })?;
        }
        Ok(())
    }

    /// Takes a message; gives the outcome where the command has ended.
    fn take_reply(&mut self, reply: Reply) -> Result<Option<Ran>, MachineError> {
        let reply = reply
            .checked()
            .map_err(|what| self.agent.invalid_message(what))?;
        let spent_now = || self.accounting.map(CpuAccounting::spent);
        match reply {
            Reply::Input => self.is_input_wanted = true,
            Reply::Began => self.began = spent_now().map(|spent| (Instant::now(), spent)),
            Reply::Ended => {
                let both = self.began.zip(spent_now());
                self.spent = both.map(|((at, before), after)| {
                    (at.elapsed().as_secs_f64(), after.since(&before))
                });
            }
            _ if self.is_stopped => return Ok(Some(Ran::Stopped)),
            Reply::Ran {
                execution,
                result,
                observed,
            } => {
                let (window_s, cpu_seconds) = self.spent.unzip();
                return Ok(Some(Ran::Done(Box::new(Finished {
                    // What it printed is for this side to understand.
                    execution: Execution {
                        window_s,
                        printed: Vec::new(),
                        ..execution
                    },
                    result: *result,
                    cpu_seconds,
                    printed: std::mem::take(&mut self.printed),
                    observed,
                }))));
            }
            Reply::NotRun { status, error } => return Ok(Some(Ran::NotRun(status, error))),
            Reply::Failed { error } => return Err(MachineError::Workload(error)),
            _ => return Err(self.agent.unexpected("a command")),
        }
        Ok(None)
    }

    /// Passes on the first stop request.
    fn stop(&mut self) -> Result<(), MachineError> {
        self.agent.interrupt.acknowledge();
        self.is_stopped = true;
        // In a terminal Ctrl-C is what is typed; this is its end.
        let signal = if self.run.streams.terminal.is_some() {
            HANG_UP
        } else {
            INTERRUPT
        };
        self.agent.send_request(&Request::Signal { signal })
    }
}

/// The launch of these words, with the surroundings of this process.
fn launch(words: &[String], run: CommandRun<'_>) -> Launch {
    // There is no asking for it without setting it.
    let mask = umask(Mode::empty());
    umask(mask);
    Launch {
        words: words.iter().map(Into::into).collect(),
        directory: (&run.command.directory).into(),
        environment: std::env::vars_os()
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        user: geteuid().as_raw(),
        group: getegid().as_raw(),
        groups: getgroups()
            .unwrap_or_default()
            .into_iter()
            .map(|group| group.as_raw())
            .collect(),
        umask: mask.as_raw_mode(),
        limits: LIMITS
            .iter()
            .map(|&(resource, number)| {
                let limit = getrlimit(resource);
                let [current, maximum] =
                    [limit.current, limit.maximum].map(|limit| limit.unwrap_or(u64::MAX));
                (number, current, maximum)
            })
            .collect(),
        stdin: false,
        terminal: None,
        stays: false,
        timeout_s: run.timeout.as_secs() as u32,
    }
}

/// The limits of a process, each with the kernel's number for it, by which it travels.
const LIMITS: [(Resource, u32); 13] = [
    (Resource::Cpu, libc::RLIMIT_CPU),
    (Resource::Fsize, libc::RLIMIT_FSIZE),
    (Resource::Data, libc::RLIMIT_DATA),
    (Resource::Stack, libc::RLIMIT_STACK),
    (Resource::Core, libc::RLIMIT_CORE),
    (Resource::Rss, libc::RLIMIT_RSS),
    (Resource::Nofile, libc::RLIMIT_NOFILE),
    (Resource::As, libc::RLIMIT_AS),
    (Resource::Memlock, libc::RLIMIT_MEMLOCK),
    (Resource::Locks, libc::RLIMIT_LOCKS),
    (Resource::Sigpending, libc::RLIMIT_SIGPENDING),
    (Resource::Nice, libc::RLIMIT_NICE),
    (Resource::Rtprio, libc::RLIMIT_RTPRIO),
];
