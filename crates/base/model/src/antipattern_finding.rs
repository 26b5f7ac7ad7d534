//! What antipatterns of guest kernels and their fixes cost.

use crate::{Antipattern, Estimate, Machine, Warning};
use serde::{Deserialize, Serialize};

/// An antipattern or its fix, measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AntipatternForm {
    /// What one takes, ns: the median of each round's median.
    pub ns: Estimate,
    /// VM exits of one, as KVM counts them, the median of the rounds; null where nobody counts.
    pub exits: Option<f64>,
    /// How often it was stamped in all.
    pub n: u64,
}

/// An antipattern beside its fix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AntipatternRow {
    /// Which.
    pub antipattern: Antipattern,
    /// The antipattern; null where it could not be measured.
    pub before: Option<AntipatternForm>,
    /// Its fix; likewise.
    pub after: Option<AntipatternForm>,
    /// What the antipattern costs over its fix, of the same rounds.
    pub ratio: Option<Estimate>,
    /// How many VM exits the fix saves for each, of the same rounds; null where nobody counts.
    pub exits_saved: Option<Estimate>,
    /// Whether one of them ran where this host's KVM emulates the guest: the figures are the emulation's then.
    pub emulated: bool,
    /// Why one could not be measured; empty where both were.
    pub why: String,
}

/// All antipatterns on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineAntipatterns {
    /// Which machine: a micro-guest's.
    pub machine: Machine,
    /// The antipatterns, in their order.
    pub rows: Vec<AntipatternRow>,
}

/// What the workload `antipatterns` found out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AntipatternFindings {
    /// [`crate::REPORT_SCHEMA`] of the writer.
    pub schema: u32,
    /// Rounds planned.
    pub rounds_planned: u32,
    /// How the figures are made, for people.
    pub method: String,
    /// The machines, in the plan's order.
    pub machines: Vec<MachineAntipatterns>,
    /// What the reader has to know.
    pub warnings: Vec<Warning>,
}
