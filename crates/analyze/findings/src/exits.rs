//! VM exits: the cost of one of each kind, as the micro-guest stamps it, those of a running guest, and the code that causes them.

use crate::{Advice, SampleShare, Summary};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vmtax_model::samples::TimerLine;
use vmtax_model::{AddressSpace, Machine, Missing, VmFacts, Warning};

/// The end of the label of an exit that KVM hands to QEMU.
pub const HANDLED_IN_QEMU: &str = ", handled in QEMU";

/// Of one that KVM handles.
pub const HANDLED_IN_KVM: &str = ", handled in KVM";

/// Under TCG, of an access to a port or address without a device.
pub const NO_DEVICE: &str = ", no device";

/// Under TCG, of an access to the PIC or APIC.
pub const INTERRUPT_CONTROLLER: &str = ", interrupt controller";

/// One kind of exit on one machine. Times are in nanoseconds and raw: what a pair of stamps takes is its own row
/// ([`MachineExits::stamp`]), not subtracted, since a difference of two distributions is no distribution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExitKind {
    /// For people: "port write, handled in QEMU", "cpuid", "hlt and wake-up, guest CPL 0".
    pub label: String,
    /// Time of one exit, of all that were stamped, ns.
    #[serde(flatten)]
    pub time: Summary,
    /// True if it ran in the part of a guest that this host's KVM emulates instruction by instruction: the figure is
    /// then the emulation's, not an exit's.
    pub emulated: bool,
    /// True where this host's CPUs do it without a VM exit, as those with APICv or AVIC do for an access to the local APIC.
    #[serde(default)]
    pub without_exit: bool,
    /// Note that a reader of the figure has to know; empty where there is none.
    pub note: String,
}

/// Every kind of exit on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineExits {
    /// Machine that was measured: a micro-guest's.
    pub machine: Machine,
    /// Name and version of the machine's QEMU: "QEMU 7.2.22".
    pub qemu: String,
    /// A pair of stamps with nothing between.
    pub stamp: ExitKind,
    /// The kinds, in the order to show.
    pub kinds: Vec<ExitKind>,
    /// Kinds that could not be measured here.
    pub missing: Vec<Missing>,
}

/// Findings of `vmtax exits`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExitFindings {
    /// [`crate::REPORT_SCHEMA`] of the writer.
    pub schema: u32,
    /// The version of vmtax.
    pub vmtax: String,
    /// The command line that made it.
    pub command: Vec<String>,
    /// When it began, RFC 3339.
    pub started: String,
    /// The host's CPU.
    pub cpu: String,
    /// `uname -r` of the host.
    pub kernel: String,
    /// Kind of KVM that the host has, for people; empty where it has none.
    pub kvm: String,
    /// The machines, in the order asked for.
    pub machines: Vec<MachineExits>,
    /// Method of the measurement, for people.
    pub method: String,
    /// Warnings that a reader of the figures has to know.
    pub warnings: Vec<Warning>,
    /// At most five, what gives back most first.
    pub advice: Vec<Advice>,
}

/// Activity of a vCPU while an exit lasts, by the exit's reason. Time of halted and of spinning vCPUs is no cost of exits: the
/// guest has nothing to do, or waits for another vCPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum ExitActivity {
    /// Halted until the next interrupt, by HLT: the guest is idle.
    Halted,
    /// Spinning: the guest executes PAUSE in a loop, as for a lock.
    Spinning,
    /// Handled in KVM or QEMU, for which the guest waits.
    #[default]
    Handled,
}

impl ExitActivity {
    /// The activity in exits of a reason, by KVM's name of it on Intel's and AMD's CPUs, by that of `KVM_RUN`, or by that of
    /// libtraceevent's plugin.
    pub fn from_reason(reason: &str) -> ExitActivity {
        let name = reason.to_ascii_lowercase();
        let name = name
            .strip_prefix("kvm_exit_")
            .or_else(|| name.strip_prefix("exit_"))
            .unwrap_or(&name);
        match name.strip_suffix("_instruction").unwrap_or(name) {
            // An exit of AMD's idle HLT intercept is made where no interrupt is pending; a CPU of an SEV-ES guest that does
            // not run yet is in the loop.
            // KVM executes an intercepted MWAIT as a NOP (Linux commit 87c00572ba05).
            "hlt" | "idle-halt" | "idle_hlt" | "vmgexit_ap_hlt_loop" => ExitActivity::Halted,
            "pause" => ExitActivity::Spinning,
            _ => ExitActivity::Handled,
        }
    }
}

