//! Arguments that several commands take.

use clap::Args;
use std::path::PathBuf;

/// What every measuring command takes.
#[derive(Debug, Args)]
pub struct CommonArgs {
    /// How often each machine has its turn; an interval takes 6 [default: 6; `run` without --quick or --full: 8]
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// The QEMU to use: a file, or the version or suite of one that `vmtax get qemu` fetched
    #[arg(long, value_name = "QEMU")]
    pub qemu: Option<PathBuf>,
    /// The guest's kernel: a bzImage, or an ELF vmlinux with a PVH note
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    /// The kernel's modules (lib/modules or a folder in it)
    #[arg(long, value_name = "DIR", requires = "kernel")]
    pub modules: Option<PathBuf>,
    #[command(flatten)]
    pub machine_args: MachineArgs,
    #[command(flatten)]
    pub record: RecordArgs,
}

/// What every command takes that brings machines up.
#[derive(Debug, Args)]
pub struct MachineArgs {
    /// Processors of the guest, and of native trials [default: 1]
    #[arg(long, value_name = "N")]
    pub cpus: Option<u32>,
    /// Memory of the guest, and limit of native trials, MiB [default: 1024]
    #[arg(long, value_name = "MIB")]
    pub memory: Option<u32>,
    /// CPU model of the guest and its features, as for QEMU's -cpu [default: host under KVM, max under TCG]
    #[arg(long, value_name = "MODEL")]
    pub cpu_model: Option<String>,
    /// Machine type of the guest and its properties, as for QEMU's -machine [default: q35]
    #[arg(long, value_name = "TYPE")]
    pub machine_type: Option<String>,
    /// Firmware of the guest, as for QEMU's -bios
    #[arg(long, value_name = "FILE")]
    pub firmware: Option<PathBuf>,
    /// Further arguments of the guest's kernel command line
    #[arg(long, visible_alias = "append", value_name = "ARGS", allow_hyphen_values = true)]
    pub kernel_args: Option<String>,
    /// A further QEMU argument; given for each, as in --qemu-arg=-device --qemu-arg=virtio-rng-pci
    #[arg(long = "qemu-arg", value_name = "ARG", allow_hyphen_values = true)]
    pub qemu_args: Vec<String>,
    /// Seeds the order of the machines [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Seconds after which a trial is given up [default: 600; of `exec`: a day]
    #[arg(long, visible_alias = "timeout", value_name = "SECONDS")]
    pub deadline: Option<u32>,
    /// Seconds after which a guest's boot is given up [default: 60]
    #[arg(long, value_name = "SECONDS")]
    pub boot_deadline: Option<u32>,
}

/// What every command takes that makes a recording.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// The folder for recordings
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub runs: PathBuf,
    /// Print the plan that this command line means, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print everything as JSON instead of the table
    #[arg(long)]
    pub json: bool,
}
