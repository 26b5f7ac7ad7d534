//! Growth of a cost with a size: if it grows, by which growth law, and the cost of one more item.

use crate::Estimate;
use serde::{Deserialize, Serialize};
use vmtax_model::{Interval, Machine, Metric, Warning};

/// Growth law of a cost with a size n, up to a constant part and a factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::VariantArray)]
pub enum Law {
    /// No growth is shown.
    Constant,
    /// With the logarithm of n.
    Logarithmic,
    /// In proportion to n.
    Linear,
    /// With n times its logarithm.
    Linearithmic,
    /// With the square of n.
    Quadratic,
}

impl Law {
    /// The growth laws by which a cost grows, the slowest first.
    pub const GROWING: [Law; 4] = [
        Law::Logarithmic,
        Law::Linear,
        Law::Linearithmic,
        Law::Quadratic,
    ];

    /// The largest size over the smallest from which on growth laws are distinguished.
    pub const MIN_SPAN: f64 = 10.0;

    /// As people write it: `O(n log n)`.
    pub const fn notation(self) -> &'static str {
        match self {
            Law::Constant => "O(1)",
            Law::Logarithmic => "O(log n)",
            Law::Linear => "O(n)",
            Law::Linearithmic => "O(n log n)",
            Law::Quadratic => "O(n²)",
        }
    }

    /// The growing part at size `n`, without its factor; for [`Law::Constant`] n itself, the growth that was looked for.
    pub fn at(self, n: f64) -> f64 {
        match self {
            Law::Logarithmic => n.ln(),
            Law::Constant | Law::Linear => n,
            Law::Linearithmic => n * n.ln(),
            Law::Quadratic => n * n,
        }
    }

    /// The exponent of the power of n that grows as much from one size to a larger one.
    pub fn exponent(self, from: f64, to: f64) -> f64 {
        match self {
            Law::Constant => 0.0,
            // log 1 is 0.
            _ => (self.at(to) / self.at(from.max(2.0))).ln() / (to / from.max(2.0)).ln(),
        }
    }

    /// Returns the step that [`crate::Growth::one_more`] adds to the size, in words: one item, or for the logarithm as
    /// many as there are.
    pub const fn step(self) -> &'static str {
        match self {
            Law::Constant | Law::Linear => "one more",
            Law::Logarithmic => "twice as many",
            Law::Linearithmic | Law::Quadratic => "one more at the top",
        }
    }

    /// Returns the growth of the growing part by that step, at size `n`.
    pub fn gain(self, n: f64) -> f64 {
        match self {
            Law::Logarithmic => std::f64::consts::LN_2,
            Law::Constant | Law::Linear => 1.0,
            Law::Linearithmic => n.ln() + 1.0,
            Law::Quadratic => 2.0 * n,
        }
    }
}

/// The cost in one round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RoundCost {
    /// The round, from 0.
    pub round: u32,
    /// Cost in nanoseconds.
    pub ns: f64,
}

/// The cost at one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepCost {
    /// Size at this step.
    pub size: u64,
    /// Of each round.
    pub rounds: Vec<RoundCost>,
    /// Median over the rounds, nanoseconds; `None` when no round gave a value.
    pub ns: Option<Estimate>,
}

/// The fitted growth law at one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Size at this point of the curve.
    pub size: f64,
    /// Cost in nanoseconds.
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

/// Growth of one metric's cost on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// Of which metric; of a rate the cost is the time for one of what it counts.
    pub metric: Metric,
    /// Machine that it was measured on.
    pub machine: Machine,
    /// In which of the plan's variants, by name.
    pub variant: String,
    /// True if growth is shown.
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
    /// Probability that chance alone would show as much growth: the permutation test's p.
    pub p: f64,
    /// Cost at the top step over cost at the bottom step, of the same round.
    pub change: Option<Estimate>,
    /// Cost of [`Law::step`], nanoseconds; of O(1) and without a growth law one more item on average.
    pub one_more: Option<Estimate>,
    /// Largest distance of the best growth law from the interval of a step's median, as a share of the growth law's
    /// cost there.
    pub misfit: Option<f64>,
    /// Costs by size.
    pub steps: Vec<StepCost>,
    /// The growth law over the range; empty without one.
    pub curve: Vec<CurvePoint>,
}

/// A step that gave no value anywhere on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingStep {
    /// Machine that gave no value.
    pub machine: Machine,
    /// In which variant.
    pub variant: String,
    /// Size that gave no value.
    pub size: u64,
    /// Reason why it gave no value.
    pub reason: String,
}

/// Findings of `scale`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GrowthFindings {
    /// [`crate::REPORT_SCHEMA`] of the writer.
    pub schema: u32,
    /// Option whose value grew, as in [`vmtax_model::SizeRange::option`].
    pub option: String,
    /// Number of planned rounds.
    pub rounds_planned: u32,
    /// Rounds that are whole: every step on every machine, except those that a machine refused.
    pub rounds_complete: u32,
    /// One for each metric, machine and variant that gave values.
    pub growths: Vec<Growth>,
    /// Steps without a value.
    pub missing: Vec<MissingStep>,
    /// Method of the analysis, for people.
    pub method: String,
    /// Warnings that the reader has to know.
    pub warnings: Vec<Warning>,
}
