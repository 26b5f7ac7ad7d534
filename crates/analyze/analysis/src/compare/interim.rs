//! Interim analyses of a comparison while it runs, without loss of what its intervals promise (a group sequential test).
//!
//! Each round says which variant cost more. Where the median ratio is 1 that is a fair coin, whatever the noise looks like,
//! so the number of rounds against one side is a random walk whose chance to leave given bounds at any of several analyses
//! is counted exactly, not approximated. The bounds are Pocock's: the same nominal level at every analysis (S. J. Pocock,
//! *Group sequential methods in the design and analysis of clinical trials*, Biometrika 64, 1977). Turned round, the
//! same walk gives intervals that hold at all analyses together (C. Jennison, B. W. Turnbull, *Repeated confidence
//! intervals for group sequential clinical trials*, Controlled Clinical Trials 5, 1984).

use crate::interval::tails;
use vmtax_model::Interval;

/// Largest probability of an error in anything that is promised.
pub const LEVEL: f64 = 0.05;
/// Before this many rounds nothing small can be found.
const FIRST: u32 = 8;
/// From one analysis to the next.
const STEP: f64 = 1.3;

/// The rounds after which a comparison is analysed, and what counts as a difference there.
#[derive(Debug, Clone, PartialEq)]
pub struct InterimAnalyses {
    rounds: Vec<u32>,
    /// The nominal level at each analysis.
    nominal: f64,
    /// Probability that any analysis shows a difference where there is none.
    error: f64,
}

impl InterimAnalyses {
    /// For a comparison of at most `most` rounds that ended after `ended`: at an analysis, or for a reason that has nothing to do
    /// with what it showed. 0 for one that has not ended.
    pub fn new(most: u32, ended: u32) -> InterimAnalyses {
        let mut rounds = schedule(most.max(ended));
        if ended > 0 && !rounds.contains(&ended) {
            // Time was over: what would have come later is not analysed.
            rounds.retain(|n| *n < ended);
            rounds.push(ended);
        }
        let mut analyses = InterimAnalyses {
            rounds,
            nominal: 0.0,
            error: 0.0,
        };
        // Only levels that some count of rounds attains differ in effect: the largest that keeps the promise.
        let mut levels: Vec<f64> = analyses
            .rounds
            .iter()
            .flat_map(|&n| tails(n))
            .filter(|p| *p <= LEVEL)
            .collect();
        levels.sort_by(f64::total_cmp);
        levels.dedup();
        let allowed = levels.partition_point(|&nominal| analyses.crossed(nominal, 0.5) <= LEVEL);
        if let Some(&nominal) = allowed.checked_sub(1).and_then(|i| levels.get(i)) {
            analyses.error = analyses.crossed(nominal, 0.5);
            analyses.nominal = nominal;
        }
        analyses
    }

    /// Returns true if a comparison is analyzed after `rounds` rounds.
    pub fn at(&self, rounds: u32) -> bool {
        self.rounds.contains(&rounds)
    }

    /// The chance that any analysis shows a difference, where a round has one side ahead with probability `ahead`.
    pub fn power(&self, ahead: f64) -> f64 {
        if self.nominal > 0.0 {
            self.crossed(self.nominal, ahead)
        } else {
            0.0
        }
    }

    /// Returns the chance, as [`InterimAnalyses::power`] does, for the analyses up to `rounds` rounds only.
    pub fn power_by(&self, rounds: u32, ahead: f64) -> f64 {
        let so_far = self
            .rounds
            .iter()
            .copied()
            .filter(|n| *n <= rounds)
            .collect();
        InterimAnalyses {
            rounds: so_far,
            ..*self
        }
        .power(ahead)
    }

    /// The chance that by chance alone any analysis shows as much as one of these did: `logs` in the order of rounds, one
    /// number each, 0 for no difference. 1 where there was no analysis yet.
    pub fn p(&self, logs: &[f64]) -> f64 {
        let strongest = self
            .rounds
            .iter()
            .filter(|&&n| n as usize <= logs.len())
            .map(|&n| {
                let so_far = &logs[..n as usize];
                let above = so_far.iter().filter(|v| **v > 0.0).count();
                let below = so_far.iter().filter(|v| **v < 0.0).count();
                // A tie speaks against either.
                tail(n, n - above.max(below) as u32)
            });
        strongest
            .min_by(f64::total_cmp)
            .map_or(1.0, |nominal| self.crossed(nominal, 0.5))
    }

    /// The chance that by chance alone any analysis shows as much as one after `rounds` of which `against` were against the side
    /// that is ahead.
    pub fn chance(&self, rounds: u32, against: u32) -> f64 {
        self.crossed(tail(rounds, against), 0.5)
    }

