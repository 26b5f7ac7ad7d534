//! What each subcommand does with the stages.

mod agent;
mod build;
mod carry_out;
mod case;
mod compare;
mod doctor;
mod exec;
mod exits;
mod export;
mod folder;
mod get;
mod history;
mod interim;
mod layers;
mod list;
mod manual;
mod profile;
mod progress;
mod record;
mod report;
mod run;
mod scale;
mod selection;
mod setting;
mod share;
mod share_method;

pub use agent::{agent_run, agent_serve, jail, watchdog};
pub use build::build;
pub use case::case;
pub use compare::compare;
pub use doctor::doctor;
pub use exec::exec;
pub use exits::exits;
pub use export::export;
pub use get::get;
pub use history::history;
pub use layers::layers;
pub use list::list;
pub use manual::{completions, man};
pub use profile::profile;
pub use report::report;
pub use run::run;
pub use scale::scale;
pub use share::share;

use crate::fault::Fault;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use vmtax_report::Style;

/// How standard output wants its text.
fn style() -> Style {
    style_of(&std::io::stdout())
}

fn style_of(stream: &(impl IsTerminal + AsFd)) -> Style {
    let columns = rustix::termios::tcgetwinsize(stream).map_or(0, |size| usize::from(size.ws_col));
    let width = if columns == 0 { 100 } else { columns };
    Style { width, color: stream.is_terminal() && std::env::var_os("NO_COLOR").is_none() }
}

/// Prints; a reader that went away (`| head`) is no fault.
fn print(text: &str) -> Result<(), Fault> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Fault::file("writing to standard output", e)),
        _ => Ok(()),
    }
}
