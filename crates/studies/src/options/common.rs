//! Options that several studies have, in groups as help shows them, and the plans that are made of them: of a guest, or of a VM
//! that runs.

use super::values::{OptionsError, duration, machine, mebibytes, milliseconds, pinning, seconds};
use clap::{Arg, Args};
use std::cell::LazyCell;
use std::ops::Deref;
use std::path::PathBuf;
use vmtax_model::{
    DeviceClass, HostFacts, KvmClass, Machine, ObservedVm, Pinning, Plan, Setting, Study, VmStudy,
};
use vmtax_runner::check_named;
use vmtax_workload::CheckedPlan;

/// For how long a VM is observed where nothing else is asked for, s.
const OBSERVED_S: f64 = 10.0;

/// Options of a guest that is booted for the measurement: a VM that runs has its own.
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

/// This host, which is probed when its facts are first read: that starts its QEMUs and takes 0.3 s.
pub struct LazyHost {
    facts: LazyCell<HostFacts>,
    /// True if plans are carried out on it, and not only printed.
    is_measured: bool,
}

impl LazyHost {
    /// Returns the host whose facts `probe` reads; `is_measured` if plans are carried out on it, and not only printed.
    pub fn new(probe: fn() -> HostFacts, is_measured: bool) -> LazyHost {
        LazyHost {
            facts: LazyCell::new(probe),
            is_measured,
        }
    }

    /// Checks, before this host is probed, that it has the files that a plan names. A plan that is only printed may be for another
    /// host.
    ///
    /// # Errors
    /// [`OptionsError::Named`].
    pub fn check_named(&self, plan: &Plan) -> Result<(), OptionsError> {
        match self.is_measured && !plan.is_attached() {
            true => Ok(check_named(plan).map_err(Box::new)?),
            false => Ok(()),
        }
    }
}

impl Deref for LazyHost {
    type Target = HostFacts;

    fn deref(&self) -> &HostFacts {
        &self.facts
    }
}

/// Makes the plan for this host's KVM. Options that are wrong whatever KVM a host has, and files that it does not have, are refused
/// before it is probed.
pub(crate) fn on_host(
    host: &LazyHost,
    plan: impl Fn(KvmClass) -> Result<CheckedPlan, OptionsError>,
) -> Result<CheckedPlan, OptionsError> {
    let (hardware, absent) = (plan(KvmClass::Hardware), plan(KvmClass::Absent));
    match (&hardware, &absent) {
        (Err(error), Err(same)) if error.to_string() == same.to_string() => return hardware,
        (_, Ok(either)) | (Ok(either), _) => host.check_named(either)?,
        _ => {}
    }
    plan(host.kvm.class)
}

/// The options of a study: what its command line means.
pub trait StudyOptions: Args {
    /// The plan that they mean on this host, checked.
    ///
    /// # Errors
    /// [`OptionsError`] for what is unknown, contradictory or out of range; as far as the host does not matter for it, before the
    /// host is probed.
    fn plan(&self, host: &LazyHost) -> Result<CheckedPlan, OptionsError>;

    /// Returns true if each guest is profiled in one more run.
    fn is_profiled(&self) -> bool {
        false
    }

    /// Returns true if the requests of a tuned guest are traced in one more run.
    fn traces_tuned(&self) -> bool {
        false
    }

    /// Returns true if the plan's command gets this terminal.
    fn has_terminal(&self) -> bool {
        false
    }
}

/// Options of a study whose guests all have the same QEMU and kernel.
#[derive(Debug, Args)]
pub struct CommonOptions {
    /// Where and how often.
    #[command(flatten)]
    pub measurement: MeasurementOptions,
    /// QEMU, kernel, devices.
    #[command(flatten)]
    pub guest: GuestOptions,
}

