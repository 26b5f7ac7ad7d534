//! `vmtax exec`.

use super::CommonArgs;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use vmtax_model::{Forward, Machine, MetricPattern, Net};

#[derive(Debug, Args)]
pub struct ExecArgs {
    /// The program and its arguments
    #[arg(last = true, required_unless_present_any = ["shell", "terminal"], value_name = "CMD")]
    pub command: Vec<OsString>,
    /// A line for a shell, instead of a program: 'a && b'
    #[arg(long, value_name = "LINE", conflicts_with = "command")]
    pub shell: Option<String>,
    /// Give the command this terminal, on one guest machine, once; without a command it is your shell
    #[arg(short, long, conflicts_with = "json")]
    pub terminal: bool,
    /// A shell's line that is run once on each machine that has come up, not measured; what it leaves running stays
    #[arg(long, value_name = "LINE")]
    pub setup: Option<String>,
    /// The same before each run that is measured
    #[arg(long, value_name = "LINE")]
    pub prepare: Option<String>,
    /// The same behind it
    #[arg(long, value_name = "LINE")]
    pub cleanup: Option<String>,
    /// Where to run: native, kvm, tcg (comma separated) [default: all that run kernels at speed or translate them]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub machines: Option<Vec<Machine>>,
    /// How guests are given the host's files: 9p or virtiofs with options, as `vmtax share` has them
    /// [default: virtiofs,cache=always for root where virtiofsd is there, else 9p,msize=512000,cache=loose,multidevs=remap]
    #[arg(long, value_name = "WAY")]
    pub root: Option<String>,
    /// A folder that guests share with the host, to be written to: what they write there stays
    #[arg(long, value_name = "DIR")]
    pub write: Vec<PathBuf>,
    /// Keep what guests write on a disk of this size, which goes with them, instead of in half of their memory
    #[arg(long, value_name = "MIB")]
    pub scratch: Option<u32>,
    /// Give guests a network: QEMU's own, by which they reach what this host reaches
    #[arg(long, value_name = "KIND")]
    pub net: Option<Net>,
    /// Have a TCP port of this host's loopback address lead to a guest's
    #[arg(long, value_name = "HOST:GUEST", requires = "net")]
    pub forward: Vec<Forward>,
    /// A figure in what the command prints, beside those of known tools: REGEX's first group is the number; NAME:higher
    /// or NAME:lower says which way is better
    #[arg(long = "metric", value_name = "NAME=REGEX")]
    pub metrics: Vec<MetricPattern>,
    /// Run the command once more in each guest, and follow its requests to the scratch disk through guest, QEMU and host
    /// [default of --scratch then: 4096]
    #[arg(long, conflicts_with = "terminal")]
    pub layers: bool,
    /// Run the command once more in each guest, and write a profile of its QEMU into that run's folder
    #[arg(long, conflicts_with = "terminal")]
    pub profile: bool,
    #[command(flatten)]
    pub common: CommonArgs,
}
