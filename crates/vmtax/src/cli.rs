//! The command line: one definition for parsing, help, completions and manual pages.

mod agent;
mod common;
mod compare;
mod exec;
mod profile;
mod qemus;

pub use agent::{AgentCommand, AgentRunArgs, AgentServeArgs, JailArgs, PlaceArgs, WatchdogArgs};
pub use common::{CommonArgs, MachineArgs, RecordArgs};
pub use compare::CompareArgs;
pub use exec::ExecArgs;
pub use profile::{DiffArgs, HZ, ImportArgs, ProfileArgs, ProfileCommand, STACK, SyscallsBy, WALL_HZ};
pub use qemus::{BuildArgs, BuildWhat, GetArgs, GetWhat};

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use vmtax_model::{Machine, Metric, Needs, WorkloadName};

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
    /// Say what this machine can do, what is missing, and how to fix it
    #[command(after_help = "Examples:
  vmtax doctor
  vmtax doctor --json | jq '.checks[] | select(.state != \"ok\")'")]
    Doctor(DoctorArgs),
    /// Measure workloads natively and in guests, and say what virtualisation costs
    #[command(after_help = run_help())]
    Run(Box<RunArgs>),
    /// Follow each block request through guest, KVM, QEMU and host, and say where the time goes
    #[command(
        after_help = "WHAT sets the work: block-size=4K mode=seq|random operation=read|write depth=1..32 count=1000, as
`vmtax agent run seqread --help-options` lists them; or it is a plan's file (.toml).
KEY of --vary and --set: aio, cache, iothread, throttling.LIMIT, drive.KEY, or any property of QEMU's
virtio-blk-pci (ioeventfd, num-queues, queue-size, ...).
With root every layer is seen; without, those of the guest, and what is missing is said.

Examples:
  vmtax layers
  vmtax layers --guest micro
  vmtax layers mode=random depth=32 --vary iothread=off,on
  vmtax layers --vary aio=threads,native,io_uring --set cache=none"
    )]
    Layers(Box<LayersArgs>),
    /// Share a tree of files with a guest in each way there is, and say which to take
    #[command(
        after_help = "WAY is 9p, virtiofs, nfs3, nfs4, disk, erofs or squashfs, with options: 9p,msize=524288,cache=loose or
virtiofs,cache=always or 9p,qemu=5.2. What took effect is read back, not believed. docs/shares.md says more.

Examples:
  vmtax share --quick
  vmtax share 9p 9p,cache=loose virtiofs --details
  vmtax share --tree ~/src/project 9p,cache=loose virtiofs erofs"
    )]
    Share(Box<ShareArgs>),
    /// Run a command of yours natively and in guests on the host's own files, and say what virtualisation costs it
    #[command(
        after_help = "In a guest the command has the host's files, the same working directory, user, environment, limits and input;
what it writes there goes into a layer that is thrown away. Natively it runs as it does without vmtax.
What it prints comes through as it comes; the report goes to standard error. The exit status is the command's,
124 where its time was over, 125 where vmtax failed, 126 or 127 where it cannot be run. docs/exec.md says more.

Examples:
  vmtax exec --shell 'make clean && make -j2'
  vmtax exec --metric 'latency:lower=took (\\S+) ms' -- ./benchmark
  vmtax exec -t
  vmtax exec --rounds 1 --machines tcg -- tar cf /dev/null /usr/share/doc
  vmtax exec --cpus 2 --memory 2048 -- sysbench cpu run
  vmtax exec --layers --scratch 8192 -- ./import.sh big.csv
  vmtax exec --json -- ./test.sh > report.json"
    )]
    Exec(Box<ExecArgs>),
    /// Hold guests against each other: two QEMUs, options, kernels or patches, and say what is proven
    #[command(
        after_help = "KEY of a side: qemu, kernel (with modules), append (words for the kernel), options (words for QEMU), machine,
cpus, memory-mib, share and share.OPTION, host.halt-poll-ns, host.thp, host.governor (set, read back, put back),
name, or any setting of the disk as `vmtax layers` has them. A comma in a value is written twice.
It stops when all is decided, or the budget is spent; looking in between is part of what the intervals promise.
With --check it ends with 1 where a metric is worse than in the baseline's recording: docs/compare.md.

Examples:
  vmtax compare --qemu 7.2 --qemu 10.0 -- cpu syscalls seqread
  vmtax compare aio=threads aio=native aio=io_uring --set cache=none --detect 5% -- seqread
  vmtax compare usual kernel-args=mitigations=off -- syscalls
  vmtax compare runs/20261120T160100Z-quick runs/20261121T160100Z-quick
  vmtax compare --check runs/20261120T160100Z-quick --junit check.xml"
    )]
    Compare(Box<CompareArgs>),
    /// Look into a running QEMU: which threads and functions its time goes to, which VM exits its guest makes
    #[command(
        after_help = "Any process will do, also one in a container: its files are found through its own root, and it needs no frame
pointers and no restart. Without root it has to be yours, and the kernel's part of the stacks may be closed to you.
Where KVM runs its guest and this is root, VM exits are counted by reason, device and register, and what they cost that
they need not is named with its cure. The recording holds an SVG that opens in a browser. docs/profile.md says more.
Ctrl-C ends the looking at a process: what was seen until then is shown, and the exit status is 0. A workload it interrupts
(130).