/// Where and how often a study measures.
#[derive(Debug, Args)]
#[command(next_help_heading = "Measurement")]
pub struct MeasurementOptions {
    /// Where to measure, comma separated: native (this host); kvm or tcg: a Linux guest; micro-kvm or micro-tcg: a small
    /// test guest without an operating system [default: native and tcg, and kvm where it is usable]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = machine)]
    pub machine: Option<Vec<Machine>>,
    /// Rounds: each workload once on each machine, in random order; a 95 % confidence interval (CI) needs
    /// at least 6 [default: 6]
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// Timeout of each run of a workload: 90s, 10m, 2h [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub timeout: Option<u32>,
    /// Timeout of a guest's boot [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub boot_timeout: Option<u32>,
    /// Seed of the random order [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// The guest.
#[derive(Debug, Args)]
#[command(next_help_heading = "Guest")]
pub struct GuestOptions {
    /// QEMU: a binary, or a version or Debian suite fetched by `vmtax get qemu`
    #[arg(long, value_name = "QEMU")]
    pub qemu: Option<PathBuf>,
    /// Guest kernel: a bzImage, an ELF vmlinux with a PVH note, or a kernel version or Debian suite that `vmtax get kernel` fetches
    #[arg(long, value_name = "KERNEL")]
    pub kernel: Option<PathBuf>,
    /// The kernel's modules (lib/modules, or a directory in it)
    #[arg(long, value_name = "DIR", requires = "kernel")]
    pub modules: Option<PathBuf>,
    /// Besides QEMU and kernel.
    #[command(flatten)]
    pub settings: GuestSettings,
}

/// Settings of the guest besides QEMU and kernel.
#[derive(Debug, Args)]
#[command(next_help_heading = "Guest")]
pub struct GuestSettings {
    /// Kernel command-line argument; may be repeated
    #[arg(long = "kernel-arg", value_name = "ARG", allow_hyphen_values = true)]
    pub kernel_args: Vec<String>,
    /// CPU model and features, as for QEMU's -cpu [default: host under KVM, max under TCG]
    #[arg(long, value_name = "MODEL")]
    pub cpu_model: Option<String>,
    /// Machine type and properties, as for QEMU's -machine [default: q35]
    #[arg(long, value_name = "TYPE")]
    pub machine_type: Option<String>,
    /// Firmware, as for QEMU's -bios
    #[arg(long, value_name = "FILE")]
    pub firmware: Option<PathBuf>,
    /// QEMU argument; may be repeated, as in --qemu-arg=-device --qemu-arg=virtio-rng-pci
    #[arg(long = "qemu-arg", value_name = "ARG", allow_hyphen_values = true)]
    pub qemu_args: Vec<String>,
    /// Host CPUs of the guest's threads: split (each vCPU pinned to a dedicated CPU, QEMU's other threads to the rest), one-cpu
    /// (all of QEMU on one), none (the host's scheduler) [default: none]
    #[arg(long, value_name = "HOW", value_parser = pinning)]
    pub pinning: Option<Pinning>,
    /// Number of vCPUs; native runs use as many CPUs [default: 1]
    #[arg(long, value_name = "N")]
    pub cpus: Option<u32>,
    /// Memory, and memory limit of native runs: 512M, 2G; a plain number is MiB [default: 1G]
    #[arg(long, value_name = "SIZE", value_parser = mebibytes)]
    pub memory: Option<u32>,
}

/// Help of `--cpus` where nothing runs natively.
pub(crate) const VCPUS_HELP: &str = "vCPUs [default: 1]";
/// Help of `--memory` where nothing runs natively.
pub(crate) const MEMORY_HELP: &str = "Memory: 512M, 2G; a plain number is MiB [default: 1G]";
/// Help of `--pinning` where guests are pinned by default.
pub(crate) const PINNING_HELP: &str = "Host CPUs of the guests' threads: split (each vCPU pinned to a dedicated CPU, QEMU's other threads to the rest), one-cpu (all of QEMU on one), none (the host's scheduler) [default: split]";

/// The argument with another help text: its default differs in this command.
pub(crate) fn with_help(text: &'static str) -> impl FnOnce(Arg) -> Arg {
    move |arg| arg.help(text)
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
        let GuestOptions {
            qemu,
            kernel,
            modules,
            settings,
        } = &self.guest;
        if kernel.is_some() {
            plan.guest.kernel.clone_from(kernel);
            plan.guest.modules.clone_from(modules);
        }
        if qemu.is_some() {
            plan.guest.qemu.clone_from(qemu);
        }
        complete(&self.measurement, settings, plan)
    }

    /// The plan as [`CommonOptions::complete`] makes it; without machines it gets those that are the `default` on this host.
    pub(crate) fn complete_on(
        &self,
        host: &LazyHost,
        default: impl Fn(KvmClass) -> Vec<Machine>,
        plan: Plan,
    ) -> Result<CheckedPlan, OptionsError> {
        if !plan.machines.is_empty() {
            return self.complete(plan);
        }
        on_host(host, |class| {
            self.complete(Plan {
                machines: default(class),
                ..plan.clone()
            })
        })
    }
}

