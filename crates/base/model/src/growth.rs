//! Whether a cost grows with a size, by which growth law, and what one more item costs.

use crate::{Estimate, Law, Machine, Metric, Warning};
use serde::{Deserialize, Serialize};

/// The cost in one round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RoundCost {
    /// The round, from 0.
    pub round: u32,
    /// Nanoseconds.
    pub ns: f64,
}

/// The cost at one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepCost {
    /// The size.
    pub size: u64,
    /// Of each round.
    pub rounds: Vec<RoundCost>,
    /// Median over the rounds, nanoseconds; `None` when no round gave a value.
    pub ns: Option<Estimate>,
}

/// The fitted growth law at one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// The size.
    pub size: f64,
    /// Nanoseconds.
    pub ns: Estimate,
}

/// How one metric's cost on one machine grows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// Of which metric; of a rate the cost is the time for one of what it counts.
    pub metric: Metric,
    /// Where.
    pub machine: Machine,
    /// In which of the plan's variants, by name.
    pub variant: String,
    /// The growth law; `None` where fewer than three steps or two rounds have values.
    pub law: Option<Law>,
    /// Growth growth laws that the rounds do not distinguish from it.
    pub or: Vec<Law>,
    /// How often chance alone would show as much growth: the permutation test's p.
    pub p: f64,
    /// Cost at the top step over cost at the bottom step, of the same round.
    pub change: Option<Estimate>,
    /// What [`Law::step`] costs, nanoseconds; of O(1) what is left for one more item.
    pub one_more: Option<Estimate>,
    /// How far the growth law misses a step's median at most, as a share of it.
    pub misfit: Option<f64>,
    /// By size.
    pub steps: Vec<StepCost>,
    /// The growth law over the range; empty without one.
    pub curve: Vec<CurvePoint>,
}

/// A step that gave no value anywhere on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingStep {
    /// Where.
    pub machine: Machine,
    /// In which variant.
    pub variant: String,
    /// Which.
    pub size: u64,
    /// Why.
    pub reason: String,
}

/// What `scale` found out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GrowthFindings {
    /// [`crate::REPORT_SCHEMA`] of the writer.
    pub schema: u32,
    /// What grew.
    pub option: String,
    /// Rounds planned.
    pub rounds_planned: u32,
    /// Rounds that are whole: every step on every machine, except those that a machine refused.
    pub rounds_complete: u32,
    /// One for each metric, machine and variant that gave values.
    pub growths: Vec<Growth>,
    /// Steps without a value.
    pub missing: Vec<MissingStep>,
    /// How it was found, for people.
    pub method: String,
    /// What the reader has to know.
    pub warnings: Vec<Warning>,
}
