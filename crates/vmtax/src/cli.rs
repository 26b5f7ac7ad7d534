//! The command line: one definition for parsing, help, completions and manual pages.

mod guests;
mod study;

pub use guests::{
    AgentCommand, AgentObserveArgs, AgentRunArgs, AgentServeArgs, BuildArgs, BuildWhat, GetArgs,
    GetWhat, PlaceArgs, SupervisedArgs,
};
pub use study::{
    DiffArgs, Exposition, ImportArgs, ImportTracesArgs, ProfileArgs, ProfileCommand, RecordArgs,
    StudyArgs, TopArgs, Verbosity, interval,
};

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use vmtax_model::{Machine, Metric};
use vmtax_studies::reproduce::ReproduceOptions;
use vmtax_studies::{
    CompareOptions, DiagnoseOptions, ExecOptions, ExitsOptions, LayersOptions, OverheadOptions,
    ScaleOptions, ShareOptions, TuneOptions, fraction,
};

/// Measure the overhead of QEMU/KVM guests against their host, find the layer that causes it, profile running VMs.
#[derive(Debug, Parser)]
#[command(name = "vmtax", version, arg_required_else_help = true, after_help = EXAMPLES, help_template = help_template())]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "Examples:
  vmtax doctor                   what this host can do, what is missing
  vmtax run --quick              overhead of a guest, in under 3 minutes
  vmtax exec -- ./benchmark      overhead of your own command
  vmtax top                      running VMs, live: steal, throttling, disks
  vmtax diagnose web01           why a running VM is slow, and what to change
  vmtax tune --vm web01 --apply  try what may make it faster, keep what does
  vmtax profile --vm web01       where a running QEMU spends its time
  vmtax report                   the newest report again

`vmtax COMMAND --help` has the options of a command, with examples.

Exit status: 0 done, 1 a check failed, 2 could not run (with the
reason), 130 interrupted.";

/// Commands by what a person wants.
pub const GROUPS: &[(&str, &[&str])] = &[
    ("Check the host", &["doctor"]),
    (
        "Running VMs",
        &[
            "vms", "top", "diagnose", "tune", "undo", "profile", "review",
        ],
    ),
    ("Measure overhead", &["run", "exec", "exits"]),
    ("Find the cause", &["layers", "import"]),
    (
        "Compare",
        &["compare", "share", "scale", "reproduce", "history", "fleet"],
    ),
    ("Reports", &["report", "list", "export"]),
    ("Guests", &["get", "build", "agent"]),
    ("Integration", &["mcp", "completions", "man"]),
];

/// Help of all commands, in groups, which clap has for options alone.
fn help_template() -> String {
    let commands = Command::augment_subcommands(clap::Command::new("vmtax"));
    let about = |name: &str| {
        commands
            .find_subcommand(name)?
            .get_about()
            .map(ToString::to_string)
    };
    let line = |name: &&str| format!("  {name:<12} {}\n", about(name).unwrap_or_default());
    let group = |(title, names): &(&str, &[&str])| {
        format!("{title}:\n{}\n", names.iter().map(line).collect::<String>())
    };
    let groups: String = GROUPS.iter().map(group).collect();
    format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}\n"
    )
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check KVM, QEMU, kernels, tracing, CPU settings; print fixes
    #[command(after_help = "Examples:
  vmtax doctor
  vmtax doctor --json | jq '.checks[] | select(.state != \"ok\")'")]
    Doctor(DoctorArgs),
    /// List running VMs, and which data is available for each
    #[command(
        after_help = "Lists the VMs of all users, whether started by libvirt, Proxmox, KubeVirt, from a command line or in a container: QEMU's, and \
those of any VMM that uses KVM (docs/vmms.md). Changes nothing in a VM, and \
does not taint libvirt's domains. --vm of other commands takes a PID, a libvirt domain or UUID, a Proxmox ID, a QMP \
socket, or a unique part of a name. See docs/my-vm.md.

Examples:
  vmtax vms
  vmtax vms --json | jq '.[] | {pid, name, managed}'"
    )]
    Vms(VmsArgs),
    /// Find known performance problems in VM configurations, fio output
    #[command(
        after_help = "Reads a QEMU command line (in quotes, or in a file), libvirt domain XML, a libvirt log, `qm config` or `qm showcmd`, \
one fio output, or two to compare, or output of `perf kvm stat report`; `-` is the standard input. Lists the known costs, the fix \
and source of each, and the measurement that would confirm it. Measures nothing; needs no VM and no privileges.

