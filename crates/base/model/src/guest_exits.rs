//! VM exits of a running guest, and their costs.

use crate::{Advice, ExitActivity, ExitTimes, Missing, VmFacts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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

/// Address space that an exit accessed.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum AddressSpace {
    /// I/O port space.
    Port,
    /// Device memory (MMIO).
    Memory,
    /// Model-specific registers of a vCPU.
    Msr,
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
