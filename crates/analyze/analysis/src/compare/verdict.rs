//! Results for a metric, from its interval and p.

use super::interim::LEVEL;
use vmtax_model::{Estimate, Verdict};

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
    match Verdict::of(ratio, 1.0) {
        Verdict::TooFewRounds => Verdict::TooFewRounds,
        shown @ (Verdict::Slower | Verdict::Faster) if p <= LEVEL => shown,
        _ if within(min_effect) => Verdict::Equivalent,
        _ => Verdict::Inconclusive,
    }
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
}