Examples:
  vmtax review web01.xml
  qm config 101 | vmtax review -
  vmtax review \"$(tr '\\0' ' ' < /proc/4711/cmdline)\"
  vmtax review host-fio.json guest-fio.json web01.xml --format md"
    )]
    Review(ReviewArgs),
    /// Watch running VMs live: steal, throttling, disks, VM exits
    Top(TopArgs),
    /// Find out why a running VM is slow, and what to change
    Diagnose(Box<StudyArgs<DiagnoseOptions>>),
    /// Try settings on a VM or for a workload, keep what makes it faster
    Tune(Box<StudyArgs<TuneOptions>>),
    /// Restore the settings that `vmtax tune` changed
    #[command(
        after_help = "Restores the settings of kept changes, and changes that a killed vmtax left. A setting that somebody else has changed since stays \
unchanged, and vmtax names it. The exit status is 1 if something could not be restored.

Examples:
  vmtax undo
  vmtax undo runs/20261125T090000Z-tune-4711"
    )]
    Undo(UndoArgs),
    /// Benchmark guests against native: CPU, memory, I/O, system calls
    Run(Box<StudyArgs<OverheadOptions>>),
    /// Trace disk or network latency by layer: guest, QEMU, host, device
    Layers(Box<StudyArgs<LayersOptions>>),
    /// Analyze traces from other tools: trace-cmd, perf, ftrace, QEMU
    Import(Box<ImportTracesArgs>),
    /// Benchmark file sharing with guests: 9p, virtiofs, NFS, images
    Share(Box<StudyArgs<ShareOptions>>),
    /// Benchmark your own command natively and in guests
    Exec(Box<StudyArgs<ExecOptions>>),
    /// Compare QEMUs, kernels, options, patches: A/B test with 95 % CI
    Compare(Box<StudyArgs<CompareOptions>>),
    /// Profile a running VM: threads, functions, waits, VM exits
    Profile(Box<ProfileArgs>),
    /// Benchmark VM exits: the cost of each kind on this host
    Exits(Box<StudyArgs<ExitsOptions>>),
    /// Measure how a cost scales with a size: O(1), O(log n), O(n) ...
    Scale(Box<StudyArgs<ScaleOptions>>),
    /// Reproduce a published benchmark result on this host
    Reproduce(Box<StudyArgs<ReproduceOptions>>),
    /// Print the report of a recording: text, Markdown, HTML or JSON
    #[command(
        after_help = "For a recording of `vmtax reproduce` the exit status is 1 if a published result was not reproduced.

Examples:
  vmtax report
  vmtax report runs/20261120T160100Z-quick --details
  vmtax report runs/20261120T160100Z-quick --format md
  vmtax report runs/20261120T160100Z-quick -o page.html
  vmtax report --guest-trace guest.trace
  vmtax report --json | jq '.findings'"
    )]
    Report(ReportArgs),
    /// Export recordings (Parquet) and traced requests (Perfetto)
    #[command(
        after_help = "docs/dataset.md describes the dataset, with queries for DuckDB; docs/export.md the other files. ui.perfetto.dev opens a Perfetto trace, without an upload.

Examples:
  vmtax export runs/*/ --dataset dataset
  vmtax export runs/*/ --dataset dataset --hash-host
  vmtax export RECORDING --perfetto trace.pftrace --only median,p99
  vmtax export RECORDING --parquet requests.parquet --segments segments.parquet"
    )]
    Export(ExportArgs),
    /// List recordings, newest first, each with its first sentence
    #[command(after_help = "Examples:
  vmtax list
  vmtax list --dir /srv/measurements --json")]
    List(ListArgs),
    /// Show a metric over all runs, and where it changed
    #[command(
        after_help = "Every run adds its metrics to a directory of Parquet files (.history in --dir), which keeps them after a recording is deleted; recordings of running VMs have no metrics. Without METRIC it lists the metrics. Only runs under the same conditions are compared. See docs/history.md.

