//! The interval for a median that holds whatever the distribution: between two order statistics.
//!
//! Each round falls below the true median with probability one half, so the number that do is binomial, and the
//! interval from the k-th smallest to the k-th largest of n misses with probability 2 P(B(n, ½) < k). Reference: H. A.
//! David, H. N. Nagaraja, *Order Statistics*, 3rd edition, section 7.1.

use vmtax_model::Interval;

const WANTED: f64 = 0.95;

/// The interval for the median of what the values, in ascending order, were drawn from; `None` when they are too few.
pub(crate) fn median_interval(sorted: &[f64]) -> Option<Interval> {
    interval_at(sorted, WANTED)
}

/// Returns the interval for the median with another coverage than 95 %; `None` when the values are too few.
pub(crate) fn interval_at(sorted: &[f64], wanted: f64) -> Option<Interval> {
    let (k, coverage) = rank(sorted.len(), wanted)?;
    Some(Interval {
        low: sorted[k - 1],
        high: sorted[sorted.len() - k],
        coverage,
    })
}

/// The largest k for which the k-th smallest to the k-th largest of n hold the median so much of the time at least, and
/// how often they do.
fn rank(n: usize, wanted: f64) -> Option<(usize, f64)> {
    let coverages = (1..=n / 2)
        .zip(tails(n as u32))
        .map(|(k, missed)| (k, 1.0 - missed));
    coverages
        .take_while(|(_, coverage)| *coverage >= wanted)
        .last()
}

/// The chances that a fair coin shows one side at most 0, 1, ... times in `n`, either side: up to below half of `n`.
pub(crate) fn tails(n: u32) -> impl Iterator<Item = f64> {
    // ln of C(n, i) / 2^n: the terms themselves leave f64's range at n = 1075.
    let mut ln_term = -f64::from(n) * std::f64::consts::LN_2;
    let mut sum = 0.0;
    (0..n.div_ceil(2)).map(move |i| {
        sum += ln_term.exp();
        ln_term += (f64::from(n - i) / f64::from(i + 1)).ln();
        (2.0 * sum).min(1.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By counting: of the 2^n ways in which n values can fall below or above the median, those with at least k on
    /// either side.
    fn counted(n: u32, k: u32) -> f64 {
        let holds = (0..1_u32 << n)
            .filter(|way| way.count_ones() >= k && n - way.count_ones() >= k)
            .count();
        holds as f64 / f64::from(1_u32 << n)
    }

    #[test]
    fn coverage_is_exact_and_the_narrowest_that_is_enough() {
        for n in 1..=20 {
            match rank(n as usize, WANTED) {
                None => assert!(
                    n < vmtax_model::FEWEST_ROUNDS && counted(n, 1) < WANTED,
                    "{n}"
                ),
                Some((k, coverage)) => {
                    assert!(
                        (coverage - counted(n, k as u32)).abs() < 1e-12,
                        "{n}: {coverage}"
                    );
                    assert!(
                        coverage >= WANTED && counted(n, k as u32 + 1) < WANTED,
                        "{n}"
                    );
                }
            }
        }
    }

    #[test]
    fn known_values() {
        // Tables of the sign test.
        let percent = |n| rank(n, WANTED).map(|(k, c)| (k, (c * 1e4).round() / 1e2));
        assert_eq!(percent(5), None);
        assert_eq!(percent(6), Some((1, 96.88)));
        assert_eq!(percent(9), Some((2, 96.09)));
        assert_eq!(percent(12), Some((3, 96.14)));
        assert_eq!(percent(20), Some((6, 95.86)));
        // The normal approximation at large n: k near n/2 - 0.98 sqrt(n).
        let (k, coverage) = rank(10_000, WANTED).unwrap();
        assert_eq!(k, 4902);
        assert!((0.95..0.952).contains(&coverage), "{coverage}");
    }

    #[test]
    fn six_values_give_their_range() {
        let i = median_interval(&[1.0, 2.0, 3.0, 4.0, 5.0, 60.0]).unwrap();
        assert_eq!((i.low, i.high, i.coverage), (1.0, 60.0, 0.96875));
        assert_eq!(median_interval(&[1.0; 5]), None);
        assert_eq!(median_interval(&[]), None);
    }
}
