//! `vmtax profile`'s arguments: a study's, and two commands on profiles that are there.

use super::{RecordArgs, StudyArgs};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use vmtax_studies::ProfileOptions;

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