/// Time of exits by the activity of the vCPUs meanwhile, ns; of exits whose time is known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ExitTimes {
    /// Time of halted vCPUs, ns.
    pub halted_ns: f64,
    /// Time of spinning vCPUs, ns.
    pub spinning_ns: f64,
    /// Exits handled in KVM or QEMU: their cost.
    pub handled_ns: f64,
}

impl ExitTimes {
    /// Adds the time of exits.
    pub fn add(&mut self, activity: ExitActivity, ns: f64) {
        match activity {
            ExitActivity::Halted => self.halted_ns += ns,
            ExitActivity::Spinning => self.spinning_ns += ns,
            ExitActivity::Handled => self.handled_ns += ns,
        }
    }
}

/// Number of exits with one cause, and their time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExitCount {
    /// Number of exits.
    pub count: u64,
    /// Of those, handed to QEMU; null where the trace does not say.
    pub user: Option<u64>,
    /// Exits per second.
    pub per_s: f64,
    /// Of those, with a known time.
    pub timed: u64,
    /// That time, ns.
    pub total_ns: f64,
    /// The mean of it, ns; null where none has a time.
    pub mean_ns: Option<f64>,
    /// Number of exits by vCPU, in the order of [`GuestExits::vcpus`].
    pub by_vcpu: Vec<u64>,
}

/// Exits of one reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExitReason {
    /// As KVM names it.
    pub reason: String,
    /// Activity of the vCPU meanwhile.
    #[serde(default)]
    pub activity: ExitActivity,
    /// Number of the exits, and their time.
    #[serde(flatten)]
    pub exits: ExitCount,
}

impl ExitReason {
    /// Exits of a reason, as KVM names it.
    pub fn new(reason: String, exits: ExitCount) -> ExitReason {
        ExitReason {
            activity: ExitActivity::from_reason(&reason),
            reason,
            exits,
        }
    }
}

/// Exits by one address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExitAddress {
    /// Space of the address.
    pub space: AddressSpace,
    /// The address, or the register's number.
    pub address: u64,
    /// True if it was written to.
    pub write: bool,
    /// The device, as QEMU names its region; empty where no device is there or it is not known.
    pub device: String,
    /// The register, where it is known.
    pub register: String,
    /// Number of the exits, and their time.
    #[serde(flatten)]
    pub exits: ExitCount,
}

/// One vCPU's exits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VcpuExits {
    /// Number of the vCPU, from 0.
    pub vcpu: u32,
    /// ID of the vCPU's thread on the host.
    pub tid: i32,
    /// Number of exits.
    pub count: u64,
    /// Exits per second.
    pub per_s: f64,
    /// The time of those that have one, ns; of halted and of spinning vCPUs, too.
    pub total_ns: f64,
    /// Time in the guest, ns; null where KVM does not trace each entry.
    #[serde(default)]
    pub in_guest_ns: Option<f64>,
    /// Of that time, that in which it was halted.
    #[serde(default)]
    pub halted_ns: f64,
    /// Of that time, that in which it spun.
    #[serde(default)]
    pub spinning_ns: f64,
}

/// Where the devices' names come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DevicesFrom {
    /// QEMU's own memory tree.
    MemoryTree,
    /// The places that devices have in most PCs.
    UsualPlaces,
}

/// The exits of a guest while it was sampled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestExits {
    /// Duration of the sampling, s.
    pub seconds: f64,
    /// The guest's vCPUs that made any exits.
    pub vcpus: Vec<VcpuExits>,
    /// By reason, the most frequent first. Empty where KVM's events could not be seen.
    pub reasons: Vec<ExitReason>,
    /// By address, the most frequent first; the first 100.
    pub addresses: Vec<ExitAddress>,
    /// Source of the devices' names.
    pub devices_from: DevicesFrom,
    /// From where to where an exit is timed, for people.
    pub timing: String,
    /// Events lost because there was no room for them: the counts are too low.
    pub lost: u64,
    /// KVM's own counters, by how much they grew. Empty where they could not be read.
    pub counters: BTreeMap<String, u64>,
    /// Page faults of the guest's memory, without accesses to devices; null where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_faults: Option<ExitCount>,
    /// Interrupt lines that QEMU's main loop raises as regularly as a timer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timers: Vec<TimerLine>,
    /// Known costs, the one that takes most time first.
    pub advice: Vec<Advice>,
}

