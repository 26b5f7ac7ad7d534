//! Whether a cost grows with a size, by which law, and what one more item costs.

use crate::{Estimate, Machine, Metric, Warning};
use serde::{Deserialize, Serialize};

/// How a cost grows with a size n, up to a constant part and a factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Law {
    /// No growth is shown.
    Constant,
    /// With the logarithm of n.
    Logarithmic,
    /// With n.
    Linear,
    /// With n times its logarithm.
    Linearithmic,
    /// With the square of n.
    Quadratic,
}

impl Law {
    /// The laws by which a cost grows, the slowest first.
    pub const GROWING: [Law; 4] = [Law::Logarithmic, Law::Linear, Law::Linearithmic, Law::Quadratic];

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

    /// What [`Growth::one_more`] adds to the size: one item, or for the logarithm as many as there are.
    pub const fn step(self) -> &'static str {
        match self {
            Law::Constant | Law::Linear => "one more",
            Law::Logarithmic => "twice as many",
            Law::Linearithmic | Law::Quadratic => "one more at the top",
        }
    }

    /// How much the growing part gains by that step, at size `n`.
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
    /// Nanoseconds.
    pub ns: f64,
}

/// The cost at one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RungCost {
    /// The size.
    pub size: u64,
    /// Of each round.
    pub rounds: Vec<RoundCost>,
    /// Median over the rounds, nanoseconds; `None` when no round gave a value.
    pub ns: Option<Estimate>,
}

/// The fitted law at one size.
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
    /// The law; `None` where fewer than three rungs or two rounds have values.
    pub law: Option<Law>,
    /// Laws that the rounds do not tell apart from it.
    pub or: Vec<Law>,
    /// How often chance alone would show as much growth: the permutation test's p.
    pub p: f64,
    /// Cost at the top rung over cost at the bottom rung, of the same round.
    pub change: Option<Estimate>,
    /// What [`Law::step`] costs, nanoseconds; of O(1) what is left for one more item.
    pub one_more: Option<Estimate>,
    /// How far the law misses a rung's median at most, as a share of it.
    pub misfit: Option<f64>,
    /// By size.
    pub rungs: Vec<RungCost>,
    /// The law over the ladder; empty without one.
    pub curve: Vec<CurvePoint>,
}

/// A rung that gave no value anywhere on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingRung {
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
    /// [`crate::SCHEMA`] of the writer.
    pub schema: u32,
    /// What grew.
    pub option: String,
    /// Rounds planned.
    pub rounds_planned: u32,
    /// Rounds that are whole: every rung on every machine, but for those that a machine refused.
    pub rounds_complete: u32,
    /// One for each metric, machine and variant that gave values.
    pub growths: Vec<Growth>,
    /// Rungs without a value.
    pub missing: Vec<MissingRung>,
    /// How it was found, for people.
    pub method: String,
    /// What the reader has to know.
    pub warnings: Vec<Warning>,
}
