//! The command line: one definition for parsing, help, completions and manual pages.

mod agent;
mod profile;
mod qemus;
mod study;

pub use agent::{AgentCommand, AgentRunArgs, AgentServeArgs, PlaceArgs, SupervisedArgs};
pub use profile::{DiffArgs, ImportArgs, ProfileArgs, ProfileCommand};
pub use qemus::{BuildArgs, BuildWhat, GetArgs, GetWhat};
pub use study::{RecordArgs, StudyArgs};

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use vmtax_model::{Machine, Metric};
use vmtax_studies::reproduce::ReproduceOptions;
use vmtax_studies::{
    CompareOptions, ExecOptions, ExitsOptions, LayersOptions, OverheadOptions, ScaleOptions, ShareOptions,
};

/// What a virtual machine costs, which layer takes it, and how to get it back.
#[derive(Debug, Parser)]
#[command(name = "vmtax", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "Examples:
  vmtax doctor                what this machine can do, and what is missing
  vmtax run --quick           native against a guest, in under three minutes
  vmtax report runs/…         show a recording again

Exit status: 0 done, 1 a check did not hold, 2 could not run (and why), 130 interrupted.";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Report what this machine can do, what is missing, and how to fix it
    #[command(after_help = "Examples:
  vmtax doctor
  vmtax doctor --json | jq '.checks[] | select(.state != \"ok\")'")]
    Doctor(DoctorArgs),
    /// Measure workloads natively and in guests, and report what virtualization costs
    Run(Box<StudyArgs<OverheadOptions>>),
    /// Follow each block request through guest, KVM, QEMU and host, and report where the time goes
    Layers(Box<StudyArgs<LayersOptions>>),
    /// Share a tree of files with a guest by each method, and report which to use
    Share(Box<StudyArgs<ShareOptions>>),
    /// Run a command of yours natively and in guests on the host's own files, and report what virtualization costs it
    Exec(Box<StudyArgs<ExecOptions>>),
    /// Compare VM configurations (QEMUs, options, kernels, patches) and report statistically significant differences
    Compare(Box<StudyArgs<CompareOptions>>),
    /// Profile a running QEMU: threads and functions that its time goes to, VM exits that its guest makes
    Profile(Box<ProfileArgs>),
    /// Measure what a VM exit of each kind costs, with a guest that does nothing else
    Exits(Box<StudyArgs<ExitsOptions>>),
    /// Measure at several sizes whether a cost grows, by which law, and what one more item costs
    Scale(Box<StudyArgs<ScaleOptions>>),
    /// Reproduce a published result on this host
    Reproduce(Box<StudyArgs<ReproduceOptions>>),
    /// Show a recording again, from its files alone
    #[command(after_help = "Examples:
  vmtax report runs/20261120T160100Z-quick
  vmtax report runs/20261120T160100Z-quick --json | jq '.findings.rows[0]'
  vmtax report runs/20261120T160100Z-quick --format markdown
  vmtax report runs/20261120T160100Z-quick --details")]
    Report(ReportArgs),
    /// Write the requests of a `layers` recording for other tools: Perfetto, or anything that reads Parquet
    #[command(
        after_help = "docs/export.md says what is in each file. ui.perfetto.dev opens a Perfetto trace, without sending it on.

Examples:
  vmtax export runs/20261120T160100Z-layers --perfetto trace.pftrace --only median,p99
  vmtax export runs/20261120T160100Z-layers --parquet requests.parquet --segments segments.parquet"
    )]
    Export(ExportArgs),
    /// List the recordings there are
    #[command(after_help = "Examples:
  vmtax list
  vmtax list --dir /srv/measurements --json")]
    List(ListArgs),
    /// Show what was measured before: a metric over all runs, and where it changed
    #[command(
        after_help = "Every run leaves its figures in a ledger beside the recordings, where they stay when a recording is deleted;
without METRIC it is listed. Only what was measured under the same conditions is held against each other.
docs/history.md says how changes are found, and what that promises.

