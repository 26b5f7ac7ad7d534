//! Options of every command that carries a study out.

use crate::command::Verbosity;
use clap::Args;
use std::path::PathBuf;

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
}
