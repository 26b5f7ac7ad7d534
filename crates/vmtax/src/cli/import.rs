//! `vmtax import`'s arguments.

use super::RecordArgs;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    after_help = "Each file is recognized by what it begins with: trace.dat of trace-cmd 2 and 3, perf.data with tracepoints, the \
text of tracefs (trace, trace_pipe), of `trace-cmd report` and `perf script`, QEMU's trace (simple and log backend). They are \
of one VM: host, guest and QEMU. The report names what the files do not hold, and how their clocks were joined. Stacks of \
perf.data: `vmtax profile import`. See docs/import.md.

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
    /// Of the dataset only the runs of the host with this name [default: all]
    #[arg(long, value_name = "NAME", requires = "dataset")]
    pub host: Option<String>,
    /// Process of QEMU, or a vCPU thread, where the trace has several VMs [default: the one with most VM exits]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
    /// The file of the guest's kernel [default: the one without events of KVM, or that trace-cmd synchronized with its host]
    #[arg(long, value_name = "FILE")]
    pub guest_trace: Option<PathBuf>,
    /// Rate of the time stamp counter, for a clock that counts its ticks and a file that does not say the rate
    #[arg(long, value_name = "MHZ", value_parser = mhz)]
    pub tsc_mhz: Option<f64>,
    #[command(flatten)]
    pub record: RecordArgs,
}

fn mhz(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|mhz| (1.0..=1e6).contains(mhz));
    number.ok_or_else(|| "give MHz from 1 to 1000000, as 2592.0".to_owned())
}
