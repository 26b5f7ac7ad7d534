//! Whether a cost grows with a size, by which growth law, and what one more item costs.

use crate::{Estimate, Interval, Law, Machine, Metric, Warning};
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

/// Why no growth law is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoLaw {
    /// Below six rounds no step has an interval.
    TooFewRounds,
    /// Fewer than three steps have values.
    TooFewSteps,
    /// The largest size is less than [`Law::MIN_SPAN`] times the smallest.
    SizesTooClose,
    /// The costs leave the curve of every growth law: one item costs more from some size on, as where a cache is
    /// exceeded.
    CostSteps,
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
    /// Whether growth is shown.
    pub grows: bool,
    /// The growth law that fits best of those that the intervals allow, O(1) where no growth is shown; `None` for
    /// [`Growth::no_law`]'s reason.
    pub law: Option<Law>,
    /// The other growth laws that the intervals allow: with `law` they have no gap in the order of growth laws.
    pub or: Vec<Law>,
    /// Why there is no growth law.
    pub no_law: Option<NoLaw>,
    /// The exponents of the size by which the cost beyond its constant part may grow; `None` where no growth is shown,
    /// and below six rounds.
    pub exponent: Option<Interval>,
    /// The variant, measured in the same rounds with another QEMU, whose cost is the constant part.
    pub constant_from: Option<String>,
    /// How often chance alone would show as much growth: the permutation test's p.
    pub p: f64,
    /// Cost at the top step over cost at the bottom step, of the same round.
    pub change: Option<Estimate>,
    /// What [`Law::step`] costs, nanoseconds; of O(1) and without a growth law one more item on average.
    pub one_more: Option<Estimate>,
    /// How far the best growth law leaves the interval of a step's median at most, as a share of it.
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
