//! Finds what a plan's machines need: VMM, kernel, a KVM that runs kernels.

use crate::RunError;
use std::collections::BTreeSet;
use vmtax_guests::kernel::{KernelError, cache_dir};
use vmtax_model::{
    Guest, HostFacts, KernelFacts, KvmClass, Machine, Plan, Variant, Vmm, WorkloadName,
};
use vmtax_vm::{MachineError, VmmProgram};
use vmtax_workload::WorkloadError;

/// Programs and kernels that guests are started with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Requirements {
    /// For each of the plan's variants, the program of each VMM that the plan's machines have.
    programs: Vec<Vec<VmmProgram>>,
    kernels: Vec<KernelFacts>,
}

impl Requirements {
    /// The kernel of each of the plan's variants; none for the micro-guest alone.
    pub fn kernels(&self) -> &[KernelFacts] {
        &self.kernels
    }

    /// The VMM that runs a machine in a variant.
    pub(crate) fn program(&self, machine: Machine, variant: usize) -> Option<&VmmProgram> {
        self.programs
            .get(variant)?
            .iter()
            .find(|program| Some(program.vmm()) == machine.vmm())
    }

    /// Checks that the programs have a machine's accelerator, in each variant that it runs.
    fn check_accelerator(&self, plan: &Plan, machine: Machine) -> Result<(), RunError> {
        let Some(accelerator) = machine.accelerator() else {
            return Ok(());
        };
        let variants = plan.variants.iter().enumerate();
        let mut programs = variants
            .filter(|(_, variant)| variant.is_on(machine))
            .filter_map(|(i, _)| self.program(machine, i));
        match programs.find(|program| !program.has(accelerator)) {
            Some(program) => Err(RunError::NoMachine {
                machine,
                reason: format!(
                    "{} was built without this accelerator: use another QEMU with --qemu",
                    program.path().display()
                ),
            }),
            None => Ok(()),
        }
    }
}

/// Finds what the plan's guests need, fetching a kernel if none is there; `None` for a plan without guests.
///
/// # Errors
/// [`RunError`] saying what is missing and how to get it.
pub(crate) fn find_requirements(
    plan: &Plan,
    host: &HostFacts,
    say: &mut dyn FnMut(&str),
) -> Result<Option<Requirements>, RunError> {
    check_host(plan, host)?;
    let machines = plan.machines.iter().copied();
    let guests: Vec<Machine> = machines.filter(|m| m.is_guest()).collect();
    if guests.is_empty() {
        return Ok(None);
    }
    for &machine in guests.iter().filter(|m| m.is_kvm()) {
        kvm_runs(machine, host, say)?;
    }
    if let Some(&machine) = guests.iter().find(|m| !m.has_kernel()) {
        micro_can(machine, plan)?;
    }
    let vmms: BTreeSet<Vmm> = guests.iter().filter_map(|m| m.vmm()).collect();
    let programs = vmms
        .into_iter()
        .map(|vmm| programs(vmm, plan, host))
        .collect::<Result<Vec<_>, _>>()?;
    let of_variant = |variant| {
        programs
            .iter()
            .filter_map(|of_vmm| of_vmm.get(variant).cloned())
            .collect()
    };
    let mut requirements = Requirements {
        programs: (0..plan.variants.len()).map(of_variant).collect(),
        kernels: Vec::new(),
    };
    for &machine in &guests {
        requirements.check_accelerator(plan, machine)?;
    }
    if plan.machines.iter().any(|m| m.is_linux_guest()) {
        requirements.kernels = kernels(plan, host, say)?;
    }
    Ok(Some(requirements))
}

/// Checks the files that a plan names, QEMUs, kernels, firmware, a tree, and that the host has the CPUs, in some milliseconds: without the
/// facts of the host, which take half a second.
///
/// # Errors
/// [`RunError`] as [`Recorder::prepare`](crate::Recorder::prepare) would find it later.
pub fn check_named(plan: &Plan) -> Result<(), RunError> {
    check_cpus(plan, vmtax_host::online_cpus())?;
    if let Some(path) = plan.tree.as_ref().and_then(|tree| tree.path.as_ref()) {
        let no_tree = |source| MachineError::NoTree {
            folder: path.clone(),
            source,
        };
        std::fs::read_dir(path).map_err(no_tree)?;
    }
    for variant in &plan.variants {
        let guest = variant.guest(&plan.guest)?;
        let machines = || plan.machines.iter().filter(|m| variant.is_on(**m));
        let qemu = variant.qemu().or(guest.qemu.as_deref());
        if let Some(named) = qemu.filter(|_| machines().any(|m| m.is_guest())) {
            vmtax_host::check_named_qemu(named)?;
        }
        if machines().any(|m| m.is_linux_guest()) {
            given_kernel(&guest)?;
        }
        // QEMU has files of its own, which have names without a directory.
        let firmware = guest.firmware.as_ref();
        if let Some(path) = firmware.filter(|path| path.components().count() > 1) {
            let unreadable = |source| RunError::Firmware {
                path: path.clone(),
                source,
            };
            std::fs::File::open(path).map_err(unreadable)?;
        }
    }
    Ok(())
}

/// Checks that the host has the CPUs for native trials.
fn check_cpus(plan: &Plan, online: u32) -> Result<(), RunError> {
    if plan.machines.contains(&Machine::NATIVE) && plan.guest.cpus > online {
        return Err(RunError::NoMachine {
            machine: Machine::NATIVE,
            reason: format!(
                "it has {online} CPUs, {} were asked for: use --cpus {online}",
                plan.guest.cpus
            ),
        });
    }
    Ok(())
}