impl MeasurementOptions {
    /// The machines that were named; else those of a plan's file, or the default.
    pub(crate) fn replace_machines(&self, plan: &mut Plan) {
        replace(&mut plan.machines, self.machine.as_ref());
    }

    /// The machines that were named, after native, which guests are compared with.
    pub(crate) fn with_native(&self) -> Option<Vec<Machine>> {
        let guests = self
            .machine
            .as_ref()?
            .iter()
            .copied()
            .filter(|m| m.is_guest());
        Some([Machine::NATIVE].into_iter().chain(guests).collect())
    }
}

/// The plan with what these options replace in it, checked.
pub(crate) fn complete(
    measurement: &MeasurementOptions,
    settings: &GuestSettings,
    mut plan: Plan,
) -> Result<CheckedPlan, OptionsError> {
    replace(&mut plan.rounds, measurement.rounds.as_ref());
    replace(&mut plan.seed, measurement.seed.as_ref());
    replace(&mut plan.timeout_s, measurement.timeout.as_ref());
    let guest = &mut plan.guest;
    replace(&mut guest.boot_timeout_s, measurement.boot_timeout.as_ref());
    replace(&mut guest.cpus, settings.cpus.as_ref());
    replace(&mut guest.memory_mib, settings.memory.as_ref());
    guest.pinning = settings.pinning.or(guest.pinning);
    guest.cpu_model = settings.cpu_model.clone().or(guest.cpu_model.take());
    guest.machine_type = settings.machine_type.clone().or(guest.machine_type.take());
    guest.firmware = settings.firmware.clone().or(guest.firmware.take());
    if !settings.kernel_args.is_empty() {
        guest.kernel_args = Some(settings.kernel_args.join(" "));
    }
    if !settings.qemu_args.is_empty() {
        guest.qemu_args.clone_from(&settings.qemu_args);
    }
    plan.check()?;
    let has_kernel = plan
        .machines
        .iter()
        .any(|machine| machine.is_guest() && machine.has_kernel());
    let mut set = plan
        .guest
        .properties
        .keys()
        .chain(plan.variants.iter().flat_map(|variant| variant.set.keys()));
    if let Some(key) = set.find(|key| !has_kernel && key.starts_with(Setting::BLOCK_QUEUE)) {
        return OptionsError::usage(format!(
            "{} is of a Linux guest: the micro-guest has no kernel; leave it out, or use --machine kvm or tcg",
            key.escape_default()
        ));
    }
    Ok(CheckedPlan::new(plan)?)
}

/// A VM that runs already.
#[derive(Debug, Args)]
#[command(next_help_heading = "Running VM")]
pub struct RunningVmOptions {
    /// Observe this running VM instead, and change nothing in it; a libvirt domain stays tainted (custom-monitor) until it is
    /// shut off. PID, libvirt domain or UUID, Proxmox ID, QMP socket, unique part of its name
    #[arg(long, value_name = "VM", conflicts_with_all = OF_A_GUEST)]
    vm: Option<String>,
    /// How long to observe it: 30s, 5m [default: 10s]
    #[arg(long, value_name = "TIME", requires = "vm", value_parser = duration)]
    duration: Option<f64>,
}

impl RunningVmOptions {
    /// The plan of a study of the VM that was named; `None` where none was.
    pub(crate) fn plan(&self, study: VmStudy) -> Option<Result<CheckedPlan, OptionsError>> {
        let name = self.vm.as_deref()?;
        Some(plan_of_vm(name, self.duration.unwrap_or(OBSERVED_S), study))
    }
}

/// The plan of a study of a running VM, for so many seconds.
pub(crate) fn plan_of_vm(
    name: &str,
    seconds: f64,
    study: VmStudy,
) -> Result<CheckedPlan, OptionsError> {
    let process = vmtax_vmm::find(name)?;
    let pid = process.pid;
    let time_ms = milliseconds(seconds).max(1);
    let observed = ObservedVm {
        process,
        time_ms,
        guest_vmtax: None,
        no_probes: false,
        device: DeviceClass::Disk,
        level: ObservedVm::ALL_LEVELS,
    };
    let study = Study::Vm(study, observed);
    let plan = Plan::new(
        &format!("{}-{pid}", study.name()),
        1,
        Vec::new(),
        Vec::new(),
    );
    Ok(CheckedPlan::new(Plan { study, ..plan })?)
}
