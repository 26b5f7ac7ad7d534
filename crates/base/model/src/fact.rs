//! Facts of a host and its capabilities. Collected by the `host` crate, kept in every recording, shown by `doctor`,
//! which checks each part that a measurement needs.

use crate::{Machine, Remedy, Setting, Variant};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use strum::{EnumString, IntoStaticStr, VariantArray};

/// Identity of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostIdentity {
    /// Host name, `uname -n`; `None` where it is not known.
    pub name: Option<String>,
    /// 16 hexadecimal digits, a hash of /etc/machine-id, which it does not give away; `None` where there is none.
    pub id: Option<String>,
}

/// The host's CPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuFacts {
    /// Model name of the CPU.
    pub model: String,
    /// Revision of the microcode, as /proc/cpuinfo has it.
    pub microcode: Option<String>,
    /// Logical CPUs that are online.
    pub online: u32,
    /// Threads per core; above 1 means SMT.
    pub threads_per_core: u32,
    /// `vmx`, `svm` or none.
    pub virtualisation: Option<String>,
    /// Hypervisor, if the host is itself a guest, by name if it is known; `None` on bare metal.
    pub hypervisor: Option<String>,
    /// True if the TSC ticks at a constant rate and never stops.
    pub invariant_tsc: bool,
    /// The kernel's clock source.
    pub clocksource: String,
    /// The frequency governor, where there is one.
    pub governor: Option<String>,
    /// Share of CPU time stolen since boot, 0 to 1.
    pub steal: f64,
}

/// Capability of this host's KVM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, EnumString)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum KvmClass {
    /// Runs kernels at the CPU's speed.
    Hardware,
    /// Runs user-mode code directly but emulates kernels instruction by instruction.
    EmulatesKernels,
    /// Opens, but runs nothing properly.
    Broken,
    /// `/dev/kvm` may not be opened by this user.
    NoPermission,
    /// There is no `/dev/kvm`.
    Absent,
}

impl KvmClass {
    /// Returns the machines on which a study runs when none is named: native, KVM where it runs kernels with hardware virtualization, and
    /// TCG, of QEMU.
    pub fn default_machines(self) -> Vec<Machine> {
        let all = [Machine::NATIVE, Machine::KVM, Machine::TCG];
        let is_slow = |m: &Machine| m.is_kvm() && self != KvmClass::Hardware;
        all.into_iter().filter(|m| !is_slow(m)).collect()
    }

    /// The machine of a Linux guest when none is named: KVM where it runs kernels with hardware virtualization, else TCG.
    pub fn default_guest(self) -> Machine {
        match self {
            KvmClass::Hardware => Machine::KVM,
            _ => Machine::TCG,
        }
    }

    /// The machines that run the micro-guest, the one nearest to the hardware first. What it measures runs natively also where
    /// a KVM emulates kernels.
    pub fn micro_guests(self) -> &'static [Machine] {
        match self {
            KvmClass::Hardware | KvmClass::EmulatesKernels => {
                &[Machine::MICRO_KVM, Machine::MICRO_TCG]
            }
            KvmClass::Broken | KvmClass::NoPermission | KvmClass::Absent => &[Machine::MICRO_TCG],
        }
    }
}

/// Result of the KVM probe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KvmFacts {
    /// Class of this host's KVM.
    pub class: KvmClass,
    /// Evidence for the class, for people (`8.0e5 loop iterations/s in kernel mode, 1.7e9 in user mode`).
    pub evidence: String,
}

/// A QEMU that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QemuFacts {
    /// Path of the QEMU binary.
    pub path: PathBuf,
    /// Version of this QEMU, `7.2.22`.
    pub version: String,
    /// Accelerators it was built with (`kvm`, `tcg`).
    pub accelerators: Vec<String>,
    /// AIO engines it was built with (`threads`, `native`, `io_uring`).
    pub aio: Vec<String>,
    /// True if it has iothreads.
    pub iothread: bool,
    /// Number of functions it exports, for uprobes; 0 when none.
    pub exported_functions: u32,
    /// Trace back ends it was built with (`log`, `simple`, `ust`, `dtrace`).
    pub trace_backends: Vec<String>,
}

/// Where a guest kernel comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceOfKernel {
    /// Given with `--kernel`.
    Given,
    /// The running kernel, from `/boot` and `/lib/modules`.
    Running,
    /// Unpacked into vmtax's cache.
    Cache,
}

/// A guest kernel that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelFacts {
    /// The bootable image.
    pub image: PathBuf,
    /// The folder that holds `kernel/…/*.ko`, if there is one.
    pub modules: Option<PathBuf>,
    /// Release of the kernel, as `uname -r` will print it.
    pub release: String,
    /// Where it comes from.
    pub source: SourceOfKernel,
}

/// The kernel's file with its lockdown modes.
pub const LOCKDOWN_FILE: &str = "/sys/kernel/security/lockdown";

/// Returns true where the lockdown mode in effect, which its file has in brackets, closes tracing to root, too. Source:
/// kernel_lockdown(7).
pub fn is_tracing_locked_down(modes: &str) -> bool {
    modes.contains("[confidentiality]")
}

/// Files that say what a remedy needs and are no [`Setting`].
const OTHERS: [&str; 3] = [
    "/proc/cmdline",
    "/sys/devices/system/cpu/cpu*/cpuidle/state*/disable",
    "/sys/devices/system/node/online",
];

