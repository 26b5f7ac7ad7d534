//! Options that several studies take.

use super::error::OptionsError;
use clap::Args;
use std::path::PathBuf;
use vmtax_model::{HostFacts, Plan};
use vmtax_workload::CheckedPlan;

/// The options of a study: what its command line means.
pub trait StudyOptions: Args {
    /// The plan that they mean on this host; it can be carried out, as far as that can be said without trying.
    ///
    /// # Errors
    /// [`OptionsError`] for what is unknown, contradictory or out of range.
    fn plan(&self, host: &HostFacts) -> Result<CheckedPlan, OptionsError>;

    /// Whether each guest is profiled once more afterwards.
    fn is_profiled(&self) -> bool {
        false
    }

    /// Whether the plan's command has this terminal.
    fn has_terminal(&self) -> bool {
        false
    }
}

/// What a study takes whose guests all have the same QEMU and kernel.
#[derive(Debug, Args)]
pub struct CommonOptions {
    /// The QEMU to use: a file, or the version or suite of one that `vmtax get qemu` fetched
    #[arg(long, value_name = "QEMU")]
    pub qemu: Option<PathBuf>,
    /// The guest's kernel: a bzImage, or an ELF vmlinux with a PVH note
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    /// The kernel's modules (lib/modules or a folder in it)
    #[arg(long, value_name = "DIR", requires = "kernel")]
    pub modules: Option<PathBuf>,
    /// What every study takes.
    #[command(flatten)]
    pub machine: MachineOptions,
}

/// What every study takes that boots machines.
#[derive(Debug, Args)]
pub struct MachineOptions {
    /// How often each machine has its turn; an interval takes 6
    /// [default: 6; `run` without --quick or --full: 8; `exits`: 3; `compare`: until all is decided, at most 40]
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
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
    pub boot_timeout: Option<u32>,
}

/// Replaces what was given.
fn replace<T: Clone>(field: &mut T, given: Option<&T>) {
    if let Some(given) = given {
        field.clone_from(given);
    }
}

impl CommonOptions {
    /// The plan with what these options replace in it, checked.
    pub(crate) fn complete(&self, mut plan: Plan) -> Result<CheckedPlan, OptionsError> {
        if self.kernel.is_some() {
            plan.guest.kernel.clone_from(&self.kernel);
            plan.guest.modules.clone_from(&self.modules);
        }
        if self.qemu.is_some() {
            plan.guest.qemu.clone_from(&self.qemu);
        }
        self.machine.complete(plan)
    }
}

impl MachineOptions {
    /// The plan with what these options replace in it, checked.
    pub(crate) fn complete(&self, mut plan: Plan) -> Result<CheckedPlan, OptionsError> {
        replace(&mut plan.rounds, self.rounds.as_ref());
        replace(&mut plan.seed, self.seed.as_ref());
        replace(&mut plan.timeout_s, self.deadline.as_ref());
        let guest = &mut plan.guest;
        replace(&mut guest.cpus, self.cpus.as_ref());
        replace(&mut guest.memory_mib, self.memory.as_ref());
        replace(&mut guest.boot_timeout_s, self.boot_timeout.as_ref());
        guest.cpu_model = self.cpu_model.clone().or(guest.cpu_model.take());
        guest.machine_type = self.machine_type.clone().or(guest.machine_type.take());
        guest.kernel_args = self.kernel_args.clone().or(guest.kernel_args.take());
        guest.firmware = self.firmware.clone().or(guest.firmware.take());
        if !self.qemu_args.is_empty() {
            guest.qemu_args.clone_from(&self.qemu_args);
        }
        plan.check()?;
        Ok(CheckedPlan::new(plan)?)
    }
}