Examples:
  vmtax history
  vmtax history cpu.events --machine tcg
  vmtax history disk.latency-p50 -o history.html
  vmtax history syscalls.getpid --json | jq '.series[].changes'"
    )]
    History(HistoryArgs),
    /// Find slow hosts in a dataset, and the property that explains them
    #[command(
        after_help = "Reads the dataset that `vmtax export --dataset` writes on any number of hosts. A host is compared with hosts of its class: \
the same CPU model, or the same values of the properties in --class. See docs/fleet.md.

Examples:
  vmtax fleet dataset
  vmtax fleet dataset -o fleet.html
  vmtax fleet dataset --class host_cpu_model_name,host_memory_mib
  vmtax fleet dataset --json | jq '.hosts[] | select(.verdict == \"slower\")'"
    )]
    Fleet(FleetArgs),
    /// Download guest kernels and QEMUs, without installing them
    #[command(after_help = "Examples:
  vmtax get                   list fetched and available versions
  vmtax get kernel            the distribution's kernel
  vmtax get kernel 6.1        a release, for --kernel 6.1
  vmtax get qemu 5.2          another QEMU, for --qemu 5.2")]
    Get(GetArgs),
    /// Build QEMU from source, with patches
    #[command(after_help = "Examples:
  vmtax build qemu 7.2 --patch 9p-list
  vmtax build qemu ~/src/qemu")]
    Build(BuildArgs),
    /// In a guest: run a workload, or trace requests (not qemu-ga)
    #[command(subcommand)]
    Agent(AgentCommand),
    /// Print shell completions
    #[command(after_help = "Examples:
  vmtax completions bash > ~/.local/share/bash-completion/completions/vmtax")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages
    #[command(after_help = "Examples:
  vmtax man /usr/local/share/man/man1")]
    Man {
        /// Write the pages into this directory
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Serve tools to AI agents: Model Context Protocol over stdio
    #[command(
        after_help = "An AI client starts this as its MCP server. The tools are vms, list, report and diagnose at level 0 (host counters only): they change nothing in a VM \
and taint no libvirt domain. --allow observe adds diagnose at every level, profile and layers of a running VM, which taint libvirt domains \
as the commands do; diagnose above level 0 sets QEMU's latency histograms for a time. No tool runs a given command, boots a guest or changes a setting. \
Each answer is the first sentence of the report and the JSON of the command. See docs/mcp.md.

Examples:
  vmtax mcp
  vmtax mcp --allow observe --dir /srv/measurements"
    )]
    Mcp(McpArgs),
    /// Run a command that ends when this program does
    #[command(hide = true)]
    Watchdog(SupervisedArgs),
    /// Run a server that sees nothing of the host but its programs
    #[command(hide = true)]
    Jail(SupervisedArgs),
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Check this QEMU too: a binary, or a version or Debian suite fetched by `vmtax get qemu`
    #[arg(long, value_name = "QEMU")]
    pub qemu: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct VmsArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ReviewArgs {
    /// Files, or a command line in quotes; - for the standard input
    #[arg(value_name = "TEXT", required = true)]
    pub texts: Vec<String>,
    /// Format: text, md for an issue or a comment, html, json
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "md", "html", "json"], hide_possible_values = true)]
    pub format: Option<String>,
}

#[derive(Debug, Args)]
pub struct McpArgs {
    /// More tools: observe (diagnose in full, profile, layers of a running VM)
    #[arg(long, value_name = "WHAT", value_enum, hide_possible_values = true)]
    pub allow: Option<Allowed>,
    /// Directory of recordings; no tool reads another
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
}

/// Tools that `vmtax mcp` has only where they are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Allowed {
    /// Tools that observe a running VM in full.
    Observe,
}

