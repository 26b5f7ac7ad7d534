//! Arguments of the guest agent and the watchdog. Except `agent run` and `agent observe`, only the program itself gives them.

use clap::{Args, Subcommand};
use std::net::SocketAddrV4;
use std::path::PathBuf;
use vmtax_studies::duration;

#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    /// Run one workload here, now
    #[command(after_help = "Examples:
  vmtax agent run syscalls
  vmtax agent run cpu max-prime=2000 time=1 --json
  vmtax agent run disk --disk /dev/vda
  vmtax agent run fileio --help-options")]
    Run(AgentRunArgs),
    /// Trace this guest's block requests, to be joined with its host's trace
    #[command(
        after_help = "Copy the vmtax program into the guest and run this there as root, while `vmtax layers --vm` traces the VM on its host. \
Then the host joins both: `vmtax report --guest-trace FILE` shows each request from the guest's block layer through QEMU and \
back. Ctrl-C ends it early. It leaves nothing in the guest but the file. See docs/my-vm.md.

Examples:
  vmtax agent observe --duration 30s
  ssh root@web01 ./vmtax agent observe --duration 30s --output - > guest.trace"
    )]
    Observe(AgentObserveArgs),
    /// Answer a controller's requests on standard input
    #[command(hide = true)]
    Serve(AgentServeArgs),
    /// Send back what comes on the UDP socket that is standard input, and on connections to the TCP socket on descriptor 4
    #[command(hide = true)]
    Echo,
}

#[derive(Debug, Args)]
pub struct AgentRunArgs {
    /// The workload
    pub workload: String,
    /// Its options, as OPTION=VALUE
    #[arg(value_name = "OPTION=VALUE")]
    pub options: Vec<String>,
    #[command(flatten)]
    pub places: PlaceArgs,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Write each operation's own stamps to this file (disk, net-rr)
    #[arg(long, value_name = "FILE", hide = true)]
    pub series: Option<PathBuf>,
    /// Standard input is a socket to the agent: send the begin and end of batches on it
    #[arg(long, hide = true)]
    pub notified: bool,
    /// List the workload's options and their defaults
    #[arg(long)]
    pub help_options: bool,
}

#[derive(Debug, Args)]
pub struct AgentObserveArgs {
    /// How long to trace: 30s, 5m
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub duration: f64,
    /// File of the trace; - for standard output
    #[arg(short, long, value_name = "FILE", default_value = "guest.trace")]
    pub output: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub struct PlaceArgs {
    /// The directory for files
    #[arg(long, value_name = "DIR")]
    pub files: Option<PathBuf>,
    /// The disk to read, or a written file; `operation=write` overwrites it
    #[arg(long, value_name = "FILE")]
    pub disk: Option<PathBuf>,
    /// The shared tree; only its folder `scratch` is written to
    #[arg(long, value_name = "DIR")]
    pub share: Option<PathBuf>,
    /// The echo server of net-rr, UDP and TCP (RFC 862): ADDRESS:PORT
    #[arg(long, value_name = "ADDRESS")]
    pub echo: Option<SocketAddrV4>,
}

#[derive(Debug, Args)]
pub struct AgentServeArgs {
    #[command(flatten)]
    pub places: PlaceArgs,
    /// Use only this many CPUs
    #[arg(long)]
    pub cpus: Option<u32>,
    /// Use only these CPUs
    #[arg(long, value_delimiter = ',')]
    pub pinned: Vec<u32>,
    /// Join this control group
    #[arg(long)]
    pub cgroup: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct SupervisedArgs {
    /// What is done around the command, as JSON
    pub settings: String,
    /// The command; a watchdog may have none
    #[arg(last = true)]
    pub command: Vec<String>,
}
