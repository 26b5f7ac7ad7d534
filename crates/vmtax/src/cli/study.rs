//! Options of every command that makes a recording: of all studies, of `vmtax profile` with its two commands on profiles that
//! are there, of `vmtax import`; and of `vmtax top`.

use clap::builder::RangedU64ValueParser;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;
use vmtax_studies::ProfileOptions;

/// Amount of output on standard error while measuring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbosity {
    /// Warnings and errors.
    Quiet,
    /// And progress on a terminal, notes.
    Normal,
    /// And a line for each trial.
    Verbose,
}

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
text of tracefs (trace, trace_pipe), of `trace-cmd report` and `perf script`, QEMU's trace (simple and log backend). All files \
must belong to one VM: traces of its host, its guest kernel and its QEMU. The report says which data the files lack, and how clocks were aligned. \
For stacks in perf.data use `vmtax profile import`. See docs/import.md.

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
    /// Add only runs of this host [default: of all hosts]
    #[arg(long, value_name = "NAME", requires = "dataset")]
    pub host: Option<String>,
    /// PID of QEMU, or TID of one of its vCPUs, if the trace has several VMs [default: the VM with most VM exits]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
    /// Trace of the guest kernel [default: the file without kvm events, or that trace-cmd synchronized with its host]
    #[arg(long, value_name = "FILE")]
    pub guest_trace: Option<PathBuf>,
    /// TSC frequency in MHz, for clock x86-tsc if the file lacks it
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

#[derive(Debug, Args)]
#[command(
    after_help = "Levels: 0 reads counters from the host's kernel, from libvirt, and over QMP sockets that no other client is connected to, and changes nothing. \
1 also asks QEMU's monitor (through libvirt) and QEMU's guest agent, which taints a libvirt domain (custom-monitor, custom-ga-command), \
and sets QEMU's latency histograms, which are removed at the end. 2 also traces VM exits (KVM, root). The header shows what the level costs. See docs/top.md.

Examples:
  vmtax top
  vmtax top web01 --level 1
  vmtax top -b -d 5 -n 3
  vmtax top --json --samples 1 | jq '.vms[] | {name, findings}'
  vmtax top web01 --level 2 --duration 5 --batch
  vmtax top --openmetrics 9177
  vmtax top --explain %RDY"
)]
pub struct TopArgs {
    /// VMs: a PID, a libvirt domain or UUID, a Proxmox ID, a QMP socket, a unique part of a name [default: all]
    #[arg(value_name = "VM")]
    pub vms: Vec<String>,
    /// Print a table for each interval instead of the live screen
    #[arg(short, long)]
    pub batch: bool,
    /// Print a line of JSON for each interval
    #[arg(long, conflicts_with_all = ["batch", "csv"])]
    pub json: bool,
    /// Print a line of CSV for each VM and interval
    #[arg(long, conflicts_with = "batch")]
    pub csv: bool,
    /// Write OpenMetrics text for Prometheus into a file, or serve it on 127.0.0.1:PORT
    #[arg(long, value_name = "FILE|PORT", value_parser = exposition)]
    pub openmetrics: Option<Exposition>,
    /// Time between updates: 500ms, 2s
    #[arg(short = 'd', long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    pub interval: Duration,
    /// Number of updates [default: until Ctrl-C]
    #[arg(short = 'n', long, value_name = "N", value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    pub samples: Option<u64>,
    /// Observe one interval of this length, then exit: 5s, 1m
    #[arg(long, value_name = "TIME", value_parser = interval, conflicts_with_all = ["interval", "samples"])]
    pub duration: Option<Duration>,
    /// What is observed: 0 counters; 1 also latency histograms; 2 also traces of VM exits
    #[arg(long, value_name = "LEVEL", default_value_t = 0, value_parser = RangedU64ValueParser::<u8>::new().range(0..=2))]
    pub level: u8,
    /// Explain a column
    #[arg(long, value_name = "COLUMN", exclusive = true)]
    pub explain: Option<String>,
}

/// Where OpenMetrics text goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exposition {
    /// A file that is replaced after each interval.
    File(PathBuf),
    /// A port of the loopback address.
    Port(u16),
}

fn exposition(text: &str) -> Result<Exposition, String> {
    match text.parse::<u64>() {
        Ok(port) => match u16::try_from(port) {
            Ok(port) if port > 0 => Ok(Exposition::Port(port)),
            _ => Err("a port is 1 to 65535; for a file of that name give ./NAME".to_owned()),
        },
        Err(_) => Ok(Exposition::File(text.into())),
    }
}

/// A time from 0.1 s to a day: "500ms", "2s", "5m", or a bare number of seconds.
pub fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse()
        .map_or_else(|_| vmtax_studies::duration(text), Ok)?;
    // The kernel counts CPU time in steps of up to 10 ms: shorter intervals would show these.
    let is_fit = (0.1..=86_400.0).contains(&seconds);
    is_fit
        .then(|| Duration::from_secs_f64(seconds))
        .ok_or_else(|| "give 0.1 to 86400 seconds".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_port_and_anything_else_a_file() {
        assert_eq!(exposition("9177"), Ok(Exposition::Port(9177)));
        assert_eq!(exposition("./9177"), Ok(Exposition::File("./9177".into())));
        assert!(exposition("0").is_err() && exposition("70000").is_err());
    }

    #[test]
    fn intervals_are_between_a_tenth_of_a_second_and_a_day() {
        assert_eq!(
            [interval("0.5"), interval("500ms"), interval("2m")],
            [500, 500, 120_000].map(|ms| Ok(Duration::from_millis(ms)))
        );
        for wrong in ["0", "-1", "NaN", "inf", "1e9", "x", ""] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
