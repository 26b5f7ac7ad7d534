//! Permutation tests: how often the order of the sides, drawn at random, would have given as large a difference.

use fastrand::Rng;

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
