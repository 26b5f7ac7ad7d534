//! Input and output of a command of the user's.

use crate::fault::Fault;
use signal_hook::consts::SIGWINCH;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use vmtax_model::Plan;
use vmtax_vm::{Streams, root_mounts};

/// Returns this process's streams for all `runs` of the plan's command, or this terminal. Files of the host that
/// guests do not see are reported.
pub(super) fn of_command(
    plan: &Plan,
    runs: u64,
    terminal: bool,
    json: bool,
) -> Result<Streams, Fault> {
    if plan.machines.iter().any(|m| m.is_guest()) {
        for (at, kind) in root_mounts()?.refused {
            let line = format!(
                "guests do not see {} ({kind}): it may hang, or be closed to others",
                at.display()
            );
            eprintln!("{}", vmtax_report::printable(&line));
        }
    }
    if terminal {
        let failed = |e| Fault::file("catching signals", e);
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        signal_hook::low_level::pipe::register(SIGWINCH, theirs).map_err(failed)?;
        return Ok(Streams::terminal(ours.into())?);
    }
    if runs > 1 && is_pipe() {
        eprintln!("reading standard input to its end, for all runs; without one give </dev/null");
    }
    Ok(Streams::of_this_process(runs, json)?)
}

/// Returns true if standard input is a pipe or socket: it can be read only once, and may stay open.
fn is_pipe() -> bool {
    let kind = std::fs::metadata("/dev/stdin").map(|about| about.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket())
}
