//! Verdicts on a metric, from its interval and p; and permutation tests: how often a random order of the sides would have given
//! as large a difference.

use super::interim::LEVEL;
use fastrand::Rng;
use vmtax_findings::{Estimate, Verdict};

/// Each p corrected for how many there are, so that any is at most 5 % by chance in at most 5 % of families: S. Holm, *A
/// simple sequentially rejective multiple test procedure*, Scandinavian Journal of Statistics 6 (1979).
pub fn holm(all: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|a, b| all[*a].total_cmp(&all[*b]));
    let mut adjusted = vec![1.0; all.len()];
    let mut largest: f64 = 0.0;
    for (rank, &i) in order.iter().enumerate() {
        largest = largest.max(all[i] * (all.len() - rank) as f64).min(1.0);
        adjusted[i] = largest;
    }
    adjusted
}

/// From the interval of a ratio of costs and its corrected p. A difference that is shown is reported even where it lies within
/// what matters.
pub fn decide(ratio: &Estimate, p: f64, min_effect: f64) -> Verdict {
    let within = |min_effect| {
        ratio
            .interval
            .is_some_and(|i| i.low >= 1.0 / (1.0 + min_effect) && i.high <= 1.0 + min_effect)
    };
    match Verdict::by_interval(ratio, 1.0) {
        Verdict::TooFewRounds => Verdict::TooFewRounds,
        shown @ (Verdict::Slower | Verdict::Faster) if p <= LEVEL => shown,
        _ if within(min_effect) => Verdict::Equivalent,
        _ => Verdict::Inconclusive,
    }
}

/// Up to so many ways all are counted, beyond them as many are drawn.
const COUNTED: usize = 1 << 14;
const DRAWN: usize = 9999;

/// Of pairs: where the sides are alike, each difference of two logarithms could as well have the other sign. The statistic is
/// the mean. Two-sided. With fewer than 15 pairs exact, and then what `scipy.stats.permutation_test` gives with
/// `permutation_type='samples'`.
pub fn of_pairs(logs: &[f64]) -> f64 {
    let sum: f64 = logs.iter().sum();
    if logs.len() < COUNTED.ilog2() as usize + 1 {
        let ways = 1_usize << logs.len();
        let flipped = |way: usize| {
            logs.iter()
                .enumerate()
                .map(|(i, v)| if way >> i & 1 == 1 { -v } else { *v })
                .sum()
        };
        let as_far = (0..ways).filter(|&way| at_least(flipped(way), sum)).count();
        return as_far as f64 / ways as f64;
    }
    let mut random = Rng::with_seed(logs.len() as u64);
    drawn(sum, || {
        logs.iter()
            .map(|v| if random.bool() { -v } else { *v })
            .sum()
    })
}

/// Of two groups: where they are alike, each value could as well be in the other. The statistic is the difference of
/// the means. Two-sided; drawn at random.
pub fn of_groups(base: &[f64], other: &[f64]) -> f64 {
    if base.is_empty() || other.is_empty() {
        return 1.0;
    }
    let mut all: Vec<f64> = base.iter().chain(other).copied().collect();
    let difference = |all: &[f64]| {
        let (base, other) = all.split_at(base.len());
        other.iter().sum::<f64>() / other.len() as f64
            - base.iter().sum::<f64>() / base.len() as f64
    };
    let found = difference(&all);
    let mut random = Rng::with_seed(all.len() as u64);
    drawn(found, || {
        random.shuffle(&mut all);
        difference(&all)
    })
}

fn drawn(found: f64, mut draw: impl FnMut() -> f64) -> f64 {
    // The order that was there is one of them.
    let as_far = 1 + (0..DRAWN).filter(|_| at_least(draw(), found)).count();
    as_far as f64 / (DRAWN + 1) as f64
}

/// Sums that differ in rounding alone are the same.
fn at_least(drawn: f64, found: f64) -> bool {
    drawn.abs() >= found.abs() * (1.0 - 1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::Interval;

    #[test]
    fn holm_agrees_with_statsmodels() {
        // statsmodels.stats.multitest.multipletests(p, method='holm')[1]
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (got, wanted) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((got - wanted).abs() < 1e-12, "{adjusted:?}");
        }
        assert_eq!(holm(&[]), [0.0; 0]);
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
    }

    #[test]
    fn what_may_be_said() {
        let said = |low: f64, high: f64, p: f64| {
            let interval = Some(Interval {
                low,
                high,
                coverage: 0.95,
            });
            decide(
                &Estimate {
                    median: (low * high).sqrt(),
                    interval,
                },
                p,
                0.02,
            )
        };
        assert_eq!(said(1.03, 1.05, 0.01), Verdict::Slower);
        assert_eq!(said(0.90, 0.97, 0.01), Verdict::Faster);
        assert_eq!(said(0.99, 1.01, 0.5), Verdict::Equivalent);
        assert_eq!(said(0.97, 1.01, 0.5), Verdict::Inconclusive);
        // One of many metrics by chance.
        assert_eq!(said(1.03, 1.05, 0.2), Verdict::Inconclusive);
        assert_eq!(
            decide(
                &Estimate {
                    median: 1.1,
                    interval: None
                },
                1.0,
                0.02
            ),
            Verdict::TooFewRounds
        );
    }

    #[test]
    fn agrees_with_scipy() {
        // SciPy 1.17.1: scipy.stats.permutation_test((d,), lambda x: abs(x.mean()), permutation_type='samples',
        // n_resamples=inf, alternative='greater').pvalue
        let p = |logs: &[f64]| of_pairs(logs);
        assert_eq!(p(&[0.1, 0.2, 0.3, 0.1, 0.2, 0.15, 0.25, 0.05]), 2.0 / 256.0);
        assert_eq!(p(&[0.0, 0.0]), 1.0);
        assert_eq!(p(&[]), 1.0);
        assert_eq!(p(&[1.0, -1.0, 1.0]), 1.0);
        assert_eq!(p(&[1.0, 2.0, -0.5]), 0.5);
        let fourteen: Vec<f64> = (0..14)
            .map(|i| 0.02 + 0.05 * ((i * 5 % 14) as f64 - 6.5) / 6.5)
            .collect();
        assert!(
            (p(&fourteen) - 0.038_696_289_062_5).abs() < 1e-12,
            "{}",
            p(&fourteen)
        );
    }

    #[test]
    fn draws_agree_with_counting() {
        let logs: Vec<f64> = (0..14)
            .map(|i| 0.02 + 0.05 * ((i * 5 % 14) as f64 - 6.5) / 6.5)
            .collect();
        let exact = of_pairs(&logs);
        let mut random = Rng::with_seed(3);
        let by_lot = drawn(logs.iter().sum(), || {
            logs.iter()
                .map(|v| if random.bool() { -v } else { *v })
                .sum()
        });
        assert!((exact - by_lot).abs() < 0.015, "{exact} {by_lot}");
    }

    #[test]
    fn groups_that_are_apart_are_seldom_so_by_chance() {
        // Of the 252 ways to part ten values in fives two are as far apart.
        let p = of_groups(&[1.0, 2.0, 3.0, 4.0, 5.0], &[11.0, 12.0, 13.0, 14.0, 15.0]);
        assert!((p - 2.0 / 252.0).abs() < 0.004, "{p}");
        assert!(of_groups(&[1.0, 2.0, 3.0], &[1.1, 2.1, 2.9]) > 0.8);
        assert_eq!(of_groups(&[], &[1.0]), 1.0);
    }
}
