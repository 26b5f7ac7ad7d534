//! A trial as a fresh process of this same binary.

use rustix::process::{Signal, set_parent_process_death_signal};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Output, Stdio};
use vmtax_model::{BatchEdge, KernelIdentity, Places, TrialResult, WorkloadSpec};

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

/// Receives each begin and end of a batch while the workload waits; an error ends the workload.
pub(crate) type OnBatch<'a> = dyn FnMut(BatchEdge) -> io::Result<()> + 'a;

/// Runs a workload as a process of its own; its stamps, operation by operation, go to the file `series` if one is named, the
/// edges of its batches to `on_batch`.
pub(crate) fn run_in_fresh_process(
    workload: &WorkloadSpec,
    places: &Places,
    series: Option<&str>,
    on_batch: Option<&mut OnBatch<'_>>,
) -> Result<TrialResult, String> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["agent", "run", workload.name.as_str(), "--json"]);
    command.args(
        workload
            .options
            .iter()
            .map(|(option, value)| format!("{option}={value}")),
    );
    command.args(series.iter().flat_map(|file| ["--series", file]));
    for (flag, place) in [
        ("--files", &places.files),
        ("--disk", &places.disk),
        ("--share", &places.share),
    ] {
        if let Some(path) = place {
            command.arg(flag).arg(path);
        }
    }
    if let Some(echo) = places.echo {
        command.arg("--echo").arg(echo.to_string());
    }
    // SAFETY: between fork and exec one system call is made.
    unsafe {
        // Should the agent and its watchdog both be killed. The thread that starts it waits for it.
        command
            .pre_exec(|| set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into));
    }
    let tell = |e: io::Error| format!("{} could not be started: {e}", workload.name);
    let output = match on_batch {
        None => command.stdin(Stdio::null()).output(),
        Some(on_batch) => output_with_batches(command, on_batch),
    };
    let output = output.map_err(tell)?;
    if let Some(signal) = output.status.signal() {
        let hint = if signal == libc::SIGKILL {
            "; probably out of memory: use a larger --memory"
        } else {
            ""
        };
        return Err(format!(
            "{} was killed by signal {signal}{hint}",
            workload.name
        ));
    }
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(said.trim().trim_start_matches("Error: ").to_owned());
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|e| format!("{} returned an invalid result: {e}", workload.name))
}

/// Runs a command whose standard input is a socket on which it sends the edges of its batches.
fn output_with_batches(mut command: Command, on_batch: &mut OnBatch<'_>) -> io::Result<Output> {
    let (mut edges, theirs) = UnixStream::pair()?;
    command
        .arg("--notified")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn()?;
    // Its copy of their end would keep the socket open.
    drop(command);
    std::thread::scope(|scope| {
        let ended =
            std::thread::Builder::new().spawn_scoped(scope, || Child::wait_with_output(child))?;
        let mut edge = [0; 8];
        let mut forwarded = Ok(());
        while forwarded.is_ok() && edges.read_exact(&mut edge).is_ok() {
            forwarded = on_batch(BatchEdge::from_bytes(edge)).and_then(|()| edges.write_all(&[0]));
        }
        // A workload that waits for an answer ends.
        drop(edges);
        ended
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that reads its output ended")))
    })
}
