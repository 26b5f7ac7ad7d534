//! A command on a running machine.

use crate::agent::Agent;
use crate::agent::messages::{Files, NoMessage, Received, no_files};
use crate::process::cpu_accounting::CpuAccounting;
use crate::{Capture, MachineError, RootExtras, Streams};
use rustix::fd::AsFd;
use rustix::fs::Mode;
use rustix::process::{Resource, getegid, geteuid, getgroups, getrlimit, umask};
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, Instant};
use vmtax_model::{CommandSpec, CpuSeconds, Execution, Probes, TrialResult};
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
    Conversation {
        agent,
        accounting,
        files,
    }
    .run(launch, run, probes)
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
            "--{option} '{line}' failed: {why}"
        )))
    };
    let run = CommandRun {
        streams: &aside,
        ..run
    };
    match (Conversation {
        agent,
        accounting: None,
        files: &mut no_files,
    })
    .run(launch, run, Probes::None)?
    {
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
    match agent.ask(&request, timeout, &mut no_files) {
        Ok(Reply::Rooted) => Ok(()),
        Ok(Reply::Failed { error }) => Err(MachineError::Workload(error)),
        Ok(_) => Err(agent.invalid_message("an unexpected reply to the request for a root")),
        Err(reason) => Err(agent.error(reason, "making a root for commands")),
    }
}

/// The conversation with the agent about one command.
struct Conversation<'a, 'b> {
    agent: &'a mut Agent<'b>,
    /// Whose CPU time is counted, in a guest.
    accounting: Option<&'a CpuAccounting>,
    files: &'a mut Files<'a>,
}

