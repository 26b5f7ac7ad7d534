//! Requests come, workloads run, replies go.

use crate::AgentError;
use rustix::fd::{AsFd, BorrowedFd};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use vmtax_model::{KernelIdentity, Places, TrialResult, WorkloadSpec};
use vmtax_wire::{Decoder, Hello, Reply, Request, encode};

/// Says hello, then answers requests until told to leave or the channel ends.
///
/// # Errors
/// [`AgentError`] when the channel breaks or carries what is no request.
pub fn serve(channel: impl AsFd, places: &Places, complaints: Vec<String>) -> Result<(), AgentError> {
    let channel = channel.as_fd();
    send(channel, &Reply::Hello(hello(complaints)))?;
    let mut decoder = Decoder::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        while let Some(request) = decoder.message() {
            match request? {
                Request::Run { workload } => send(channel, &run(&workload, places))?,
                Request::Leave => return Ok(()),
            }
        }
        match rustix::io::retry_on_intr(|| rustix::io::read(channel, &mut buffer)) {
            Ok(0) => return Ok(()),
            Ok(n) => decoder.push(&buffer[..n]),
            Err(e) => return Err(AgentError::Channel(e.into())),
        }
    }
}

fn hello(complaints: Vec<String>) -> Hello {
    let uname = rustix::system::uname();
    let text = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
    Hello {
        vmtax: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: KernelIdentity {
            system: text(uname.sysname()),
            release: text(uname.release()),
            version: text(uname.version()),
        },
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        complaints,
    }
}

fn send(channel: BorrowedFd<'_>, reply: &Reply) -> Result<(), AgentError> {
    let frame = encode(reply)?;
    let mut rest = frame.as_slice();
    while !rest.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(channel, rest));
        rest = &rest[written.map_err(|e| AgentError::Channel(e.into()))?..];
    }
    Ok(())
}

fn run(workload: &WorkloadSpec, places: &Places) -> Reply {
    match run_in_fresh_process(workload, places) {
        Ok(result) => Reply::Done { result: Box::new(result) },
        Err(error) => Reply::Failed { error },
    }
}

fn run_in_fresh_process(workload: &WorkloadSpec, places: &Places) -> Result<TrialResult, String> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["agent", "run", workload.name.as_str(), "--json"]);
    command.args(workload.options.iter().map(|(option, value)| format!("{option}={value}")));
    for (flag, place) in [("--files", &places.files), ("--disk", &places.disk)] {
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
