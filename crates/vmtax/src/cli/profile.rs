//! `vmtax profile`'s arguments.

use super::CommonArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use vmtax_model::Machine;

/// Samples a second of each thread that runs.
pub const HZ: u32 = 99;
/// Looks a second at every thread.
pub const WALL_HZ: u32 = 19;
/// Bytes copied of a stack.
pub const STACK: u32 = 12_288;

/// What says something of a workload's guest, or of its run: a process that runs has its own.
const OF_A_GUEST: [&str; 14] = [
    "machine",
    "guest_hz",
    "syscalls",
    "share",
    "rounds",
    "qemu",
    "kernel",
    "modules",
    "cpus",
    "memory",
    "seed",
    "deadline",
    "boot_deadline",
    "workload",
];

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, mut_arg("rounds", |rounds| rounds.hide(true)))]
pub struct ProfileArgs {
    #[command(subcommand)]
    pub command: Option<ProfileCommand>,
    /// The process to look at, a QEMU or any other
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..), conflicts_with_all = OF_A_GUEST)]
    pub pid: Option<i32>,
    /// How long to look [default: 10; at a workload: as long as it runs]
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<f64>,
    /// Samples a second of each thread that runs
    #[arg(long, value_name = "N", default_value_t = HZ, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub hz: u32,
    /// Looks a second at every thread, running or not, and, through its monitor, at the processors of a guest of KVM
    /// (at most 50); each stops it for some microseconds; 0 for none
    #[arg(long, value_name = "N", default_value_t = WALL_HZ, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub wall_hz: u32,
    /// How long the scheduler's events and system calls are traced at first, as root; 0 for not at all
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub events: f64,
    /// Bytes copied of a stack with each sample
    #[arg(long, value_name = "BYTES", default_value_t = STACK, value_parser = clap::value_parser!(u32).range(1024..=65_000))]
    pub stack: u32,
    /// The unstripped build of the program, for its functions' names
    #[arg(long, value_name = "FILE")]
    pub symbols: Option<PathBuf>,
    /// The folder of the recording, new or empty [default: a new one in that of --runs]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The guest for a workload: kvm, tcg, micro-kvm, micro-tcg [default: KVM where it runs kernels, else TCG]
    #[arg(long, value_name = "MACHINE")]
    pub machine: Option<Machine>,
    /// Samples a second in a workload's guest, by its own kernel; 0 for none
    #[arg(long, value_name = "N", default_value_t = HZ, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub guest_hz: u32,
    /// Count the system calls in a workload's guest, in its kernel where that has BPF: all, or those of each process
    #[arg(long, value_name = "BY", num_args = 0..=1, require_equals = true, default_missing_value = "call", value_enum)]
    pub syscalls: Option<SyscallsBy>,
    /// How a workload's tree is shared with its guest, as `vmtax share` writes it [default: 9p,cache=loose]
    #[arg(long, value_name = "WAY")]
    pub share: Option<String>,
    #[command(flatten)]
    pub common: CommonArgs,
    /// A workload and its options as OPTION=VALUE, or a plan's file (.toml): run once in a guest of its own
    #[arg(last = true, value_name = "WORKLOAD")]
    pub workload: Vec<String>,
}

/// How a guest's system calls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SyscallsBy {
    /// By call
    Call,
    /// By call and process
    Process,
}

#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Show what others recorded: a file of perf record, or folded stacks of any tool
    #[command(
        after_help = "Stacks of `perf record --call-graph dwarf` are unwound here, those of `-g` taken as they are. Functions are named
from the files of this machine where these are what was recorded, by their build-ids.

Examples:
  vmtax profile import perf.data
  vmtax profile import perf.data --pid 1234 --symbols ~/src/qemu/build/qemu-system-x86_64
  vmtax profile import stacks.folded --out theirs"
    )]
    Import(ImportArgs),
    /// Draw what changed between two profiles
    #[command(after_help = "Examples:
  vmtax profile diff runs/20261120T160100Z-profile runs/20261121T160100Z-profile
  vmtax profile diff before.folded after.folded --out difference.svg")]
    Diff(DiffArgs),
}

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// What perf record wrote, or lines `frame;frame;frame count`
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The process to show [default: the one with most samples]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
    /// The unstripped build of the program, for its functions' names
    #[arg(long, value_name = "FILE")]
    pub symbols: Option<PathBuf>,
    /// The folder of the recording, new or empty [default: a new one in that of --runs]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The folder for recordings
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub runs: PathBuf,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// A profile's recording, or a file of folded stacks
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// The one to compare with it
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,
    /// The picture to write
    #[arg(long, value_name = "FILE", default_value = "difference.svg")]
    pub out: PathBuf,
}
