//! Interim analyses of a comparison while it runs, without loss of what its intervals promise (a group sequential test).
//!
//! Each round says which variant cost more. Where the median ratio is 1 that is a fair coin, whatever the noise looks like,
//! so the number of rounds against one side is a random walk whose chance to leave given bounds at any of several analyses
//! is counted exactly, not approximated. The bounds are Pocock's: the same nominal level at every analysis (S. J. Pocock,
//! *Group sequential methods in the design and analysis of clinical trials*, Biometrika 64, 1977). Turned round, the
//! same walk gives intervals that hold at all analyses together (C. Jennison, B. W. Turnbull, *Repeated confidence
//! intervals for group sequential clinical trials*, Controlled Clinical Trials 5, 1984).
//!
//! From the noise so far it is estimated after how many rounds a difference is found.

use super::unpaired::normal;
use crate::estimate::{ascending, exp, median_of, quantile, tails};
use vmtax_findings::Estimate;
use vmtax_model::Interval;

/// Largest probability of an error in anything that is promised.
pub const LEVEL: f64 = 0.05;
/// Before this many rounds nothing small can be found.
const FIRST: u32 = 8;
/// From one analysis to the next.
const STEP: f64 = 1.3;
/// Share of comparisons in which the number of rounds that is reported as enough finds the difference.
pub const POWER: f64 = 0.8;
/// The noise of few rounds may look smaller than it is: it is taken to be larger by this over their square root. Found by
/// trying, so that what is predicted after the first interim analysis is enough ([`POWER`]) whatever the noise (`simulated.rs`).
const CAUTION: f64 = 0.7;
/// From fewer rounds nothing is estimated.
pub const MIN_ROUNDS: u32 = 4;
/// More rounds than this are not estimated.
pub const MAX_ROUNDS: u32 = 2000;
/// Most rounds that are estimated for a metric which lacks only the correction for the number of metrics.
const MAX_SIGN_ROUNDS: u32 = 200;

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
        if self.nominal <= 0.0 {
            return None;
        }
        let cut = bound(n, self.nominal)?;
        let sorted = ascending(values.iter().copied());
        Some(Interval {
            low: sorted[cut as usize],
            high: sorted[(n - 1 - cut) as usize],
            coverage: 1.0 - self.error,
        })
    }

    /// Returns the median ratio that these logarithms show, with its [`InterimAnalyses::interval`].
    pub fn ratio(&self, logs: &[f64]) -> Estimate {
        exp(Estimate {
            median: median_of(logs.iter().copied()),
            interval: self.interval(logs),
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

/// Rounds in which a difference of `size` (of logarithms) is found in [`POWER`] of comparisons of at most `most` rounds,
/// or of as many as it then takes; `None` where even [`MAX_ROUNDS`] would not do, or there are fewer than [`MIN_ROUNDS`] `logs`.
pub fn rounds_needed(logs: &[f64], size: f64, most: u32) -> Option<u32> {
    rounds_until(
        ahead(logs, size / (1.0 + CAUTION / (logs.len() as f64).sqrt()))?,
        most,
    )
}

/// Rounds after which a difference is significant with its p times `correction`, if one side stays ahead in as large a part of
/// the rounds as in `ahead` of `rounds` (by Laplace's estimate); `None` where even [`MAX_SIGN_ROUNDS`] would not do.
pub fn rounds_for_correction(ahead: u32, rounds: u32, correction: f64) -> Option<u32> {
    let behind = f64::from(rounds - ahead + 1) / f64::from(rounds + 2);
    let mut next = rounds + 1;
    while next <= MAX_SIGN_ROUNDS {
        let against = (f64::from(next) * behind).round() as u32;
        if InterimAnalyses::new(next, next).chance(next, against) * correction <= LEVEL {
            return Some(next);
        }
        next += 1 + next / 8;
    }
    None
}

/// Predicts from a figure of an earlier run: the noise of a round's ratio as a share, taken from the interval of the
/// median of `n` rounds as that of normal noise, and the number of rounds that show a difference of `size` in it.
pub fn from_the_past(
    figure: &Estimate,
    n: u32,
    size: f64,
    most: u32,
) -> Option<(f64, Option<u32>)> {
    let interval = figure.interval.filter(|_| figure.median > 0.0)?;
    let of_median = (interval.high - interval.low) / figure.median / (2.0 * 1.96);
    // A median scatters by 1.25 times what a mean does; two sides make a ratio.
    let noise = of_median * f64::from(n).sqrt() / 1.2533 * std::f64::consts::SQRT_2;
    Some((noise, rounds_until(ahead_in_noise(size, noise), most)))
}

/// The rounds in which a side that is ahead in a round with this chance is found to be.
fn rounds_until(ahead: f64, most: u32) -> Option<u32> {
    let mut rounds = 8;
    while InterimAnalyses::new(most.max(rounds), rounds).power_by(rounds, ahead) < POWER {
        if rounds >= MAX_ROUNDS {
            return None;
        }
        rounds = (rounds + rounds / 4).min(MAX_ROUNDS);
    }
    Some(rounds)
}

/// The chance that a round shows the sign of a difference of this size, in normal noise as wide as what the rounds
/// scattered round their median; of which the farthest eighth does not count, since it changes no sign.
fn ahead(logs: &[f64], size: f64) -> Option<f64> {
    if logs.len() < MIN_ROUNDS as usize {
        return None;
    }
    let middle = median_of(logs.iter().copied());
    let mut away = ascending(logs.iter().map(|v| (v - middle).abs()));
    away.truncate(logs.len() - logs.len() / 8);
    // Of a normal distribution the mean of these, and of so few round their own median, is 0.61 of its deviation.
    let width = away.iter().sum::<f64>() / away.len() as f64 / 0.61;
    Some(ahead_in_noise(size, width))
}

/// The chance that normal noise with this deviation leaves the sign of a difference of this size.
fn ahead_in_noise(size: f64, deviation: f64) -> f64 {
    if deviation > 0.0 {
        normal(size / deviation)
    } else {
        1.0
    }
}

/// The noise of a round as a share of the figure: a normal distribution with this deviation has the same quartiles.
pub fn deviation(values: &[f64]) -> f64 {
    let sorted = ascending(values.iter().copied());
    (quantile(&sorted, 0.75) - quantile(&sorted, 0.25)) / 1.349
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

    #[test]
    fn what_only_the_correction_leaves_open_takes_few_rounds_more() {
        let rounds = rounds_for_correction(6, 6, 3.0).unwrap();
        assert!((8..=16).contains(&rounds), "{rounds}");
        assert!(rounds_for_correction(6, 6, 12.0).unwrap() > rounds);
        assert!(
            rounds_for_correction(14, 20, 3.0).unwrap() > 30,
            "a smaller part of the rounds"
        );
        assert_eq!(rounds_for_correction(3, 6, 1.0), None, "no side is ahead");
    }

    #[test]
    fn less_noise_and_larger_differences_take_fewer_rounds() {
        let noise: Vec<f64> = (0..12)
            .map(|i| 0.03 * ((i * 5 % 12) as f64 - 5.5) / 5.5)
            .collect();
        let rounds = |scale: f64, size: f64| {
            let logs: Vec<f64> = noise.iter().map(|v| v * scale).collect();
            rounds_needed(&logs, size, 40)
        };
        assert_eq!(rounds(1.0, 0.3), Some(8));
        let (coarse, fine) = (rounds(1.0, 0.03).unwrap(), rounds(1.0, 0.01).unwrap());
        assert!(
            coarse < fine && (8..30).contains(&coarse) && fine > 40,
            "{coarse} {fine}"
        );
        assert_eq!(rounds(3.0, 0.03), rounds(1.0, 0.01));
        assert_eq!(rounds(100.0, 0.01), None);
        assert_eq!(rounds(0.0, 0.01), Some(8));
        assert_eq!(rounds_needed(&[0.1; 3], 0.01, 40), None);
        // Six rounds with a deviation of 3 %: the median's interval is that of a normal distribution.
        let half = 1.96 * 1.2533 * 0.03 / 6_f64.sqrt();
        let interval = Interval {
            low: 1.0 - half,
            high: 1.0 + half,
            coverage: 0.95,
        };
        let figure = |interval| Estimate {
            median: 1.0,
            interval,
        };
        let (noise, rounds) = from_the_past(&figure(Some(interval)), 6, 0.03, 40).unwrap();
        assert!((noise - 0.03 * 2_f64.sqrt()).abs() < 1e-9, "{noise}");
        assert!((20..60).contains(&rounds.unwrap()), "{rounds:?}");
        assert_eq!(from_the_past(&figure(None), 6, 0.03, 40), None);
    }
}
