//! Errors that end the program early, and their exit status: 2 for "could not run", 130 for "stopped by a person", the
//! status of the user's command if its failure ended the run. Messages on standard error, whose reader may go away: that ends no
//! measurement.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use vmtax_model::limit_remedy;
use vmtax_report::printable;
use vmtax_runner::CommandFailure;

/// Exit status of timeout(1), env(1) and similar programs when they fail themselves.
pub const FAILED: u8 = 125;

/// Why the program could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error(transparent)]
    Run(#[from] vmtax_runner::RunError),
    #[error(transparent)]
    Plan(#[from] vmtax_model::PlanError),
    #[error(transparent)]
    Workload(#[from] vmtax_workload::WorkloadError),
    #[error(transparent)]
    Recording(#[from] vmtax_recording::RecordingError),
    #[error(transparent)]
    Kernel(#[from] vmtax_guests::kernel::KernelError),
    #[error(transparent)]
    Qemu(#[from] vmtax_guests::qemu::QemuError),
    /// The cache's place.
    #[error(transparent)]
    Cache(#[from] vmtax_guests::apt::AptError),
    #[error(transparent)]
    Machine(#[from] vmtax_vm::MachineError),
    #[error(transparent)]
    Fleet(#[from] vmtax_live::FleetError),
    #[error(transparent)]
    Find(#[from] vmtax_vmm::FindError),
    #[error(transparent)]
    Agent(#[from] vmtax_agent::AgentError),
    #[error(transparent)]
    Layers(#[from] vmtax_layers::LayersError),
    #[error(transparent)]
    Import(#[from] vmtax_import::ImportError),
    #[error(transparent)]
    Profile(#[from] vmtax_profile::ProfileError),
    #[error(transparent)]
    Observe(#[from] vmtax_observe::ProbeError),
    #[error(transparent)]
    Export(#[from] vmtax_export::ExportError),
    #[error(transparent)]
    Options(#[from] vmtax_studies::OptionsError),
    #[error(transparent)]
    Case(#[from] vmtax_studies::reproduce::PublishedError),
    #[error(transparent)]
    Report(#[from] vmtax_report::ReportError),
    #[error(transparent)]
    Study(#[from] vmtax_studies::StudyError),
    #[error(transparent)]
    History(#[from] vmtax_studies::history::HistoryError),
    /// A file or stream of this program's own.
    #[error("{what}: {source}{}", limit_remedy(.source))]
    File {
        /// The operation that failed, with its file.
        what: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Options that do not go together, or say nothing.
    #[error("{0}")]
    Usage(String),
    /// The run went on to its end, but some trials have no result.
    #[error("some trials have no result; what there is was recorded in {folder}. The first: {first}", folder = .folder.display())]
    Incomplete {
        /// Directory of the recording.
        folder: PathBuf,
        /// The first reason.
        first: String,
    },
    /// The user's command failed on the baseline.
    #[error(
        "{}; what was recorded until then is in {folder}", failure_of_command(*machine, *status, said.as_deref()), folder = .folder.display()
    )]
    CommandFailed {
        /// Machine on which the command failed.
        machine: vmtax_model::Machine,
        /// Exit status of the command.
        status: i32,
        /// Message of a program whose output is not passed on.
        said: Option<String>,
        /// Directory of the recording.
        folder: PathBuf,
    },
    /// A person or a signal stopped it.
    #[error("interrupted; the trials before are in {folder}: `vmtax report {folder}` shows them", folder = .folder.display())]
    Interrupted {
        /// Directory of the recording.
        folder: PathBuf,
    },
}

/// A sentence on a command, or a program of the host, that failed.
fn failure_of_command(machine: vmtax_model::Machine, status: i32, said: Option<&str>) -> String {
    match said {
        Some(said) => format!("{said} (on {machine}, which ended the run)"),
        None if status == 127 => format!(
            "the command, or a program that it runs, was not found on {machine} (exit status 127), which ended the run. Check its name and PATH"
        ),
        None if status == 126 => format!(
            "the command, or a program that it runs, cannot be executed on {machine} (exit status 126), which ended the run. Check its permissions and its first line"
        ),
        None => format!(
            "the command failed on {machine} (exit status {status}), which ended the run. --ignore-failure measures a command that fails"
        ),
    }
}

impl Fault {
    pub fn file(what: impl Into<String>, source: io::Error) -> Fault {
        Fault::File {
            what: what.into(),
            source,
        }
    }

    /// The failure of a command, which a recording has.
    pub fn command_failed(failure: CommandFailure, folder: PathBuf) -> Fault {
        let CommandFailure {
            machine,
            status,
            said,
        } = failure;
        Fault::CommandFailed {
            machine,
            status,
            said,
            folder,
        }
    }

    /// The status the process ends with.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Fault::Interrupted { .. } => ExitCode::from(130),
            Fault::CommandFailed { status, .. } => {
                ExitCode::from(u8::try_from(*status).unwrap_or(FAILED))
            }
            _ => ExitCode::from(2),
        }
    }
}

/// Bytes of each end of a line that is shown of a longer one: it quotes a name that no file can have.
const LINE_END: usize = 2000;

/// Prints a line, which may quote a guest or a stranger's recording.
pub fn note(line: &str) {
    let lines = line.split('\n').map(shortened);
    let line = lines.collect::<Vec<_>>().join("\n");
    tell(&format!("{}\n", printable(&line)));
}

/// A line without its middle, where it is long.
fn shortened(line: &str) -> String {
    if line.len() <= 2 * LINE_END {
        return line.to_owned();
    }
    let begin: String = line.chars().take(LINE_END).collect();
    let end: Vec<char> = line.chars().rev().take(LINE_END).collect();
    begin + " … " + &end.into_iter().rev().collect::<String>()
}

/// Prints a page of the program's own.
pub fn tell(page: &str) {
    let _ = std::io::stderr().write_all(page.as_bytes());
}
