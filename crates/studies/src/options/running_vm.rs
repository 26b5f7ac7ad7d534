//! The options of a study that a running VM can be asked about, too.

use super::error::OptionsError;
use super::values::duration;
use clap::Args;
use vmtax_model::{DeviceClass, ObservedVm, Plan, Study};
use vmtax_workload::CheckedPlan;

/// For how long a VM is observed where nothing else is asked for, s.
const OBSERVED_S: f64 = 10.0;

/// What says something of a guest that is booted for the measurement: a VM that runs has its own.
pub(crate) const OF_A_GUEST: [&str; 16] = [
    "machine",
    "rounds",
    "timeout",
    "boot_timeout",
    "seed",
    "qemu",
    "kernel",
    "modules",
    "kernel_args",
    "cpu_model",
    "machine_type",
    "firmware",
    "qemu_args",
    "pinning",
    "cpus",
    "memory",
];

/// A VM that runs already.
#[derive(Debug, Args)]
#[command(next_help_heading = "Running VM")]
pub struct RunningVmOptions {
    /// Observe this running VM instead, and change nothing in it: PID, libvirt domain or UUID, Proxmox ID, QMP socket, unique
    /// part of its name
    #[arg(long, value_name = "VM", conflicts_with_all = OF_A_GUEST)]
    vm: Option<String>,
    /// How long to observe it: 30s, 5m [default: 10s]
    #[arg(long, value_name = "TIME", requires = "vm", value_parser = duration)]
    duration: Option<f64>,
}

impl RunningVmOptions {
    /// The plan of a study of the VM that was named; `None` where none was.
    pub(crate) fn plan(
        &self,
        study: impl FnOnce(ObservedVm) -> Study,
    ) -> Option<Result<CheckedPlan, OptionsError>> {
        let name = self.vm.as_deref()?;
        Some(plan_of_vm(name, self.duration.unwrap_or(OBSERVED_S), study))
    }
}

/// The plan of a study of a running VM, for so many seconds.
pub(crate) fn plan_of_vm(
    name: &str,
    seconds: f64,
    study: impl FnOnce(ObservedVm) -> Study,
) -> Result<CheckedPlan, OptionsError> {
    let vm = vmtax_vm::find(name)?;
    let pid = vm.pid;
    let time_ms = ((seconds * 1e3).round() as u64).max(1);
    let study = study(ObservedVm {
        pid,
        started: vm.started,
        name: vm.name,
        time_ms,
        guest_vmtax: None,
        device: DeviceClass::Disk,
    });
    let plan = Plan::new(
        &format!("{}-{pid}", study.name()),
        1,
        Vec::new(),
        Vec::new(),
    );
    Ok(CheckedPlan::new(Plan { study, ..plan })?)
}
