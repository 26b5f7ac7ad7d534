//! The guest agent: answers the controller's requests, natively or as a guest's first process. Each workload runs in a
//! fresh process of this same binary (`vmtax agent run`), which is also how the agent works alone; so native and guest
//! trials start alike, and a workload that crashes or is killed for its memory is an error, not the end of the agent.

mod devices;
mod exec;
mod serve;
mod trial;

pub use serve::{init, serve};
pub use trial::GuestObserver;

use rustix::fd::BorrowedFd;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::path::PathBuf;
use std::{fs, io};
use vmtax_model::{KernelIdentity, limit_remedy};
use vmtax_wire::{MAX_PIECE, PORT, Reply, encode, piece};

/// A fatal error of the agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The stream to the controller broke.
    #[error("the channel to the controller broke: {0}")]
    Channel(#[source] io::Error),
    /// The controller sent an invalid request.
    #[error(transparent)]
    Wire(#[from] vmtax_wire::WireError),
    /// A system call that setting up needs.
    #[error("{what}: {source}{}", limit_remedy(.source))]
    System {
        /// Action that failed, with its object.
        what: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// Neither a virtio-serial port nor a serial console.
    #[error("no channel to the controller: this kernel has neither a virtio-serial port '{PORT}' nor {console}", console = .0.display())]
    NoChannel(PathBuf),
    /// Nothing to trace.
    #[error(
        "this guest has no disk on virtio-blk or virtio-scsi: `vmtax agent observe` traces the requests of those alone"
    )]
    NoDisk,
    /// This kernel, or this user, cannot trace.
    #[error(transparent)]
    Probe(#[from] vmtax_observe::ProbeError),
    /// Tracing ended early.
    #[error("failed to trace this guest's kernel: {0}")]
    Observe(String),
}

impl AgentError {
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        AgentError::System {
            what: what.into(),
            source: source.into(),
        }
    }
}

/// The limits of a native agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confinement {
    /// Use only this many of the CPUs that are allowed now.
    pub cpus: Option<u32>,
    /// Use these CPUs, where there are any here.
    pub pinned: Vec<u32>,
    /// Join this control group (its folder), which carries the memory limit.
    pub cgroup: Option<PathBuf>,
}

/// Confines this process and its future children.
///
/// # Errors
/// [`AgentError::System`] naming what could not be done.
pub fn confine(to: &Confinement) -> Result<(), AgentError> {
    if let Some(group) = &to.cgroup {
        let procs = group.join("cgroup.procs");
        fs::write(&procs, "0")
            .map_err(|e| AgentError::system(format!("joining {}", procs.display()), e))?;
    }
    if !to.pinned.is_empty() {
        let mut chosen = CpuSet::new();
        to.pinned.iter().for_each(|&cpu| chosen.set(cpu as usize));
        sched_setaffinity(None, &chosen)
            .map_err(|e| AgentError::system(format!("using CPUs {:?}", to.pinned), e))?;
    } else if let Some(cpus) = to.cpus {
        let allowed = sched_getaffinity(None)
            .map_err(|e| AgentError::system("reading the CPU affinity", e))?;
        let mut chosen = CpuSet::new();
        (0..CpuSet::MAX_CPU)
            .filter(|&cpu| allowed.is_set(cpu))
            .take(cpus as usize)
            .for_each(|cpu| chosen.set(cpu));
        let set = sched_setaffinity(None, &chosen);
        set.map_err(|e| AgentError::system(format!("setting the affinity to {cpus} CPUs"), e))?;
    }
    Ok(())
}

/// The kernel that runs this.
pub(crate) fn kernel() -> KernelIdentity {
    let uname = rustix::system::uname();
    let text = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
    KernelIdentity {
        system: text(uname.sysname()),
        release: text(uname.release()),
        version: text(uname.version()),
    }
}

/// Number of CPUs that this process may use.
pub(crate) fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32)
}

/// Sends a message.
pub(crate) fn send(channel: BorrowedFd<'_>, reply: &Reply) -> Result<(), AgentError> {
    send_frame(channel, &encode(reply)?)
}

/// Sends a whole frame.
pub(crate) fn send_frame(channel: BorrowedFd<'_>, frame: &[u8]) -> Result<(), AgentError> {
    let mut rest = frame;
    while !rest.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(channel, rest));
        rest = &rest[written.map_err(|e| AgentError::Channel(e.into()))?..];
    }
    Ok(())
}

/// A function that sends a frame.
pub(crate) type SendFrame<'a> = dyn FnMut(&[u8]) -> Result<(), AgentError> + 'a;

/// Why a trial has no result.
pub(crate) enum Failure {
    /// The trial itself failed: the controller is told.
    Trial(String),
    /// The channel broke.
    Channel(AgentError),
}

impl From<AgentError> for Failure {
    fn from(error: AgentError) -> Failure {
        Failure::Channel(error)
    }
}

/// Returns the reply to send, where the channel still carries it.
pub(crate) fn reply_or_broken(reply: Result<Reply, Failure>) -> Result<Reply, AgentError> {
    match reply {
        Ok(reply) => Ok(reply),
        Err(Failure::Trial(error)) => Ok(Reply::Failed { error }),
        Err(Failure::Channel(error)) => Err(error),
    }
}

/// Sends files, piece by piece, as `fill` hands them over by name.
pub(crate) fn ship(
    send: &mut SendFrame<'_>,
    fill: impl FnOnce(&mut dyn FnMut(&str, &[u8]) -> io::Result<()>) -> Result<(), String>,
) -> Result<(), Failure> {
    let mut broken = None;
    let filled = fill(&mut |name, bytes| {
        for part in bytes.chunks(MAX_PIECE) {
            let frame = piece(name, part).map_err(io::Error::other)?;
            if let Err(error) = send(&frame) {
                broken = Some(error);
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
        Ok(())
    });
    match broken {
        Some(error) => Err(Failure::Channel(error)),
        None => filled.map_err(Failure::Trial),
    }
}
