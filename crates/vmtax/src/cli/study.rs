//! Options of every command that makes a recording: of all studies, of `vmtax profile` with its two commands on profiles that
//! are there, of `vmtax import`.

use crate::command::Verbosity;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use vmtax_studies::ProfileOptions;

/// A study's options, and what becomes of its recording.
#[derive(Debug, Args)]
pub struct StudyArgs<O: Args> {
    #[command(flatten)]
    pub options: O,
    #[command(flatten)]
    pub record: RecordArgs,
}

/// Where a recording is written, and how its report is printed.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub struct RecordArgs {
    /// Directory of this recording, new or empty [default: a new one in --dir]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Directory of recordings
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
    /// Print JSON instead of the report
    #[arg(long)]
    pub json: bool,
    /// Print every table of the report
    #[arg(long, conflicts_with = "json")]
    pub details: bool,
    /// Print the plan of the run (TOML), and exit
    #[arg(long)]
    pub dry_run: bool,
    /// Print a line for each step to standard error
    #[arg(short, long)]
    pub verbose: bool,
    /// Print no progress to standard error, only warnings and errors
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
}

impl RecordArgs {
    /// Amount that is printed to standard error while measuring.
    pub fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            _ => Verbosity::Normal,
        }
    }

    /// Returns the options of a further recording, in --dir, beside the one of --output.
    pub fn beside_output(&self) -> RecordArgs {
        RecordArgs {
            output: None,
            ..self.clone()
        }
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "The format of each file is recognized by its header: trace.dat of trace-cmd 2 and 3, perf.data with tracepoints, the \
text of tracefs (trace, trace_pipe), of `trace-cmd report` and `perf script`, QEMU's trace (simple and log backend). They are \
of one VM: host, guest and QEMU. The report names what the files do not hold, and how their clocks were joined. Stacks of \
perf.data: `vmtax profile import`. See docs/import.md.

Examples:
  vmtax import trace.dat
  vmtax import host.dat guest.dat
  vmtax import perf.data --pid 1234 --json
  vmtax import trace.txt qemu.log -o theirs
  vmtax import --dataset dataset --host db-1 --dir db-1"
)]
pub struct ImportTracesArgs {
    /// Traces of one VM
    #[arg(value_name = "FILE", required_unless_present = "dataset", num_args = 1..=64)]
    pub files: Vec<PathBuf>,
    /// Add the runs of the dataset in DIR to the history in --dir, for `vmtax history`: figures and facts, no recordings
    #[arg(long, value_name = "DIR", conflicts_with_all = ["files", "pid", "guest_trace", "tsc_mhz", "output", "dry_run", "json", "details"])]
    pub dataset: Option<PathBuf>,
    /// Of the dataset only the runs of the host with this name [default: all]
    #[arg(long, value_name = "NAME", requires = "dataset")]
    pub host: Option<String>,
    /// Process of QEMU, or a vCPU thread, where the trace has several VMs [default: the one with most VM exits]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
    /// The file of the guest's kernel [default: the one without events of KVM, or that trace-cmd synchronized with its host]
    #[arg(long, value_name = "FILE")]
    pub guest_trace: Option<PathBuf>,
    /// Rate of the time stamp counter, for a clock that counts its ticks and a file that does not say the rate
    #[arg(long, value_name = "MHZ", value_parser = mhz)]
    pub tsc_mhz: Option<f64>,
    #[command(flatten)]
    pub record: RecordArgs,
}

fn mhz(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|mhz| (1.0..=1e6).contains(mhz));
    number.ok_or_else(|| "give MHz from 1 to 1000000, as 2592.0".to_owned())
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ProfileArgs {
    #[command(subcommand)]
    pub command: Option<ProfileCommand>,
    #[command(flatten)]
    pub study: StudyArgs<ProfileOptions>,
}

#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Import perf.data or folded stacks of another tool
    #[command(
        after_help = "Stacks of `perf record --call-graph dwarf` are unwound here, those of `-g` taken as they are. \
Functions are named from the files of this host whose build-ids were recorded.

Examples:
  vmtax profile import perf.data
  vmtax profile import perf.data --pid 1234 --symbols ~/src/qemu/build/qemu-system-x86_64
  vmtax profile import stacks.folded --output theirs"
    )]
    Import(ImportArgs),
    /// Differential flame graph of two profiles
    #[command(after_help = "Examples:
  vmtax profile diff runs/20261120T160100Z-profile runs/20261121T160100Z-profile
  vmtax profile diff before.folded after.folded -o difference.svg")]
    Diff(DiffArgs),
}

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// File of `perf record`, or folded stacks: lines `frame;frame;frame count`
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Process to show [default: the one with most samples]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
    /// Unstripped binary of the program, for function names
    #[arg(long, value_name = "FILE")]
    pub symbols: Option<PathBuf>,
    /// As root, import a file that belongs to another user, too
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub record: RecordArgs,
}

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// Profile before: a recording, or a file of folded stacks
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// Profile after
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,
    /// SVG file to write
    #[arg(short, long, value_name = "FILE", default_value = "difference.svg")]
    pub output: PathBuf,
}
