//! Colour and label of a result.

use crate::engine::Tone;
use crate::number::{NONE, range, ratio};
use crate::text::only_if;
use vmtax_findings::{Estimate, Verdict};
use vmtax_model::{Better, Unit};

/// The class that gives a picture or a tile its colour.
pub fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        Verdict::Equivalent => "same",
        Verdict::Differs | Verdict::Inconclusive | Verdict::TooFewRounds => "open",
    }
}

/// The colour of a cell.
pub fn tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Faster => Tone::Good,
        Verdict::Slower => Tone::Bad,
        Verdict::Equivalent => Tone::Plain,
        Verdict::Differs | Verdict::Inconclusive | Verdict::TooFewRounds => Tone::Soft,
    }
}

/// Returns the label of a result in a table of costs, for a metric in this unit.
pub fn label(verdict: Verdict, unit: Unit) -> &'static str {
    match verdict {
        Verdict::Slower if matches!(unit, Unit::Mebibytes | Unit::Count) => "more",
        Verdict::Faster if unit == Unit::Count => "fewer",
        Verdict::Faster if unit == Unit::Mebibytes => "less",
        Verdict::Slower => "slower",
        Verdict::Faster => "faster",
        Verdict::Differs => "differs",
        // Costs have no smallest difference that matters: they are printed as the same.
        Verdict::Equivalent => "equal",
        Verdict::Inconclusive => "inconclusive",
        Verdict::TooFewRounds => "too few rounds",
    }
}

/// Marks a paired median on the other side of ×1 than the ratio of the two medians beside it.
const OPPOSED: &str = "§";
/// A ratio nearer to 1 than this has no side in a table.
const NO_SIDE: f64 = 0.0005;

/// A cost by pairs of rounds, and the two medians that stand beside it in a table.
#[derive(Clone, Copy)]
pub struct Pair {
    /// Paired median of the costs, as a ratio.
    pub cost: f64,
    /// Median of what it is compared with.
    pub base: f64,
    /// Median of what is compared.
    pub other: f64,
    /// Direction in which a median is better; `None` where nobody knows.
    pub better: Option<Better>,
}

impl Pair {
    /// Returns the cost, marked where the two medians beside it differ the other way.
    pub fn text(self) -> String {
        let mark = only_if(self.is_opposed(), format!("{OPPOSED}\u{a0}"));
        format!("{mark}{}", ratio(self.cost))
    }

    /// Returns true if the cost and the ratio of the two medians are on different sides of ×1.
    pub fn is_opposed(self) -> bool {
        let medians = match self.better {
            Some(Better::Higher) => self.base / self.other,
            _ => self.other / self.base,
        };
        let (cost, medians) = (self.cost.ln(), medians.ln());
        cost.abs().min(medians.abs()) >= NO_SIDE
            && cost.is_finite()
            && medians.is_finite()
            && cost * medians < 0.0
    }
}

/// Returns a cost in a table, in parentheses where it is inconclusive.
pub fn in_parentheses(cost: String, verdict: Verdict) -> String {
    match verdict {
        Verdict::Inconclusive => format!("({cost})"),
        _ => cost,
    }
}

/// Returns the meaning of the mark of [`Pair::text`]; `None` for a table without it.
pub fn opposed_note(any: bool) -> Option<String> {
    any.then(|| {
        format!("{OPPOSED} The ratio of the two medians points the other way; use the paired ratio, which compares runs of the same round.")
    })
}

/// A ratio that does not follow from the two medians beside it: "×3.66 (median of paired ratios, 95 % CI 3.60–3.81)".
pub fn paired_median(of: &Estimate) -> String {
    let interval = of.interval.as_ref();
    let interval = interval.map_or(String::new(), |i| format!(", 95\u{a0}% CI {}", range(i)));
    format!("{} (median of paired ratios{interval})", ratio(of.median))
}

/// The interval of a ratio; a dash where there is none.
pub fn interval(ratio: &Estimate) -> String {
    ratio
        .interval
        .as_ref()
        .map_or_else(|| NONE.to_owned(), range)
}

/// A probability to three digits: none is 0.
pub fn p_value(p: f64) -> String {
    if p < 0.001 {
        "<0.001".to_owned()
    } else {
        format!("{p:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paired_median_against_its_two_medians_is_marked() {
        let marked_ratio = |cost, base, other, better| {
            let pair = Pair {
                cost,
                base,
                other,
                better,
            };
            pair.text()
        };
        assert_eq!(
            marked_ratio(0.939, 2150.0, 1903.0, Some(Better::Higher)),
            "§\u{a0}×0.939",
            "fewer a second, and cheaper in pairs"
        );
        assert_eq!(
            marked_ratio(1.137, 6.22, 6.00, Some(Better::Lower)),
            "§\u{a0}×1.137"
        );
        assert_eq!(
            marked_ratio(1.137, 6.00, 6.22, Some(Better::Lower)),
            "×1.137"
        );
        assert_eq!(
            marked_ratio(1.137, 6.22, 6.00, Some(Better::Higher)),
            "×1.137"
        );
        assert_eq!(
            marked_ratio(1.0001, 6.22, 6.00, Some(Better::Lower)),
            "×1.000",
            "on no side"
        );
        assert_eq!(
            marked_ratio(2.0, 0.0, 0.0, None),
            "×2.00",
            "no ratio of medians"
        );
    }
}