#[derive(Debug, Args)]
pub struct UndoArgs {
    /// Recording of a run of `vmtax tune` [default: all]
    #[arg(value_name = "RECORDING")]
    pub recording: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// Metric, as `vmtax history` lists it
    #[arg(value_name = "METRIC")]
    pub metric: Option<Metric>,
    /// One machine: native, kvm, tcg, micro-kvm, micro-tcg [default: all]
    #[arg(long, value_name = "MACHINE")]
    pub machine: Option<Machine>,
    /// Directory of recordings, with their history
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write an HTML page with charts into this file
    #[arg(short, long, value_name = "FILE", requires = "metric")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct FleetArgs {
    /// Directory of the dataset
    #[arg(value_name = "DATASET")]
    pub dataset: PathBuf,
    /// Host properties (facts) with the same value in all hosts of a class, comma separated
    #[arg(
        long,
        value_name = "FACTS",
        value_delimiter = ',',
        default_value = "host_cpu_model_name"
    )]
    pub class: Vec<String>,
    /// Smallest difference that matters: 2%, or 0.02
    #[arg(long, value_name = "FRACTION", default_value = "2%", value_parser = fraction)]
    pub min_effect: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print all rows of every table
    #[arg(long, conflicts_with = "json")]
    pub details: bool,
    /// Write an HTML page with charts into this file
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Directory of the recording [default: the newest in --dir]
    #[arg(value_name = "RECORDING")]
    pub recording: Option<PathBuf>,
    /// Directory of recordings
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
    /// Format: text, md for an issue or a comment, html for a page, json for scripts
    /// [default: text; with --output: html]
    #[arg(long, value_name = "FORMAT", hide_possible_values = true, value_parser = PossibleValuesParser::from(formats()))]
    pub format: Option<String>,
    /// Print JSON, as --format json
    #[arg(long, conflicts_with_all = ["details", "format"])]
    pub json: bool,
    /// Print every table and the figures of each run; Markdown without it has at most 40 lines
    #[arg(long)]
    pub details: bool,
    /// Write the report into this file instead of printing it
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Guest trace to add to a recording of `vmtax layers --vm`: the file that `vmtax agent observe` wrote in the guest at
    /// the same time
    #[arg(long, value_name = "FILE")]
    pub guest_trace: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Directory of the recording; with --dataset any number of them
    #[arg(value_name = "RECORDING", required = true)]
    pub recordings: Vec<PathBuf>,
    /// Add the recordings to the dataset in DIR: figures, facts and comparisons of many hosts as Parquet tables
    #[arg(long, value_name = "DIR", conflicts_with_all = ["perfetto", "parquet", "segments"])]
    pub dataset: Option<PathBuf>,
    /// Name hosts in the dataset by a hash (host_id) instead of their names
    #[arg(long, requires = "dataset")]
    pub hash_host: bool,
    /// Add the requests of traced trials to the dataset, and their segments: large tables
    #[arg(long, requires = "dataset")]
    pub requests: bool,
    /// Write a Perfetto trace: a track for each thread, arrows along each request
    #[arg(long, value_name = "FILE")]
    pub perfetto: Option<PathBuf>,
    /// Requests of each trial in the Perfetto trace, comma separated: median, p90, p99, max [default: all]
    #[arg(long, value_delimiter = ',', value_name = "LIST", requires = "perfetto", value_parser = ["median", "p90", "p99", "max"])]
    pub only: Vec<String>,
    /// Write a Parquet table with a row for each request
    #[arg(long, value_name = "FILE")]
    pub parquet: Option<PathBuf>,
    /// Write a Parquet table with a row for each segment of each request
    #[arg(long, value_name = "FILE")]
    pub segments: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    /// Directory of recordings
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The formats of a report, by their names in `vmtax_report`, and those that depend on the study.
fn formats() -> Vec<PossibleValue> {
    let named = |name| {
        if name == "markdown" {
            PossibleValue::new("md").alias(name)
        } else {
            PossibleValue::new(name)
        }
    };
    ["text", "json"]
        .into_iter()
        .chain(vmtax_report::FORMATS.iter().map(|(name, _)| *name))
        .map(named)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound_and_everything_has_help() {
        fn check(command: &clap::Command) {
            for argument in command.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{}: {}",
                    command.get_name(),
                    argument.get_id()
                );
            }
            let shown =
                |c: &clap::Command| !c.is_hide_set() && c.get_subcommands().next().is_none();
            if shown(command) {
                let help = command
                    .get_after_help()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                assert!(
                    help.contains("Examples:"),
                    "{} has no examples",
                    command.get_name()
                );
            }
            command.get_subcommands().for_each(check);
        }
        Cli::command().debug_assert();
        let grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| names.iter().copied())
            .collect();
        for command in Cli::command()
            .get_subcommands()
            .filter(|c| !c.is_hide_set())
        {
            assert!(
                grouped.contains(&command.get_name()),
                "{} is in no group",
                command.get_name()
            );
        }
        assert!(
            grouped
                .iter()
                .all(|name| Cli::command().find_subcommand(name).is_some())
        );
        check(&Cli::command());
    }
}
