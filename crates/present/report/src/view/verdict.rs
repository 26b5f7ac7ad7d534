//! How a verdict looks and what it is called.

use crate::engine::Tone;
use crate::number::{NONE, range};
use vmtax_model::{Estimate, Verdict};

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

/// What it says in a table of costs.
pub fn label(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Slower => "slower",
        Verdict::Faster => "faster",
        Verdict::Differs => "differs",
        Verdict::Equivalent => "equivalent",
        Verdict::Inconclusive => "inconclusive",
        Verdict::TooFewRounds => "too few rounds",
    }
}

/// The interval of a ratio; a dash where there is none.
pub fn interval(ratio: &Estimate) -> String {
    ratio.interval.as_ref().map_or_else(|| NONE.to_owned(), range)
}
