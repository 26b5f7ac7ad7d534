//! Pairs of measurements of a change: each gives a ratio of costs, with the change over without.

use crate::compare::{InterimAnalyses, decide};
use crate::estimate::median_of;
use std::sync::LazyLock;
use vmtax_findings::{BeforeAfter, Comparison, Verdict};
use vmtax_model::{Better, Interval};

/// Pairs at most for one question: after 8, 11 and 15 of them it is analysed.
pub(crate) const MAX_PAIRS: u32 = 15;
/// A change that gives back less is none.
pub(crate) const MIN_EFFECT: f64 = 0.02;
/// Ratio of costs above which a change harms if each pair exceeds it: then it is reverted before any analysis.
const HARM: f64 = 1.05;
/// So many pairs that all harm are enough.
pub(crate) const HARMED_PAIRS: usize = 3;

/// Reason why a tuning ended with changes that are not decided.
pub(crate) const OUT_OF_TIME: &str =
    "time limit reached before every change had a conclusive result: increase --duration";

/// When a question is analysed: computed once, as it is asked of every candidate after each pair.
static ANALYSES: LazyLock<InterimAnalyses> = LazyLock::new(|| InterimAnalyses::new(MAX_PAIRS, 0));

/// Decision about a change after some pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The change helps.
    Helps,
    /// It does not, by its interval.
    Fails,
    /// It cost so much in each of its first pairs that it was taken back before anything was analysed.
    Harms,
    /// More pairs are not worth their time.
    Undecided,
    /// Nothing can be measured: the load has stopped, or has no such figure.
    Unmeasurable,
}

/// The pairs of a question: their log ratios in the order of time, and how many gave no figure.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PairSeries {
    pub logs: Vec<f64>,
    pub empty: usize,
}

impl PairSeries {
    /// Returns the number of pairs.
    pub fn pairs(&self) -> usize {
        self.logs.len() + self.empty
    }

    /// Returns the decision; `None` if another pair has to be measured.
    pub fn decision(&self) -> Option<Decision> {
        let n = self.logs.len();
        if self.empty >= HARMED_PAIRS && self.empty >= n {
            return Some(Decision::Unmeasurable);
        }
        if n >= HARMED_PAIRS && self.logs.iter().all(|log| *log > HARM.ln()) {
            return Some(Decision::Harms);
        }
        if !ANALYSES.at(n as u32) {
            return (self.pairs() as u32 > 2 * MAX_PAIRS).then_some(Decision::Unmeasurable);
        }
        let interval = ANALYSES.interval(&self.logs)?;
        let least = (1.0 + MIN_EFFECT).ln();
        let is_done = n as u32 >= MAX_PAIRS;
        match interval {
            Interval { high, .. } if high < 0.0 => Some(Decision::Helps),
            Interval { low, .. } if low > 0.0 => Some(Decision::Fails),
            Interval { low, high, .. } if low > -least && high < least => Some(Decision::Fails),
            // Nothing that would be worth more pairs.
            _ if is_done || self.median() > -least => Some(Decision::Undecided),
            _ => None,
        }
    }

    /// Returns true if the decision can still be that the change helps, if all remaining pairs show it.
    pub fn can_help(&self) -> bool {
        let mut logs = self.logs.clone();
        logs.resize(logs.len().max(MAX_PAIRS as usize), -1.0);
        ANALYSES
            .interval(&logs)
            .is_some_and(|interval| interval.high < 0.0)
    }

    /// With the change against without; `None` without a pair.
    pub fn comparison(&self) -> Option<Comparison> {
        let n = self.logs.len() as u32;
        if n == 0 {
            return None;
        }
        let analyses = InterimAnalyses::new(MAX_PAIRS, n);
        let (ratio, p) = (analyses.ratio(&self.logs), analyses.p(&self.logs));
        Some(Comparison {
            ratio,
            difference: None,
            rounds: n,
            p: Some(p),
            verdict: decide(&ratio, p, MIN_EFFECT),
        })
    }

    /// The median of the log ratios.
    pub fn median(&self) -> f64 {
        median_of(self.logs.iter().copied())
    }
}

/// The log ratios of pairs; `None` for a pair that gave no figure.
impl FromIterator<Option<f64>> for PairSeries {
    fn from_iter<T: IntoIterator<Item = Option<f64>>>(pairs: T) -> PairSeries {
        let mut series = PairSeries::default();
        for log in pairs {
            match log {
                Some(log) => series.logs.push(log),
                None => series.empty += 1,
            }
        }
        series
    }
}

/// Returns a figure's medians without and with changes, from its pairs; `None` without a pair.
pub(crate) fn medians(pairs: &[(f64, f64)]) -> Option<[f64; 2]> {
    let before = median_of(pairs.iter().map(|(before, _)| *before));
    let after = median_of(pairs.iter().map(|(_, after)| *after));
    (!pairs.is_empty()).then_some([before, after])
}

/// Returns a figure's [`medians`], and how they compare where no ratio is undefined; `better` is the direction in which the
/// figure is better, `None` where neither is.
pub(crate) fn before_after(
    name: &str,
    unit: &str,
    better: Option<Better>,
    pairs: &[(f64, f64)],
) -> Option<BeforeAfter> {
    let [before, after] = medians(pairs)?;
    let logs = pairs
        .iter()
        .map(|(before, after)| Some((after / before).ln()));
    let series: PairSeries = logs.collect();
    let is_whole = series.logs.iter().all(|log| log.is_finite());
    Some(BeforeAfter {
        name: name.to_owned(),
        unit: unit.to_owned(),
        before,
        after,
        comparison: series
            .comparison()
            .filter(|_| is_whole)
            .map(|of_costs| Comparison {
                verdict: directed(of_costs.verdict, better),
                ..of_costs
            }),
    })
}

/// Returns the result for a figure that is better in this direction, from the result that it has as a cost.
fn directed(of_cost: Verdict, better: Option<Better>) -> Verdict {
    match (of_cost, better) {
        (Verdict::Slower, Some(Better::Higher)) => Verdict::Faster,
        (Verdict::Faster, Some(Better::Higher)) => Verdict::Slower,
        (Verdict::Slower | Verdict::Faster, None) => Verdict::Differs,
        (unchanged, _) => unchanged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_follows_the_direction_of_its_figure() {
        let rises: Vec<(f64, f64)> = (0..11).map(|n| (41.0, 157.0 + f64::from(n))).collect();
        let falls: Vec<(f64, f64)> = rises.iter().map(|(low, high)| (*high, *low)).collect();
        let result = |pairs: &[(f64, f64)], better| {
            let row = before_after("figure", "per second", better, pairs).unwrap();
            let found = row.comparison.unwrap();
            // The ratio is always with ÷ without.
            assert_eq!(found.ratio.median > 1.0, row.after > row.before);
            found.verdict
        };
        assert_eq!(result(&rises, Some(Better::Higher)), Verdict::Faster);
        assert_eq!(result(&falls, Some(Better::Higher)), Verdict::Slower);
        assert_eq!(result(&rises, Some(Better::Lower)), Verdict::Slower);
        assert_eq!(result(&falls, Some(Better::Lower)), Verdict::Faster);
        assert_eq!(result(&rises, None), Verdict::Differs);
        assert_eq!(result(&falls, None), Verdict::Differs);
        let same = [(1.0, 1.0); 11];
        assert_eq!(result(&same, None), Verdict::Equivalent);
    }
}
