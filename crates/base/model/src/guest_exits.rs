//! Which VM exits a running guest makes, and what they cost.

use crate::{Advice, ExitActivity, ExitTimes, Missing, VmFacts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How often something was the reason of an exit, and what that took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExitCount {
    /// How often.
    pub count: u64,
    /// Of those, handed to QEMU.
    pub user: u64,
    /// A second.
    pub per_s: f64,
    /// Of those, with a known time.
    pub timed: u64,
    /// That time, ns.
    pub total_ns: f64,
    /// The mean of it, ns; null where none has a time.
    pub mean_ns: Option<f64>,
    /// How often by vCPU, in the order of [`GuestExits::vcpus`].
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
    /// How many, and what they took.
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

/// What an address is in.
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
    /// I/O ports.
    Port,
    /// Device memory.
    Memory,
    /// Model-specific registers.
    Msr,
}

/// Exits by one address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExitAddress {
    /// In what.
    pub space: AddressSpace,
    /// The address, or the register's number.
    pub address: u64,
    /// Whether it was written to.
    pub write: bool,
    /// The device, as QEMU names its region; empty where no device is there or it is not known.
    pub device: String,
    /// The register, where it is known.
    pub register: String,
    /// How many, and what they took.
    #[serde(flatten)]
    pub exits: ExitCount,
}

/// One vCPU's exits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VcpuExits {
    /// Which, from 0.
    pub vcpu: u32,
    /// Its thread on the host.
    pub tid: i32,
    /// How many.
    pub count: u64,
    /// A second.
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
    /// How long, s.
    pub seconds: f64,
    /// Its vCPUs that made any.
    pub vcpus: Vec<VcpuExits>,
    /// By reason, the most frequent first. Empty where KVM's events could not be seen.
    pub reasons: Vec<ExitReason>,
    /// By address, the most frequent first; the first 100.
    pub addresses: Vec<ExitAddress>,
    /// What names the devices.
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
    /// The VM.
    pub vm: VmFacts,
    /// Its exits.
    pub exits: GuestExits,
    /// What could not be observed.
    pub missing: Vec<Missing>,
}
