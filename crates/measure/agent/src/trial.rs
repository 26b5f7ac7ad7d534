//! A trial as a fresh process of this same binary.

use rustix::process::{Signal, set_parent_process_death_signal};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use vmtax_model::{KernelIdentity, Places, TrialResult, WorkloadSpec};

/// The kernel that runs this.
pub(crate) fn kernel() -> KernelIdentity {
    let uname = rustix::system::uname();
    let text = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
    KernelIdentity { system: text(uname.sysname()), release: text(uname.release()), version: text(uname.version()) }
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
    // SAFETY: between fork and exec one system call is made.
    unsafe {
        // Should the agent and its watchdog both be killed. The thread that starts it waits for it.
        command.pre_exec(|| set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into));
    }
    let tell = |e: io::Error| format!("{} could not be started: {e}", workload.name);
    let output = command.stdin(Stdio::null()).output().map_err(tell)?;
    if let Some(signal) = output.status.signal() {
        let hint = if signal == libc::SIGKILL { "; probably out of memory: use a larger --memory" } else { "" };
        return Err(format!("{} was killed by signal {signal}{hint}", workload.name));
    }
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(said.trim().trim_start_matches("Error: ").to_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("{} returned an invalid result: {e}", workload.name))
}
