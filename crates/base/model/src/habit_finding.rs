//! What habits of guest kernels and their cures cost.

use crate::{Estimate, Habit, Machine, Warning};
use serde::{Deserialize, Serialize};

/// A habit or its cure, measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HabitForm {
    /// What one takes, ns: the median of each round's median.
    pub ns: Estimate,
    /// VM exits of one, as KVM counts them, the median of the rounds; null where nobody counts.
    pub exits: Option<f64>,
    /// How often it was stamped in all.
    pub n: u64,
}

/// A habit beside its cure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HabitRow {
    /// Which.
    pub habit: Habit,
    /// The habit; null where it could not be measured.
    pub before: Option<HabitForm>,
    /// Its cure; likewise.
    pub after: Option<HabitForm>,
    /// What the habit costs over its cure, of the same rounds.
    pub ratio: Option<Estimate>,
    /// Whether one of them ran where this host's KVM emulates the guest: the figures are the emulation's then.
    pub emulated: bool,
    /// Why one could not be measured; empty where both were.
    pub why: String,
}

/// All habits on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineHabits {
    /// Which machine: a micro-guest's.
    pub machine: Machine,
    /// The habits, in their order.
    pub rows: Vec<HabitRow>,
}

/// What the workload `habits` found out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HabitFindings {
    /// [`crate::SCHEMA`] of the writer.
    pub schema: u32,
    /// Rounds planned.
    pub rounds_planned: u32,
    /// How the figures are made, for people.
    pub method: String,
    /// The machines, in the plan's order.
    pub machines: Vec<MachineHabits>,
    /// What the reader has to know.
    pub warnings: Vec<Warning>,
}
