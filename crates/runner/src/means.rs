//! What a plan's machines need: a QEMU, a kernel, a KVM that runs kernels.

use crate::RunError;
use std::path::Path;
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
        .filter(|&m| m != MachineName::Kvm || host.kvm.class == KvmClass::Hardware)
        .collect()
}

/// Finds what the plan's guests need, fetching a kernel if none is there; `None` for a plan without guests.
///
/// # Errors
/// [`RunError`] saying what is missing and how to get it.
pub fn find_means(
    plan: &Plan,
    host: &HostFacts,
    cache: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<Option<Means>, RunError> {
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
        (None, None) => vmtax_kernel::fetch(None, cache, say)?,
    };
    Ok(Some(Means { qemu, kernel }))
}

fn kvm_runs_kernels(host: &HostFacts) -> Result<(), RunError> {
    if host.kvm.class == KvmClass::Hardware {
        return Ok(());
    }
    let mend = host.checks.iter().find(|c| c.id == "kvm").and_then(|c| c.mend.clone());
    let reason = match mend {
        Some(mend) => format!("{}. {mend}", host.kvm.evidence),
        None => format!("{}. Use --machines native,tcg", host.kvm.evidence),
    };
    Err(RunError::NoMachine { machine: MachineName::Kvm, reason })
}
