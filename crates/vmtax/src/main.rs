//! The `vmtax` program: reads the command line, calls the stages, prints, and says with its exit status how it went.

// Standard error may go away, which ends no measurement: `fault::note`.
#![warn(clippy::print_stderr)]

mod cli;
mod command;
mod fault;

use clap::Parser;
use clap::error::{ContextKind, ContextValue};
use cli::{AgentCommand, Cli, Command};
use fault::Fault;
use signal_hook::consts::SIGXFSZ;
use std::process::ExitCode;
use std::sync::Arc;

/// Commands that only the program itself starts.
const INTERNAL: [&str; 2] = ["watchdog", "jail"];

fn main() -> ExitCode {
    if std::process::id() == 1
        && std::env::args_os()
            .next()
            .is_some_and(|name| name == "/init")
    {
        vmtax_agent::init();
    }
    command::answer_shell();
    // A file that reaches `ulimit -f` is an error of its write, with a message: not the end of this process. What is
    // executed gets the default back, as it would not if the signal was ignored.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    match run(parse().command) {
        Ok(code) => code,
        Err(fault) => {
            // It may quote a guest, or a stranger's recording.
            fault::note(&format!("Error: {fault}"));
            fault.exit_code()
        }
    }
}

/// The command line, parsed; ends the program with help or an error, which suggests no internal command.
fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|mut error| {
        let is_internal = |name: &String| INTERNAL.contains(&name.as_str());
        match error.remove(ContextKind::SuggestedSubcommand) {
            Some(ContextValue::Strings(names)) if !names.iter().any(is_internal) => {
                error.insert(
                    ContextKind::SuggestedSubcommand,
                    ContextValue::Strings(names),
                );
            }
            _ => {}
        }
        let text = error.to_string();
        let shown = vmtax_model::without_secrets(&text);
        if error.use_stderr() && shown != text {
            fault::tell(&shown);
            std::process::exit(error.exit_code());
        }
        error.exit()
    })
}

fn run(command: Command) -> Result<ExitCode, Fault> {
    match command {
        Command::Doctor(args) => command::doctor(&args),
        Command::Vms(args) => command::vms(&args),
        Command::Review(args) => command::review(&args),
        Command::Top(args) => command::top(&args),
        Command::Run(args) => command::study(&args),
        Command::Diagnose(args) => command::study(&args),
        Command::Tune(args) => command::tune(&args),
        Command::Undo(args) => command::undo(&args),
        Command::Layers(args) => command::study(&args),
        Command::Scale(args) => command::study(&args),
        Command::Compare(args) => command::compare(&args),
        Command::Reproduce(args) => command::reproduce(&args),
        Command::Exec(args) => command::exec(&args),
        Command::Exits(args) => command::study(&args),
        Command::Import(args) => command::import(&args),
        Command::Profile(args) => command::profile(&args),
        Command::Share(args) => command::study(&args),
        Command::Report(args) => command::report(&args),
        Command::Export(args) => command::export(&args),
        Command::Fleet(args) => command::fleet(&args),
        Command::History(args) => command::history(&args),
        Command::List(args) => command::list(&args),
        Command::Build(args) => command::build(&args),
        Command::Get(args) => command::get(&args),
        Command::Agent(AgentCommand::Run(args)) => command::agent_run(&args),
        Command::Agent(AgentCommand::Observe(args)) => command::agent_observe(&args),
        Command::Agent(AgentCommand::Serve(args)) => command::agent_serve(&args),
        Command::Agent(AgentCommand::Echo) => command::agent_echo(),
        Command::Completions { shell } => command::completions(shell),
        Command::Man { folder } => command::man(&folder),
        Command::Mcp(args) => command::mcp(&args),
        Command::Watchdog(args) => command::watchdog(&args),
        Command::Jail(args) => command::jail(&args),
    }
}
