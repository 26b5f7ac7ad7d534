//! Arguments of `vmtax get` and `vmtax build`, for what guests are made of; of the guest agent and the watchdog. Of the latter
//! only `agent run` and `agent observe` are not given by the program itself.

use clap::{Args, Subcommand};
use std::net::SocketAddrV4;
use std::path::PathBuf;
use vmtax_studies::duration;

#[derive(Debug, Args)]
pub struct GetArgs {
    #[command(subcommand)]
    pub what: Option<GetWhat>,
}

#[derive(Debug, Subcommand)]
pub enum GetWhat {
    /// A guest kernel with its modules, unpacked into the cache
    #[command(
        after_help = "Guests boot the host's own kernel where it is installed, else the default of the cache: the distribution's
current one. A VERSION or SUITE is for --kernel VERSION or --kernel SUITE; it does not become the default of other runs.

Examples:
  vmtax get kernel
  vmtax get kernel 6.1
  vmtax get kernel sid"
    )]
    Kernel {
        /// A release or its beginning, or a suite of the distribution; the distribution's current one when absent
        #[arg(value_name = "VERSION|SUITE")]
        wanted: Option<String>,
    },
    /// Another QEMU with its libraries and firmware, unpacked into the cache, for `--qemu VERSION` or `--qemu SUITE`
    #[command(
        after_help = "Several can exist side by side, and the system's own stays as it is: docs/qemus.md.
`vmtax get` lists the suites that are known; any other of the distribution's archive may be named too.

Examples:
  vmtax get qemu              those on this host, and those available
  vmtax get qemu 5.2
  vmtax get qemu bookworm-backports
  vmtax run --qemu 5.2 --quick"
    )]
    Qemu {
        /// A version or its beginning, or a suite of the distribution
        #[arg(value_name = "VERSION|SUITE")]
        wanted: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct BuildArgs {
    #[command(subcommand)]
    pub what: BuildWhat,
}

#[derive(Debug, Subcommand)]
pub enum BuildWhat {
    /// A lean QEMU for x86-64, from the distribution's source or a tree of your own, with patches
    #[command(
        after_help = "It is built once, in a few minutes, into the cache; the system's own QEMU is not changed. \
Every --qemu takes its name, which `vmtax get qemu` lists: docs/qemus.md.
Patches that come with vmtax:
  9p-list   the 9p server searches its fids in a list, as before 7.2
  cpu-loop  TCG's loop as in 3.0, without three changes that were published as faster

Examples:
  vmtax build qemu 7.2
  vmtax build qemu 7.2 --patch 9p-list
  vmtax run --qemu built-9p-list
  vmtax build qemu ~/src/qemu --patch ./faster.patch --configure '--enable-lto --extra-cflags=-O3'"
    )]
    Qemu {
        /// A directory with QEMU's source, or a version or suite of the distribution
        #[arg(value_name = "SRC|VERSION")]
        source: String,
        /// Apply this patch (-p1): a file, or one that comes with vmtax; may be repeated
        #[arg(long, value_name = "FILE")]
        patch: Vec<String>,
        /// More options for QEMU's configure, separated by blanks; may be repeated
        #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
        configure: Vec<String>,
    },
}

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
    /// The disk to read, or a written file; to write to it takes --destroy
    #[arg(long, value_name = "FILE")]
    pub disk: Option<PathBuf>,
    /// The disk that `operation=write` or a fio job may overwrite: the one of --disk, named once more. It may not be mounted or in use
    #[arg(long, value_name = "FILE")]
    pub destroy: Option<PathBuf>,
    /// The shared tree; only its directory `scratch` is written to
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
    /// Work around the command, as JSON
    pub settings: String,
    /// The command; a watchdog may have none
    #[arg(last = true)]
    pub command: Vec<String>,
}