    /// The interval for the median of what all `values` are from, which holds at all analyses together; `None` where the
    /// values are too few. For an interim analysis.
    pub fn interval(&self, values: &[f64]) -> Option<Interval> {
        let n = values.len() as u32;
        let cut = if self.nominal > 0.0 {
            bound(n, self.nominal)?
        } else {
            return None;
        };
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted[cut as usize], sorted[(n - 1 - cut) as usize]);
        Some(Interval {
            low,
            high,
            coverage: 1.0 - self.error,
        })
    }

    /// The chance that the walk is outside its bounds at any analysis: they are those of this nominal level, and each step
    /// goes up with probability `up`.
    fn crossed(&self, nominal: f64, up: f64) -> f64 {
        // Where the walk may be, of those that were never outside: by the number of steps up.
        let mut inside = vec![1.0];
        let mut outside = 0.0;
        for round in 1..=self.rounds.last().copied().unwrap_or(0) {
            let mut next = vec![0.0; inside.len() + 1];
            for (ups, chance) in inside.iter().enumerate() {
                next[ups] += chance * (1.0 - up);
                next[ups + 1] += chance * up;
            }
            inside = next;
            if let Some(bound) = self.at(round).then(|| bound(round, nominal)).flatten() {
                for ups in 0..=bound as usize {
                    // Below half of the rounds: never the same place.
                    outside += std::mem::take(&mut inside[ups]);
                    outside += std::mem::take(&mut inside[round as usize - ups]);
                }
            }
        }
        outside
    }
}

fn schedule(most: u32) -> Vec<u32> {
    let mut rounds = Vec::new();
    let mut next = FIRST;
    while next < most {
        rounds.push(next);
        next = (f64::from(next) * STEP).ceil() as u32;
    }
    rounds.push(most);
    rounds
}

/// The chance that a fair coin shows one side at most `few` times in `n`, either side: at most 1.
fn tail(n: u32, few: u32) -> f64 {
    tails(n).nth(few as usize).unwrap_or(1.0)
}

/// The most rounds of `n` that may go against a side that is ahead at this level; `None` where it takes more rounds.
fn bound(n: u32, nominal: f64) -> Option<u32> {
    // What is attained exactly counts.
    (tails(n)
        .take_while(|p| *p <= nominal * (1.0 + 1e-12))
        .count() as u32)
        .checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rounds_are_looked_at_once_and_many_seldom() {
        assert_eq!(schedule(6), [6]);
        assert_eq!(schedule(8), [8]);
        assert_eq!(schedule(40), [8, 11, 15, 20, 26, 34, 40]);
        assert_eq!(InterimAnalyses::new(40, 23).rounds, [8, 11, 15, 20, 23]);
        assert_eq!(
            (
                InterimAnalyses::new(40, 6).rounds,
                InterimAnalyses::new(40, 20)
            ),
            (vec![6], InterimAnalyses::new(40, 0))
        );
        assert!(InterimAnalyses::new(400, 0).rounds.len() < 20);
    }

    /// All 2^n ways in which n rounds can go, each followed through the analyses.
    #[test]
    fn the_error_is_what_counting_all_ways_says() {
        for (most, ended) in [(6, 6), (8, 8), (11, 11), (15, 13), (17, 0)] {
            let analyses = InterimAnalyses::new(most, ended);
            let last = *analyses.rounds.last().unwrap();
            let wrong = (0..1_u32 << last).filter(|way| {
                analyses.rounds.iter().any(|&n| {
                    let ups = (way & ((1 << n) - 1)).count_ones();
                    bound(n, analyses.nominal).is_some_and(|b| ups.min(n - ups) <= b)
                })
            });
            let share = wrong.count() as f64 / f64::from(1_u32 << last);
            assert!(
                (analyses.error - share).abs() < 1e-12 && share <= LEVEL,
                "{most}: {share}"
            );
        }
        assert_eq!(InterimAnalyses::new(6, 6).error, 0.03125);
        assert_eq!(InterimAnalyses::new(5, 5).interval(&[1.0; 5]), None);
    }

    #[test]
    fn chance_is_exact_at_one_look() {
        // scipy.stats.binomtest(k, n).pvalue
        let logs = |below: usize, above: usize| [vec![-1.0; below], vec![1.0; above]].concat();
        let analyses = InterimAnalyses::new(8, 8);
        for (below, wanted) in [
            (0, 0.0078125),
            (1, 0.0703125),
            (2, 0.2890625),
            (3, 0.7265625),
        ] {
            assert!(
                (analyses.p(&logs(below, 8 - below)) - wanted).abs() < 1e-12,
                "{below}"
            );
        }
        // A tie is a round that shows nothing.
        assert!((analyses.p(&[0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]) - 0.0703125).abs() < 1e-12);
        assert_eq!(analyses.p(&logs(0, 7)), 1.0);
    }

    #[test]
    fn the_interval_is_between_order_statistics() {
        let values: Vec<f64> = (1..=8).map(f64::from).collect();
        let i = InterimAnalyses::new(8, 8).interval(&values).unwrap();
        assert_eq!((i.low, i.high, i.coverage), (1.0, 8.0, 1.0 - 0.0078125));
        let many: Vec<f64> = (1..=100).map(f64::from).collect();
        let i = InterimAnalyses::new(100, 100).interval(&many).unwrap();
        assert!(i.low > 33.0 && i.high < 68.0 && i.coverage < 0.96, "{i:?}");
    }

    #[test]
    fn more_rounds_show_smaller_differences() {
        let power = |most, ahead| InterimAnalyses::new(most, 0).power(ahead);
        assert!(power(10, 0.8) < power(40, 0.8) && power(40, 0.8) > 0.9);
        assert!((power(40, 0.7) - power(40, 0.3)).abs() < 1e-12);
    }
}
