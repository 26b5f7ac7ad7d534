//! Cost of one VM exit of each kind, as the micro-guest stamps it.

use crate::{Advice, Machine, Missing, Summary, Warning};
use serde::{Deserialize, Serialize};

/// The end of the name of an operation that ran in the micro-guest's kernel mode.
pub const KERNEL_MODE: &str = ", kernel mode";
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