Examples:
  vmtax profile --pid $(pgrep -n qemu-system)
  vmtax profile --pid 1234 --seconds 30 --hz 999 --symbols ~/src/qemu/build/qemu-system-x86_64
  vmtax profile --qemu 5.2 -- open-fids count=20000
  vmtax profile diff runs/20261120T160100Z-profile runs/20261121T160100Z-profile
  vmtax profile import perf.data"
    )]
    Profile(Box<ProfileArgs>),
    /// Measure what a VM exit of each kind costs, with a guest that does nothing else
    #[command(
        after_help = "Port and memory accesses in user space and in the kernel, cpuid, MSRs, halt and wake-up, end of
interrupt, injection: each stamped, as distributions. It takes seconds and no guest kernel.

Examples:
  vmtax exits
  vmtax exits --guest micro-kvm --count 100000 --json"
    )]
    Exits(Box<ExitsArgs>),
    /// Measure along a ladder of sizes whether a cost grows, by which law, and what one more item costs
    #[command(
        after_help = "WHAT: first what grows (WORKLOAD.OPTION; guest.cpus, guest.memory-mib, guest.disks or guest.memory-regions), then
workloads and their options as WORKLOAD.OPTION=VALUE; or a plan's file (.toml) with a [ladder]. `vmtax agent run WORKLOAD --help-options` lists options.
Every size has a fresh machine in every round, in an order drawn by lot: docs/scale.md.

Examples:
  vmtax scale seqread.depth --ladder 1..32
  vmtax scale guest.cpus threads threads.threads=16 --ladder 1,2,3,4
  vmtax scale guest.disks seqread --ladder 1..256
  vmtax scale seqread.block-size --ladder 4K..256K --vary aio=threads,native --set cache=none
  vmtax scale threads.threads --ladder 1..512 --rungs 6 --machines native"
    )]
    Scale(Box<ScaleArgs>),
    /// Put a published finding to the test here: holds, does not hold here, not testable here and why
    #[command(
        after_help = "`list` names the cases, `show NAME` prints claims, published figures and plan. Exit status 1 where a claim
does not hold: docs/cases.md.

Examples:
  vmtax case list
  vmtax case show 9p-fids
  vmtax case 9p-fids --quick
  vmtax case sysbench-five --real"
    )]
    Case(Box<CaseArgs>),
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
  vmtax export runs/20261120T160100Z-layers --parquet requests.parquet --pieces pieces.parquet"
    )]
    Export(ExportArgs),
    /// List the recordings there are
    #[command(after_help = "Examples:
  vmtax list
  vmtax list --runs /srv/measurements --json")]
    List(ListArgs),
    /// Show what was measured before: a metric over all runs, and where it changed
    #[command(
        after_help = "Every run leaves its figures in a ledger beside the recordings, where they stay when a recording is deleted;
without METRIC it is listed. Only what was measured under the same conditions is held against each other.
docs/history.md says how changes are found, and what that promises.

