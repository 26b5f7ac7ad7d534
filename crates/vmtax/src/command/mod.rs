//! The subcommands: each calls the stages that it needs.

mod agent;
mod build;
mod compare;
mod doctor;
mod exec;
mod export;
mod fleet;
mod get;
mod history;
mod import;
mod import_dataset;
mod interrupt;
mod list;
mod manual;
mod once_more;
mod profile;
mod progress;
mod record;
mod recording_folder;
mod report;
mod reproduce;
mod review;
mod streams;
mod study;
mod top;
mod tune;
mod undo;
mod vms;

pub use agent::{agent_echo, agent_observe, agent_run, agent_serve, jail, watchdog};
pub use build::build;
pub use compare::compare;
pub use doctor::doctor;
pub use exec::exec;
pub use export::export;
pub use fleet::fleet;
pub use get::get;
pub use history::history;
pub use import::import;
pub use list::list;
pub use manual::{completions, man};
pub use profile::profile;
pub use progress::Verbosity;
pub use report::report;
pub use reproduce::reproduce;
pub use review::review;
pub use study::study;
pub use top::top;
pub use tune::tune;
pub use undo::undo;
pub use vms::vms;

use crate::fault::Fault;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use vmtax_report::Style;

/// Returns the width and the color of text for standard output.
fn style() -> Style {
    style_of(&std::io::stdout())
}

fn style_of(stream: &(impl IsTerminal + AsFd)) -> Style {
    let columns = rustix::termios::tcgetwinsize(stream).map_or(0, |size| usize::from(size.ws_col));
    let width = if columns == 0 { 100 } else { columns };
    Style {
        width,
        color: stream.is_terminal() && std::env::var_os("NO_COLOR").is_none(),
    }
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
