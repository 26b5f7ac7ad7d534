//! What a plan's machines need: a QEMU, a kernel, a KVM that runs kernels.

use crate::RunError;
use std::path::PathBuf;
use vmtax_guests::apt::AptError;
use vmtax_guests::kernel::KernelError;
use vmtax_model::{Accelerator, HostFacts, KernelFacts, KvmClass, Machine, Plan, QemuFacts, Variant, WorkloadName};
use vmtax_workload::WorkloadError;

/// What guests are started with.
#[derive(Debug, Clone, PartialEq)]
pub struct Requirements {
    /// The QEMU of each of the plan's variants.
    pub qemus: Vec<QemuFacts>,
    /// The kernel of each of the plan's variants; none for the micro-guest alone.
    pub kernels: Vec<KernelFacts>,
}

/// Finds what the plan's guests need, fetching a kernel if none is there; `None` for a plan without guests.
///
/// # Errors
/// [`RunError`] saying what is missing and how to get it.
pub fn find_requirements(
    plan: &Plan,
    host: &HostFacts,
    cache: &dyn Fn() -> Result<PathBuf, AptError>,
    say: &mut dyn FnMut(&str),
) -> Result<Option<Requirements>, RunError> {
    if plan.machines.contains(&Machine::NATIVE) && plan.guest.cpus > host.cpu.online {
        return Err(RunError::NoMachine {
            machine: Machine::NATIVE,
            reason: format!("it has {} CPUs, {} were asked for: use --cpus {0}", host.cpu.online, plan.guest.cpus),
        });
    }
    if let Some(&machine) = plan.machines.iter().find(|m| m.has_kernel()) {
        if let Some(workload) = plan.workloads.iter().find(|w| !w.name.needs_kernel()) {
            let reason = WorkloadError::MicroGuestOnly(workload.name).to_string();
            return Err(RunError::NoMachine { machine, reason });
        }
    }
    let guests: Vec<Machine> = plan.machines.iter().copied().filter(|m| m.is_guest()).collect();
    if guests.is_empty() {
        return Ok(None);
    }
    if guests.contains(&Machine::KVM) && !(host.kvm.class == KvmClass::EmulatesKernels && all_name_kernels(plan)?) {
        kvm_runs_kernels(host)?;
    }
    if guests.contains(&Machine::MICRO_KVM) {
        kvm_opens(host)?;
    }
    if let Some(&machine) = guests.iter().find(|m| !m.has_kernel()) {
        micro_can(machine, plan)?;
    }
    // The facts have the best one first; asking again is for the error that says why there is none.
    let qemu = match (&plan.guest.qemu, host.qemu.first()) {
        (None, Some(best)) => best.clone(),
        (named, _) => vmtax_host::best_qemu(named.as_deref())?,
    };
    let qemus: Vec<QemuFacts> = plan.variants.iter().map(|v| qemu_of(v, &qemu)).collect::<Result<_, _>>()?;
    let built = |m: Machine| plan.variants.iter().zip(&qemus).filter(move |(v, _)| v.is_on(m)).map(|(_, q)| q);
    for (machine, qemu) in guests.iter().flat_map(|m| built(*m).map(move |q| (*m, q))) {
        if !qemu.accelerators.iter().any(|a| Some(a.as_str()) == machine.accelerator().map(Accelerator::as_str)) {
            return Err(RunError::NoMachine {
                machine,
                reason: format!("{} was built without it: name another QEMU with --qemu", qemu.path.display()),
            });
        }
    }
    let kernels = match plan.machines.iter().any(|m| m.is_linux_guest()) {
        true => kernels(plan, host, cache, say)?,
        false => Vec::new(),
    };
    Ok(Some(Requirements { qemus, kernels }))
}

/// The kernel of each variant; fetched, where none is there, once.
fn kernels(
    plan: &Plan,
    host: &HostFacts,
    cache: &dyn Fn() -> Result<PathBuf, AptError>,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<KernelFacts>, RunError> {
    let mut kernels: Vec<KernelFacts> = Vec::new();
    let mut usual = host.kernels.first().cloned();
    for variant in &plan.variants {
        let guest = variant.guest(&plan.guest)?;
        kernels.push(match (&guest.kernel, &usual) {
            // One that is no file is the release of one in the cache, or to be fetched into it.
            (Some(named), _) if guest.modules.is_none() && !named.exists() && named.components().count() == 1 => {
                let cache = cache().map_err(KernelError::from)?;
                vmtax_guests::kernel::fetch(Some(&named.to_string_lossy()), &cache, say)?
            }
            (Some(image), _) => vmtax_guests::kernel::given(image, guest.modules.as_deref())?,
            (None, Some(found)) => found.clone(),
            (None, None) => {
                let cache = cache().map_err(KernelError::from)?;
                usual.insert(vmtax_guests::kernel::fetch(None, &cache, say)?).clone()
            }
        });
    }
    Ok(kernels)
}

/// A variant may have a QEMU of its own.
fn qemu_of(variant: &Variant, usual: &QemuFacts) -> Result<QemuFacts, RunError> {
    match variant.qemu() {
        Some(named) => Ok(vmtax_host::best_qemu(Some(named))?),
        None => Ok(usual.clone()),
    }
}

/// Whether every guest under KVM has a kernel that a person named, who may have one that a KVM runs which emulates others.
fn all_name_kernels(plan: &Plan) -> Result<bool, RunError> {
    let mut guests = plan.variants.iter().filter(|v| v.is_on(Machine::KVM)).map(|v| v.guest(&plan.guest));
    Ok(guests.try_fold(true, |all, guest| guest.map(|guest| all && guest.kernel.is_some()))?)
}

/// The micro-guest's own code runs in user mode: a KVM that emulates kernels will do.
fn kvm_opens(host: &HostFacts) -> Result<(), RunError> {
    match host.kvm.class {
        KvmClass::EmulatesKernels => Ok(()),
        _ => kvm_runs_kernels(host).map_err(|error| match error {
            RunError::NoMachine { reason, .. } => RunError::NoMachine { machine: Machine::MICRO_KVM, reason },
            other => other,
        }),
    }
}

/// It has no kernel: block requests, one at a time, are all that it makes.
fn micro_can(machine: Machine, plan: &Plan) -> Result<(), RunError> {
    let cannot = |reason: String| Err(RunError::NoMachine { machine, reason });
    for workload in &plan.workloads {
        if !workload.name.needs_kernel() {
            continue;
        }
        if workload.name != WorkloadName::Seqread {
            return cannot(format!(
                "it has no operating system and cannot run {}: give it seqread alone",
                workload.name
            ));
        }
        let depth = vmtax_workload::block_work(workload)?.depth;
        if depth != 1 {
            return cannot(format!("it has one request under way at a time, not {depth}: leave it out of --machine"));
        }
    }
    Ok(())
}

fn kvm_runs_kernels(host: &HostFacts) -> Result<(), RunError> {
    let reason = match host.kvm.class {
        KvmClass::Hardware => return Ok(()),
        KvmClass::EmulatesKernels => {
            "this host's KVM only emulates guest kernels: use the machine tcg, or name a kernel made for it with --kernel"
        }
        KvmClass::Broken => "this host's KVM opens, but does not run: `vmtax doctor` says what was tried",
        KvmClass::NoPermission => "/dev/kvm may not be opened: `vmtax doctor` says what to do",
        KvmClass::Absent => "there is no /dev/kvm: `vmtax doctor` says what to do, or use the machine tcg",
    };
    Err(RunError::NoMachine { machine: Machine::KVM, reason: reason.to_owned() })
}
