//! Requests come, workloads run, replies go.

use crate::exec;
use crate::inside::Looking;
use crate::observe::run_observed;
use crate::{AgentError, share};
use rustix::fd::{AsFd, BorrowedFd};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;
use vmtax_clock::{GUEST_CELL, HOST_CELL, Shared};
use vmtax_model::{KernelIdentity, Places, Probes, TrialResult, WorkloadSpec};
use vmtax_wire::{Decoder, Frame, Hello, Reply, Request, encode};

/// No controller exchanges stamps for longer.
const PING_DEADLINE: Duration = Duration::from_secs(10);

/// Says hello, then answers requests until told to leave or the channel ends.
///
/// # Errors
/// [`AgentError`] when the channel breaks or carries what is no request.
pub fn serve(channel: impl AsFd, places: &Places, complaints: Vec<String>) -> Result<(), AgentError> {
    let channel = channel.as_fd();
    let mut places = places.clone();
    send(channel, &Reply::Hello(hello(complaints)))?;
    let mut decoder = Decoder::new();
    let mut looking = None;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        while let Some(frame) = decoder.frame() {
            let Frame::Message(request) = frame? else { continue };
            let reply = match request {
                Request::Run { workload, probes: Probes::None } => run(&workload, &places),
                Request::Look { inside } => {
                    drop(looking.take()); // of a trial that failed
                    looking = Some(Looking::begin(inside, &places));
                    Reply::Looking
                }
                Request::Tell => match looking.take() {
                    Some(looking) => looking.end(&mut |frame| send_frame(channel, frame))?,
                    None => Reply::Failed { error: "nobody asked to look".to_owned() },
                },
                Request::Run { workload, probes } => {
                    run_observed(&workload, probes, &places, &mut |frame| send_frame(channel, frame))?
                }
                Request::Share { mount } => match share::mount(&mount) {
                    Ok(line) => {
                        places.share = Some(vmtax_wire::SHARE.into());
                        Reply::Shared { mount: line }
                    }
                    Err(error) => Reply::Failed { error },
                },
                Request::Root { host_name, writable, network } => {
                    match exec::prepare(&host_name, &writable, network, &places) {
                        Ok(()) => Reply::Rooted,
                        Err(error) => Reply::Failed { error },
                    }
                }
                Request::Exec { launch, probes } => exec::run(&launch, (&places, probes), channel, &mut decoder)?,
                // Of a command that has ended meanwhile.
                Request::Signal { .. } | Request::Close { .. } | Request::Resize { .. } => continue,
                Request::Ping => ping(),
                Request::Leave => return Ok(()),
            };
            send(channel, &reply)?;
        }
        match rustix::io::retry_on_intr(|| rustix::io::read(channel, &mut buffer)) {
            Ok(0) => return Ok(()),
            Ok(n) => decoder.push(&buffer[..n]),
            Err(e) => return Err(AgentError::Channel(e.into())),
        }
    }
}

/// The kernel that runs this.
pub(crate) fn kernel() -> KernelIdentity {
    let uname = rustix::system::uname();
    let text = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
    KernelIdentity { system: text(uname.sysname()), release: text(uname.release()), version: text(uname.version()) }
}

fn hello(complaints: Vec<String>) -> Hello {
    Hello {
        vmtax: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: kernel(),
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        complaints,
    }
}

pub(crate) fn send(channel: BorrowedFd<'_>, reply: &Reply) -> Result<(), AgentError> {
    send_frame(channel, &encode(reply)?)
}

pub(crate) fn send_frame(channel: BorrowedFd<'_>, frame: &[u8]) -> Result<(), AgentError> {
    let mut rest = frame;
    while !rest.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(channel, rest));
        rest = &rest[written.map_err(|e| AgentError::Channel(e.into()))?..];
    }
    Ok(())
}

fn run(workload: &WorkloadSpec, places: &Places) -> Reply {
    match run_in_fresh_process(workload, places, None) {
        Ok(result) => Reply::Done { result: Box::new(result), observed: None },
        Err(error) => Reply::Failed { error },
    }
}

/// Answers exchanges of stamps until the controller ends them.
fn ping() -> Reply {
    let answered =
        Shared::guest().and_then(|shared| vmtax_clock::answer(&shared, HOST_CELL, GUEST_CELL, PING_DEADLINE));
    match answered {
        Ok(()) => Reply::Pinged,
        Err(error) => Reply::Failed { error: error.to_string() },
    }
}

/// Runs a workload as a process of its own; its stamps, operation by operation, go to the file `series` if one is named.
pub(crate) fn run_in_fresh_process(
    workload: &WorkloadSpec,
    places: &Places,
    series: Option<&str>,
) -> Result<TrialResult, String> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["agent", "run", workload.name.as_str(), "--json"]);
    command.args(workload.options.iter().map(|(option, value)| format!("{option}={value}")));
    command.args(series.iter().flat_map(|file| ["--series", file]));
    for (flag, place) in [("--files", &places.files), ("--disk", &places.disk), ("--share", &places.share)] {
        if let Some(path) = place {
            command.arg(flag).arg(path);
        }
    }
    let tell = |e: io::Error| format!("{} could not be started: {e}", workload.name);
    let output = command.stdin(Stdio::null()).output().map_err(tell)?;
    if let Some(signal) = output.status.signal() {
        let hint =
            if signal == libc::SIGKILL { "; probably out of memory: give the guest more with --memory" } else { "" };
        return Err(format!("{} was ended by signal {signal}{hint}", workload.name));
    }
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(said.trim().trim_start_matches("Error: ").to_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("{} gave no result: {e}", workload.name))
}