impl Conversation<'_, '_> {
    fn run(self, launch: Launch, run: CommandRun<'_>, probes: Probes) -> Result<Ran, MachineError> {
        let Conversation {
            agent,
            accounting,
            files,
        } = self;
        let CommandRun {
            streams, timeout, ..
        } = run;
        let failed = |what: &str| {
            let what = what.to_owned();
            move |e: std::io::Error| MachineError::system(what, e)
        };
        let mut input = streams
            .input()
            .map_err(failed("reading standard input again"))?;
        let launch = Box::new(Launch {
            stdin: input.is_some(),
            terminal: streams.size(),
            ..launch
        });
        let _raw = streams.raw().map_err(failed("setting the terminal"))?;
        match encode(&Request::Exec { launch, probes }) {
            Ok(frame) => agent.send(&frame)?,
            Err(WireError::TooLarge(bytes)) => {
                let (mib, most) = (bytes.div_ceil(1 << 20), MAX_PAYLOAD >> 20);
                let what = format!(
                    "the command's arguments and environment have {mib} MiB, the limit is {most} MiB: put arguments into a \
                     file, or run it under `env -i`"
                );
                return Err(MachineError::Workload(what));
            }
            Err(e) => return Err(agent.invalid_message(e.to_string())),
        }
        let until = Instant::now() + timeout + KILL_TIMEOUT;
        let mut buffer = vec![0; STREAM_PIECE];
        let (mut closed, mut printed) = ([false; 2], [Capture::default(), Capture::default()]);
        let (mut stopped, mut wanted) = (false, false);
        let (mut began, mut spent) = (None, None);
        let spent_now = || accounting.map(CpuAccounting::spent);
        loop {
            // Read only where there is something: a pipe that is silent must not keep output and wishes to stop waiting.
            let reading = input.as_ref().filter(|_| wanted).map(|file| file.as_fd());
            let others: Vec<_> = streams.resized().into_iter().chain(reading).collect();
            match agent.receive(until, &others) {
                Ok(Received::Other(0)) if streams.resized().is_some() => {
                    if let Some(size) = streams.new_size() {
                        agent.send_request(&Request::Resize { size })?;
                    }
                }
                Ok(Received::Other(_)) => {
                    wanted = false;
                    let read = input.as_mut().map_or(Ok(0), |file| file.read(&mut buffer));
                    // In raw mode nothing that is typed is an end of the input: the terminal is gone.
                    if streams.size().is_some() && !matches!(read, Ok(1..)) {
                        return Ok(Ran::Stopped);
                    }
                    let length = read.map_err(failed("reading standard input"))?;
                    let frame = piece(Stream::Stdin.as_str(), &buffer[..length]);
                    agent.send(&frame.map_err(|e| agent.invalid_message(e.to_string()))?)?;
                }
                Ok(Received::Frame(Frame::Piece { name, bytes })) => {
                    let error = match name.as_str() {
                        name if name == Stream::Stdout.as_str() => false,
                        name if name == Stream::Stderr.as_str() => true,
                        file => {
                            files(file, &bytes).map_err(|what| agent.invalid_message(what))?;
                            continue;
                        }
                    };
                    printed[usize::from(error)].push(&bytes);
                    let gone = &mut closed[usize::from(error)];
                    if !*gone && streams.print(error, &bytes, agent.interrupt).is_err() {
                        *gone = true;
                        let stream = if error {
                            Stream::Stderr
                        } else {
                            Stream::Stdout
                        };
                        agent.send_request(&Request::Close { stream })?;
                    }
                }
                Ok(Received::Frame(Frame::Message(reply))) => {
                    match reply
                        .checked()
                        .map_err(|what| agent.invalid_message(what))?
                    {
                        Reply::Input => wanted = true,
                        Reply::Began => began = spent_now().map(|spent| (Instant::now(), spent)),
                        Reply::Ended => {
                            spent = began.zip(spent_now()).map(|((at, before), after)| {
                                (at.elapsed().as_secs_f64(), after.since(&before))
                            });
                        }
                        _ if stopped => return Ok(Ran::Stopped),
                        Reply::Ran {
                            execution,
                            result,
                            observed,
                        } => {
                            let (window_s, cpu_seconds) = spent.unzip();
                            // What it printed is for this side to understand.
                            let execution = Execution {
                                window_s,
                                printed: Vec::new(),
                                ..execution
                            };
                            let result = *result;
                            return Ok(Ran::Done(Box::new(Finished {
                                execution,
                                result,
                                cpu_seconds,
                                printed,
                                observed,
                            })));
                        }
                        Reply::NotRun { status, error } => return Ok(Ran::NotRun(status, error)),
                        Reply::Failed { error } => return Err(MachineError::Workload(error)),
                        _ => return Err(agent.invalid_message("an unexpected reply to a command")),
                    }
                }
                Err(NoMessage::Interrupted) if !stopped => {
                    agent.interrupt.acknowledge();
                    stopped = true;
                    // In a terminal Ctrl-C is what is typed; this is its end.
                    let signal = if streams.size().is_some() {
                        HANG_UP
                    } else {
                        INTERRUPT
                    };
                    agent.send_request(&Request::Signal { signal })?;
                }
                Err(NoMessage::Timeout) => {
                    let (machine, seconds) = (agent.machine, timeout.as_secs());
                    let (tail, log) = (agent.lines.tail(), agent.lines.log_path());
                    return Err(MachineError::Timeout {
                        machine,
                        workload: vmtax_model::WorkloadName::Exec,
                        seconds,
                        tail,
                        log,
                    });
                }
                Err(reason) => return Err(agent.error(reason, "running the command")),
            }
        }
    }
}

/// These words with the surroundings of this process.
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
            .map(|&(resource, number)| limit(resource, number))
            .collect(),
        stdin: false,
        terminal: None,
        stays: false,
        timeout_s: run.timeout.as_secs() as u32,
    }
}

/// Each with the kernel's number for it, by which it travels.
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

fn limit(resource: Resource, number: u32) -> (u32, u64, u64) {
    let limit = getrlimit(resource);
    (
        number,
        limit.current.unwrap_or(u64::MAX),
        limit.maximum.unwrap_or(u64::MAX),
    )
}
