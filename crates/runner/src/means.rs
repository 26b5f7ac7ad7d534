//! What a plan's machines need: a QEMU, a kernel, a KVM that runs kernels.

use crate::RunError;
use std::path::PathBuf;
use vmtax_kernel::KernelError;
use vmtax_model::{HostFacts, KernelFacts, KvmClass, MachineName, Plan, QemuFacts};

/// What guests are started with.
#[derive(Debug, Clone, PartialEq)]
pub struct Means {
    /// The QEMU.
    pub qemu: QemuFacts,
    /// The kernel.
    pub kernel: KernelFacts,
}

/// The machines a run takes when none are named: native, KVM where it runs kernels at speed, and TCG.
pub fn default_machines(host: &HostFacts) -> Vec<MachineName> {
    MachineName::ALL
        .iter()
        .copied()
        .filter(|&m| !m.is_micro() && (m != MachineName::Kvm || host.kvm.class == KvmClass::Hardware))
        .collect()
}

/// Finds what the plan's guests need, fetching a kernel if none is there; `None` for a plan without guests.
///
/// # Errors
/// [`RunError`] saying what is missing and how to get it.
pub fn find_means(
    plan: &Plan,
    host: &HostFacts,
    cache: Result<PathBuf, KernelError>,
    say: &mut dyn FnMut(&str),
) -> Result<Option<Means>, RunError> {
    if plan.machines.contains(&MachineName::Native) && plan.guest.cpus > host.cpu.online {
        return Err(RunError::NoMachine {
            machine: MachineName::Native,
            reason: format!(
                "it has {} processors, {} were asked for: use --cpus {0}",
                host.cpu.online, plan.guest.cpus
            ),
        });
    }
    let guests: Vec<MachineName> = plan.machines.iter().copied().filter(|m| m.is_guest()).collect();
    if guests.is_empty() {
        return Ok(None);
    }
    if guests.contains(&MachineName::Kvm) {
        kvm_runs_kernels(host)?;
    }
    // The facts have the best one first; asking again is for the error that says why there is none.
    let qemu = match (&plan.guest.qemu, host.qemu.first()) {
        (None, Some(best)) => best.clone(),
        (named, _) => vmtax_host::best_qemu(named.as_deref())?,
    };
    for machine in guests {
        if !qemu.accelerators.iter().any(|a| a == machine.as_str()) {
            return Err(RunError::NoMachine {
                machine,
                reason: format!("{} was built without it: name another QEMU with --qemu", qemu.path.display()),
            });
        }
    }
    let kernel = match (&plan.guest.kernel, host.kernels.first()) {
        (Some(image), _) => vmtax_kernel::given(image, plan.guest.modules.as_deref())?,
        (None, Some(found)) => found.clone(),
        (None, None) => vmtax_kernel::fetch(None, &cache?, say)?,
    };
    Ok(Some(Means { qemu, kernel }))
}

fn kvm_runs_kernels(host: &HostFacts) -> Result<(), RunError> {
    let reason = match host.kvm.class {
        KvmClass::Hardware => return Ok(()),
        KvmClass::EmulatesKernels => "this host's KVM only emulates guest kernels: use --machines native,tcg",
        KvmClass::Broken => "this host's KVM opens, but does not run: `vmtax doctor` says what was tried",
        KvmClass::NoPermission => "/dev/kvm may not be opened: `vmtax doctor` says what to do",
        KvmClass::Absent => "there is no /dev/kvm: `vmtax doctor` says what to do, or use --machines native,tcg",
    };
    Err(RunError::NoMachine { machine: MachineName::Kvm, reason: reason.to_owned() })
}