/// Checks that the host has the CPUs for native trials, and that the workloads run on the plan's machines.
fn check_host(plan: &Plan, host: &HostFacts) -> Result<(), RunError> {
    check_cpus(plan, host.cpu.online)?;
    let machine = plan.machines.iter().find(|m| m.has_kernel());
    let workload = plan.workloads.iter().find(|w| !w.name.needs_kernel());
    match machine.zip(workload) {
        Some((&machine, workload)) => Err(RunError::NoMachine {
            machine,
            reason: WorkloadError::MicroGuestOnly(workload.name).to_string(),
        }),
        None => Ok(()),
    }
}

/// The kernel of each variant; fetched once if there is none.
fn kernels(
    plan: &Plan,
    host: &HostFacts,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<KernelFacts>, RunError> {
    let mut kernels: Vec<KernelFacts> = Vec::new();
    let mut usual = host.kernels.first().cloned();
    for variant in &plan.variants {
        let guest = variant.guest(&plan.guest)?;
        kernels.push(match (given_kernel(&guest)?, &guest.kernel, &usual) {
            (Some(given), ..) => given,
            (None, Some(named), _) => {
                let cache = cache_dir().map_err(KernelError::from)?;
                vmtax_guests::kernel::fetch(Some(&named.to_string_lossy()), &cache, say)?
            }
            (None, None, Some(found)) => found.clone(),
            (None, None, None) => {
                let cache = cache_dir().map_err(KernelError::from)?;
                usual
                    .insert(vmtax_guests::kernel::fetch(None, &cache, say)?)
                    .clone()
            }
        });
    }
    Ok(kernels)
}

/// Returns the kernel that a guest names by its file; `None` for a release or a suite, in the cache or to be fetched, and where
/// none is named.
fn given_kernel(guest: &Guest) -> Result<Option<KernelFacts>, RunError> {
    let Some(named) = &guest.kernel else {
        return Ok(None);
    };
    // A name that is not a file may be of a release or a suite.
    if guest.modules.is_none() && !named.exists() && named.components().count() == 1 {
        let cache = cache_dir().map_err(KernelError::from)?;
        if vmtax_guests::kernel::is_name(&named.to_string_lossy(), &cache) {
            return Ok(None);
        }
    }
    let modules = guest.modules.as_deref();
    Ok(Some(vmtax_guests::kernel::given(named, modules)?))
}

/// A VMM's program for each variant.
fn programs(vmm: Vmm, plan: &Plan, host: &HostFacts) -> Result<Vec<VmmProgram>, RunError> {
    match vmm {
        Vmm::Qemu => {
            // The host's facts list the best one first. Without one, the search fails with the reason.
            let usual = match (&plan.guest.qemu, host.qemu.first()) {
                (None, Some(best)) => best.clone(),
                (named, _) => vmtax_host::best_qemu(named.as_deref())?,
            };
            let of_variant = |variant: &Variant| match variant.qemu() {
                Some(named) => Ok(VmmProgram::Qemu(vmtax_host::best_qemu(Some(named))?)),
                None => Ok(VmmProgram::Qemu(usual.clone())),
            };
            plan.variants.iter().map(of_variant).collect()
        }
        // No machine is of another: they are observed, not booted.
        _ => Ok(Vec::new()),
    }
}

/// The micro-guest has no kernel: it makes requests to a disk, and round trips over UDP, one at a time.
fn micro_can(machine: Machine, plan: &Plan) -> Result<(), RunError> {
    let cannot = |reason: String| Err(RunError::NoMachine { machine, reason });
    for workload in &plan.workloads {
        match workload.name {
            name if !name.needs_kernel() => {}
            WorkloadName::NetRr => {
                let work = vmtax_workload::round_trip_work(workload)?;
                if work.is_tcp || work.connections != 1 {
                    return cannot(
                        "its driver makes round trips over UDP on one connection: leave it out of --machine".to_owned(),
                    );
                }
            }
            WorkloadName::Disk => {
                let depth = vmtax_workload::block_work(workload)?.depth;
                if depth != 1 {
                    return cannot(format!(
                        "it has one request in flight at a time, not {depth}: leave it out of --machine"
                    ));
                }
            }
            name => {
                return cannot(format!(
                    "it has no operating system and runs the workloads disk and net-rr alone, not {name}: use another machine"
                ));
            }
        }
    }
    Ok(())
}

/// Checks that KVM can be used. A KVM that emulates kernels runs the micro-guest, which stays in user mode, and is
/// tried for others, with a warning: there are kernels made for it.
fn kvm_runs(machine: Machine, host: &HostFacts, say: &mut dyn FnMut(&str)) -> Result<(), RunError> {
    let reason = match host.kvm.class {
        KvmClass::Hardware => return Ok(()),
        KvmClass::EmulatesKernels if !machine.has_kernel() => return Ok(()),
        KvmClass::EmulatesKernels => {
            say(
                "Warning: this host's KVM runs without VT-x or AMD-V (PVM): a guest kernel that is not built for it runs in KVM's \
                 instruction emulator, slowly, or fails to boot (use --machine tcg)",
            );
            return Ok(());
        }
        KvmClass::Broken => "this host's KVM opens but runs no code: see `vmtax doctor`",
        KvmClass::NoPermission => "this user may not open /dev/kvm: see `vmtax doctor`",
        KvmClass::Absent => "there is no /dev/kvm: see `vmtax doctor`, or use the machine tcg",
    };
    Err(RunError::NoMachine {
        machine,
        reason: reason.to_owned(),
    })
}
