//! Costs of the antipatterns of guest kernels and of their fixes.

use crate::{Antipattern, Estimate, Machine, Warning};
use serde::{Deserialize, Serialize};

/// An antipattern or its fix, measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AntipatternForm {
    /// Time of one operation, ns: the median of each round's median.
    pub ns: Estimate,
    /// VM exits of one, as KVM counts them, the median of the rounds; null where nobody counts.
    pub exits: Option<f64>,
    /// Number of times that it was stamped, in all rounds.
    pub n: u64,
}

/// An antipattern beside its fix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AntipatternRow {
    /// Antipattern that the row is about.
    pub antipattern: Antipattern,
    /// The antipattern; null where it could not be measured.
    pub before: Option<AntipatternForm>,
    /// Fix of the antipattern; null where it could not be measured.
    pub after: Option<AntipatternForm>,
    /// Cost of the antipattern over that of its fix, of the same rounds.
    pub ratio: Option<Estimate>,
    /// VM exits that the fix saves per operation, of the same rounds; null where nobody counts.
    pub exits_saved: Option<Estimate>,
    /// True if one of them ran where this host's KVM emulates the guest: the figures are then the emulation's.
    pub emulated: bool,
    /// Why one could not be measured; empty where both were.
    pub why: String,
}

/// All antipatterns on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineAntipatterns {
    /// Machine that was measured: a micro-guest's.
    pub machine: Machine,
    /// The antipatterns, in their order.
    pub rows: Vec<AntipatternRow>,
}

/// Findings of the workload `antipatterns`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AntipatternFindings {
    /// [`crate::REPORT_SCHEMA`] of the writer.
    pub schema: u32,
    /// Number of planned rounds.
    pub rounds_planned: u32,
    /// Method of computing the figures, for people.
    pub method: String,
    /// The machines, in the plan's order.
    pub machines: Vec<MachineAntipatterns>,
    /// Warnings that the reader has to know.
    pub warnings: Vec<Warning>,
}
