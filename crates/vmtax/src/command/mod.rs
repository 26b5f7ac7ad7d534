//! The subcommands: each calls the stages that it needs.

mod agent;
mod completions;
mod export;
mod get;
mod history;
mod host;
mod import;
mod man;
mod mcp;
mod record;
mod report;
mod review;
mod study;
mod top;

pub use agent::{agent_echo, agent_observe, agent_run, agent_serve, jail, watchdog};
pub use completions::{answer_shell, completions};
pub use export::export;
pub use get::{build, get};
pub use history::{fleet, history};
pub use host::{doctor, undo, vms};
pub use import::{import, profile};
pub use man::man;
pub use mcp::mcp;
pub use report::{list, report};
pub use review::review;
pub use study::{compare, exec, reproduce, study, tune};
pub use top::top;

use crate::fault::{Fault, note, tell};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::OnceLock;
use vmtax_report::Style;
use vmtax_vm::Interrupt;

/// Width of text that no terminal shows, unless COLUMNS says otherwise, and the largest width, characters.
const DEFAULT_WIDTH: usize = 100;
const MAX_WIDTH: usize = 1000;

/// Returns the width and the color of text for standard output.
fn style() -> Style {
    style_of(&std::io::stdout())
}

fn style_of<S: IsTerminal + AsFd>(stream: &S) -> Style {
    let of_terminal = rustix::termios::tcgetwinsize(stream)
        .ok()
        .map(|size| usize::from(size.ws_col));
    // Of a pipe or file, and of a terminal that does not know its width.
    let wanted = || std::env::var("COLUMNS").ok()?.parse().ok();
    let width = of_terminal.filter(|columns| *columns > 0);
    let width = width.or_else(|| wanted().filter(|columns| *columns > 0));
    Style {
        width: width.map_or(DEFAULT_WIDTH, |width| width.min(MAX_WIDTH)),
        color: stream.is_terminal()
            && std::env::var_os("NO_COLOR").is_none()
            && !is_dumb_terminal(),
    }
}

/// Returns true if the terminal has no colors and cannot place its cursor: TERM says so, or nothing.
fn is_dumb_terminal() -> bool {
    let term = std::env::var_os("TERM");
    term.is_none_or(|term| term.is_empty() || term == "dumb")
}

/// Prints; a reader that went away (`| head`) is no fault.
fn print(text: &str) -> Result<(), Fault> {
    let mut stdout = std::io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Fault::file("writing to standard output", e))
        }
        _ => Ok(()),
    }
}

fn write_file(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Fault> {
    std::fs::write(path, content).map_err(|e| Fault::file(format!("writing {}", path.display()), e))
}

/// Ctrl-C and its like end what is under way in good order: what was recorded until then is shown. It is one for the whole
/// program: what a command does in several steps is ended by one signal.
fn interrupt() -> Result<&'static Interrupt, Fault> {
    static INTERRUPT: OnceLock<Interrupt> = OnceLock::new();
    if let Some(interrupt) = INTERRUPT.get() {
        return Ok(interrupt);
    }
    let failed = |e| Fault::file("catching signals", e);
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let end = theirs.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, end).map_err(failed)?;
    }
    Ok(INTERRUPT.get_or_init(|| Interrupt::new(ours.into())))
}
