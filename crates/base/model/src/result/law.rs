//! Growth of a cost with a size.

use serde::{Deserialize, Serialize};

/// Growth law of a cost with a size n, up to a constant part and a factor.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
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
