//! What every command takes that carries a study out.

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

/// Where a recording is made, and how its report is shown.
#[derive(Debug, Clone, Args)]
pub struct RecordArgs {
    /// The folder for recordings
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub runs: PathBuf,
    /// The folder of the recording, new or empty [default: a new one in that of --runs]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the plan that this command line means, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print everything as JSON instead of the table
    #[arg(long)]
    pub json: bool,
    /// Print every table; of `run` every trial's figures, the five tests' as sysbench does
    #[arg(long, conflicts_with = "json")]
    pub details: bool,
}