Examples:
  vmtax history
  vmtax history cpu.events --machine tcg
  vmtax history seqread.latency-p50 -o history.html
  vmtax history syscalls.getpid --json | jq '.series[].changes'"
    )]
    History(HistoryArgs),
    /// Fetch what guests are made of, without installing it
    #[command(after_help = "Examples:
  vmtax get                   what is there, and what can be had
  vmtax get kernel            the distribution's kernel
  vmtax get kernel 6.1        a certain one
  vmtax get qemu 5.2          another QEMU, for --qemu 5.2")]
    Get(GetArgs),
    /// Build what guests run on from source
    #[command(after_help = "Examples:
  vmtax build qemu 7.2 --patch 9p-list
  vmtax build qemu ~/src/qemu")]
    Build(BuildArgs),
    /// Guest agent; also runs workloads stand-alone on any kernel with a Linux ABI
    #[command(subcommand)]
    Agent(AgentCommand),
    /// Print a shell's completions
    #[command(after_help = "Examples:
  vmtax completions bash > ~/.local/share/bash-completion/completions/vmtax")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder
    #[command(after_help = "Examples:
  vmtax man /usr/local/share/man/man1")]
    Man {
        /// The folder
        folder: PathBuf,
    },
    /// Run a command that ends when this program does
    #[command(hide = true)]
    Watchdog(SupervisedArgs),
    /// Run a server that sees nothing of the host but its programs
    #[command(hide = true)]
    Jail(SupervisedArgs),
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print everything as JSON
    #[arg(long)]
    pub json: bool,
    /// Also check this QEMU: a file, or the version or suite of one that `vmtax get qemu` fetched
    #[arg(long, value_name = "QEMU")]
    pub qemu: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// The metric, as the list names it
    #[arg(value_name = "METRIC")]
    pub metric: Option<Metric>,
    /// One machine: native, kvm, tcg, micro-kvm, micro-tcg [default: all]
    #[arg(long, value_name = "MACHINE")]
    pub machine: Option<Machine>,
    /// Folder of recordings, with their ledger
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
    /// Print everything as JSON
    #[arg(long)]
    pub json: bool,
    /// Write an HTML page with charts into this file
    #[arg(short, long, value_name = "FILE", requires = "metric")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The recording's folder
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Print everything as JSON instead of the table
    #[arg(long, conflicts_with = "details")]
    pub json: bool,
    /// Print the whole report in this format: markdown for a comment or an issue, html for a page
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["details", "json"], value_parser = formats())]
    pub format: Option<String>,
    /// Print every trial's figures, the five tests' as sysbench does
    #[arg(long)]
    pub details: bool,
    /// Where to write the HTML report [default: report.html in the recording]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The recording's folder
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// A Perfetto trace: a track for each thread and side, arrows along each request
    #[arg(long, value_name = "FILE")]
    pub perfetto: Option<PathBuf>,
    /// Of each trial only these requests in the Perfetto trace: median, p90, p99, max (comma separated) [default: all]
    #[arg(long, value_delimiter = ',', value_name = "LIST", requires = "perfetto", value_parser = ["median", "p90", "p99", "max"])]
    pub only: Vec<String>,
    /// A Parquet table with a row for each request
    #[arg(long, value_name = "FILE")]
    pub parquet: Option<PathBuf>,
    /// A Parquet table with a row for each segment of each request's path
    #[arg(long, value_name = "FILE")]
    pub segments: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    /// Folder of recordings
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// The names of the formats that a report can be printed in.
fn formats() -> PossibleValuesParser {
    vmtax_report::FORMATS.iter().map(|(name, _)| *name).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound_and_everything_has_help() {
        fn check(command: &clap::Command) {
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{}: {}", command.get_name(), argument.get_id());
            }
            let shown = |c: &clap::Command| !c.is_hide_set() && c.get_subcommands().next().is_none();
            if shown(command) {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Examples:"), "{} has no examples", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        Cli::command().debug_assert();
        check(&Cli::command());
    }
}