Examples:
  vmtax history
  vmtax history cpu.events --machine tcg
  vmtax history seqread.latency-p50 --html history.html
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
    Watchdog(WatchdogArgs),
    /// Run a server that sees nothing of the host but its programs
    #[command(hide = true)]
    Jail(JailArgs),
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print everything as JSON
    #[arg(long)]
    pub json: bool,
    /// Look at this QEMU too: a file, or the version or suite of one that `vmtax get qemu` fetched
    #[arg(long, value_name = "QEMU")]
    pub qemu: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Workloads, their options as WORKLOAD.OPTION=VALUE, or a plan's file (.toml)
    #[arg(value_name = "WHAT")]
    pub what: Vec<String>,
    /// Small totals: under 3 minutes on 2 cores
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// The published sysbench report's own totals and times: long, with 2 GiB of files in each round
    #[arg(long)]
    pub full: bool,
    /// Seconds that each trial bounded by time lasts; system calls share them
    #[arg(long, value_name = "SECONDS")]
    pub time: Option<f64>,
    /// Where to run: native, kvm, tcg (comma separated) [default: all that run kernels at speed or translate them]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub machines: Option<Vec<Machine>>,
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Debug, Args)]
pub struct LayersArgs {
    /// Options of the work as OPTION=VALUE, or a plan's file (.toml)
    #[arg(value_name = "WHAT")]
    pub what: Vec<String>,
    /// The kind of device that is followed
    #[arg(long, value_name = "KIND", default_value = "blk", value_parser = ["blk"])]
    pub device: String,
    /// Guests: kvm, tcg, micro (comma separated); micro is a ROM without an operating system, the floor under the others
    /// [default: micro, and KVM where it runs kernels, else TCG]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = ["kvm", "tcg", "micro", "micro-kvm", "micro-tcg"])]
    pub guest: Option<Vec<String>>,
    /// Compare ways to attach the disk, a column each: KEY=VALUE,VALUE,...; given twice, every combination
    #[arg(long, value_name = "KEY=LIST")]
    pub vary: Vec<String>,
    /// Attach the disk in this way in every column
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Print every table
    #[arg(long, conflicts_with = "json")]
    pub details: bool,
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Debug, Args)]
pub struct ScaleArgs {
    /// What grows, then what runs and its options; or a plan's file (.toml)
    #[arg(value_name = "WHAT", required = true)]
    pub what: Vec<String>,
    /// The sizes: FROM..TO, each about the same factor above the one before, or A,B,C; K, M and G may end them
    #[arg(long, value_name = "FROM..TO")]
    pub ladder: Option<String>,
    /// How many sizes FROM..TO has [default: doublings where they fit, else 8]
    #[arg(long, value_name = "N", requires = "ladder")]
    pub rungs: Option<usize>,
    /// Where to run: native, kvm, tcg (comma separated) [default: all that run kernels at speed or translate them]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub machines: Option<Vec<Machine>>,
    /// Compare ways to build the guest, a curve each: KEY=VALUE,VALUE,... as `vmtax layers` has them
    #[arg(long, value_name = "KEY=LIST")]
    pub vary: Vec<String>,
    /// Build the guest in this way for every curve
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Debug, Args)]
pub struct ShareArgs {
    /// Ways to share, as METHOD[,OPTION=VALUE...]; the first is what the others are held against
    /// [default: QEMU's default 9p, then others]
    #[arg(value_name = "WAY")]
    pub methods: Vec<String>,
    /// Fewer ways and a smaller tree, in four minutes
    #[arg(long)]
    pub quick: bool,
    /// Share this folder, which is only ever read, instead of a tree made for it
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["files", "bytes"])]
    pub tree: Option<PathBuf>,
    /// Small files of the tree that is made
    #[arg(long, value_name = "N")]
    pub files: Option<u64>,
    /// Bytes of the tree that is made (64M, 5G): what the small files leave is one large file
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub bytes: Option<u64>,
    /// Print every figure of every way
    #[arg(long, conflicts_with = "json")]
    pub details: bool,
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// The metric, as the list names it
    #[arg(value_name = "METRIC")]
    pub metric: Option<Metric>,
    /// On this machine alone: native, kvm, tcg, micro-kvm, micro-tcg
    #[arg(long, value_name = "M")]
    pub machine: Option<Machine>,
    /// The folder of the recordings and their ledger
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub runs: PathBuf,
    /// Print everything as JSON
    #[arg(long)]
    pub json: bool,
    /// Write the pictures into this file too
    #[arg(long, value_name = "FILE", requires = "metric")]
    pub html: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct CaseArgs {
    /// list, show NAME, run NAME, or NAME
    #[arg(value_name = "WHAT", required = true, num_args = 1..=2)]
    pub what: Vec<String>,
    /// A smaller form of it, where it has one: the claims that need its full size are not tested
    #[arg(long)]
    pub quick: bool,
    /// Put it to the test by the program that was measured then, which has to be installed: of sysbench-five
    #[arg(long)]
    pub real: bool,
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Debug, Args)]
pub struct ExitsArgs {
    /// Where: micro-kvm, micro-tcg (comma separated) [default: both, without KVM micro-tcg]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = ["micro-kvm", "micro-tcg"])]
    pub guest: Option<Vec<String>>,
    /// How many of each kind in a round
    #[arg(long, value_name = "N", default_value_t = 5000)]
    pub count: u32,
    #[command(flatten)]
    pub common: CommonArgs,
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
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
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
    /// A Parquet table with a row for each piece of each request's way
    #[arg(long, value_name = "FILE")]
    pub pieces: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    /// The folder of recordings
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub runs: PathBuf,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// The names of the formats that a report can be printed in.
fn formats() -> PossibleValuesParser {
    vmtax_report::FORMATS.iter().map(|(name, _)| *name).into()
}

/// Below the options of `vmtax run`: the workloads, as they are registered.
fn run_help() -> String {
    let list = |fits: fn(Needs) -> bool| -> String {
        let named = WorkloadName::ALL.iter().filter(|name| fits(name.needs()));
        named.map(|name| format!("  {name:<20}{}\n", vmtax_workload::descriptor(*name).about)).collect()
    };
    format!(
        "Workloads, all of which run when none is named:
{}Workloads that run when named, on a shared tree or on the micro-guest:
{}`vmtax agent run WORKLOAD --help-options` lists a workload's options; `--dry-run` shows what this command sets.
Without a guest kernel here, the distribution's is fetched first (`vmtax get kernel`), not installed.

Examples:
  vmtax run --quick
  vmtax run syscalls seqread --rounds 12
  vmtax run cpu cpu.max-prime=20000 --machines native,tcg --time 5
  vmtax run --quick --dry-run > plan.toml && vmtax run plan.toml",
        list(|needs| matches!(needs, Needs::System | Needs::Disk)),
        list(|needs| matches!(needs, Needs::Share | Needs::MicroGuest)),
    )
}

/// Bytes, with an optional suffix.
fn size(text: &str) -> Result<u64, String> {
    vmtax_model::parse_size(text).ok_or_else(|| "write bytes, or 64M, 5G".to_owned())
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