/// Returns the files of the host's kernel that remedies set, read so that none is advised that is in effect or that this host
/// lacks. They are as remedies name them; of several that a `*` stands for, the last is read.
pub fn host_setting_files() -> impl Iterator<Item = &'static str> {
    OTHERS
        .into_iter()
        .chain(Setting::all().filter_map(Setting::host_file))
}

/// Everything that was found out about a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// [`crate::SCHEMA`] of the writer.
    pub schema: u32,
    /// Identity of the host; empty in older recordings.
    #[serde(default)]
    pub identity: HostIdentity,
    /// Release of the host's kernel, `uname -r`.
    pub kernel: String,
    /// The distribution's own name for itself.
    pub distribution: String,
    /// The host's CPUs.
    pub cpu: CpuFacts,
    /// Memory of the host, MiB.
    pub memory_mib: u64,
    /// Transparent huge pages: `always`, `madvise`, `never`; `None` where the kernel has none.
    pub transparent_hugepage: Option<String>,
    /// KVM's module parameter, ns; `None` where the module is not loaded.
    pub halt_poll_ns: Option<u64>,
    /// Values in effect of [`host_setting_files`], by the file; without those that the host lacks. Empty in older recordings.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Result of the KVM probe.
    pub kvm: KvmFacts,
    /// QEMUs, best first.
    pub qemu: Vec<QemuFacts>,
    /// Guest kernels, first choice first.
    pub kernels: Vec<KernelFacts>,
    /// The lines of `doctor`.
    pub checks: Vec<Check>,
}

impl HostFacts {
    /// The QEMU of a guest: its variant's own, else the one that was asked for, or the best, which is the first. `None`
    /// where nothing is known of it.
    pub fn qemu_of(&self, variant: Option<&Variant>) -> Option<&QemuFacts> {
        match variant.and_then(Variant::qemu) {
            Some(own) => self.qemu.iter().find(|qemu| qemu.path == own),
            None => self.qemu.first(),
        }
    }
}

/// State of a part of the host: usable, limited or missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Readiness {
    /// As it should be.
    Ok,
    /// Works, with something named taken away.
    Limited,
    /// Not available on this host.
    Missing,
}

/// One check of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Stable identifier (`kvm`, `qemu`, `guest-kernel`, …).
    pub id: String,
    /// Subject of the check, for people.
    pub subject: String,
    /// State of the part that is checked.
    pub state: Readiness,
    /// Result of the check, for people.
    pub found: String,
    /// Why it matters to a measurement.
    pub why: String,
    /// Problem, by the rule that has the remedies. `None` where there is no problem, or nobody can change it.
    pub problem: Option<HostProblem>,
    /// The remedies of that rule, best first. Recordings of before have a text, `fix`.
    #[serde(default, alias = "fix", deserialize_with = "remedies_or_text")]
    pub remedies: Vec<Remedy>,
}

fn remedies_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Remedy>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Remedies(Vec<Remedy>),
        Text(Option<String>),
    }
    Ok(match Written::deserialize(deserializer)? {
        Written::Remedies(remedies) => remedies,
        Written::Text(text) => text.into_iter().map(Remedy::instruction).collect(),
    })
}

/// Problem of a part of a host: the identifier of a rule, which describes it and has the remedies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum HostProblem {
    VirtualizationOff,
    NoNestedVirtualization,
    OneCpu,
    SmtOn,
    CpuGovernor,
    StolenCpuTime,
    SlowClockSource,
    TscNotTrusted,
    TscNotExposed,
    KvmEmulatesKernels,
    KvmBroken,
    KvmNotPermitted,
    KvmGroupMissing,
    KvmIntelNotLoaded,
    KvmAmdNotLoaded,
    LittleMemory,
    TransparentHugePagesOff,
    NoHugePages,
    QemuIncomplete,
    NoGuestKernel,
    KernelFeatureMissing,
    // Recordings before 0.1 have a name of its own for one that is not mounted.
    #[serde(alias = "tracefs-not-mounted")]
    TracingNeedsRoot,
    KernelLockedDown,
    PerfEventParanoid,
    NoVirtualPmu,
    NoCgroup,
    NoMemoryController,
    NoCgroupRights,
    NoMkfs,
    NoVirtiofsd,
    NoNfsServer,
}

impl HostProblem {
    /// All of them.
    pub const ALL: &[HostProblem] = <HostProblem as VariantArray>::VARIANTS;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_text_is_an_instruction() {
        let read = |fix: &str| {
            let check = r#"{"id": "kvm", "subject": "KVM", "state": "missing", "found": "", "why": "" FIX}"#;
            serde_json::from_str::<Check>(&check.replace("FIX", fix))
                .unwrap()
                .remedies
        };
        assert_eq!(
            read(r#", "fix": "load kvm_amd""#),
            [Remedy::instruction("load kvm_amd".to_owned())]
        );
        assert_eq!([read(""), read(r#", "fix": null"#)], [vec![], vec![]]);
        let remedy = r#"[{"place": "instruction", "setting": "", "value": "", "action": "load kvm_amd", "line": "", "cost": null, "read_back": "", "undo": ""}]"#;
        assert_eq!(
            read(&format!(r#", "remedies": {remedy}"#)),
            read(r#", "fix": "load kvm_amd""#)
        );
    }
}