impl GuestExits {
    /// Time of all exits that have one.
    pub fn times(&self) -> ExitTimes {
        let mut times = ExitTimes::default();
        self.reasons
            .iter()
            .for_each(|reason| times.add(reason.activity, reason.exits.total_ns));
        times
    }

    /// Time of all vCPUs in the guest, ns; `None` where it is not known of each.
    pub fn in_guest_ns(&self) -> Option<f64> {
        let times = self.vcpus.iter().map(|vcpu| vcpu.in_guest_ns);
        times
            .sum::<Option<f64>>()
            .filter(|_| !self.vcpus.is_empty())
    }

    /// A time as a part of the vCPUs' time, 0 to 1.
    pub fn part_of_time(&self, ns: f64) -> f64 {
        ns / 1e9 / self.seconds.max(f64::MIN_POSITIVE) / self.vcpus.len().max(1) as f64
    }
}

/// The findings of `exits --vm`: the VM exits of a VM that runs already.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VmExits {
    /// The observed VM.
    pub vm: VmFacts,
    /// VM exits of the VM.
    pub exits: GuestExits,
    /// Data that could not be observed.
    pub missing: Vec<Missing>,
}

/// A place in a guest's code where its CPUs were found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CodePlace {
    /// The guest's address of the next instruction; as JSON in hexadecimal, as numbers of it lose the kernel's last digits.
    #[serde(with = "hexadecimal")]
    pub address: u64,
    /// The privilege level: 0 is the guest's kernel, 3 its programs.
    pub level: u8,
    /// Of all looks.
    pub share: SampleShare,
    /// The instruction that was done last; empty where the code could not be read.
    pub done: String,
    /// The one that comes next; empty as well.
    pub next: String,
}

/// Where a guest's vCPUs were, whenever QEMU's monitor was asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestCode {
    /// Checks a CPU.
    pub looks: u64,
    /// Of those, at one that was halted.
    pub halted: SampleShare,
    /// Median time that QEMU took to answer, ns: the CPU was stopped for a part of that.
    pub look_ns: f64,
    /// Where the others were, the most frequent first; the first 100.
    pub places: Vec<CodePlace>,
    /// Known costs, the most frequent first.
    pub advice: Vec<Advice>,
}

/// Addresses as JSON strings in hexadecimal: "0xffffffff81000000".
mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(address: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{address:#x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text
            .strip_prefix("0x")
            .and_then(|digits| u64::from_str_radix(digits, 16).ok());
        digits.ok_or_else(|| D::Error::custom(format!("{text:?} is no address")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_halt_is_one_by_each_name_that_it_has() {
        let halted = ["HLT", "hlt", "EXIT_HLT", "KVM_EXIT_HLT", "idle-halt"];
        assert!(
            halted
                .iter()
                .all(|reason| ExitActivity::from_reason(reason) == ExitActivity::Halted)
        );
        let spinning = ["PAUSE_INSTRUCTION", "pause", "EXIT_PAUSE"];
        assert!(
            spinning
                .iter()
                .all(|reason| ExitActivity::from_reason(reason) == ExitActivity::Spinning)
        );
        let handled = [
            "EPT_VIOLATION",
            "npf",
            "msr",
            "monitor",
            "MWAIT_INSTRUCTION",
            "mwait",
            "TPAUSE",
            "unknown (0x78)",
            "exit_",
            "",
        ];
        assert!(
            handled
                .iter()
                .all(|reason| ExitActivity::from_reason(reason) == ExitActivity::Handled)
        );
    }

    #[test]
    fn addresses_of_kernels_keep_all_their_digits() {
        let place = CodePlace {
            address: 0xffff_ffff_8123_4567,
            level: 0,
            share: SampleShare::default(),
            done: String::new(),
            next: String::new(),
        };
        let json = serde_json::to_value(&place).unwrap();
        assert_eq!(json["address"], "0xffffffff81234567");
        assert_eq!(serde_json::from_value::<CodePlace>(json).unwrap(), place);
    }
}
