//! Medians with their intervals, the spread of a metric, and its overhead against native, paired round by round.
//!
//! The interval for a median holds whatever the distribution: it lies between two order statistics. Each round falls below
//! the true median with probability one half, so the number that do is binomial, and the interval from the k-th smallest
//! to the k-th largest of n misses with probability 2 P(B(n, ½) < k). Reference: H. A. David, H. N. Nagaraja, *Order
//! Statistics*, 3rd edition, section 7.1.

use std::collections::BTreeMap;
use vmtax_findings::{Comparison, Estimate, Spread, Verdict};
use vmtax_model::{Better, Interval, LatencySummary};

const WANTED: f64 = 0.95;

/// The spread of a metric's values, given in the order of rounds; `None` when there are none.
pub(crate) fn spread(values: Vec<f64>, latency: Option<LatencySummary>) -> Option<Spread> {
    let sorted = ascending(values.iter().copied());
    let (min, max) = (*sorted.first()?, *sorted.last()?);
    let median = median(&sorted);
    let half_quartiles = (quantile(&sorted, 0.75) - quantile(&sorted, 0.25)) / 2.0;
    let relative_spread = (sorted.len() >= 3 && median != 0.0).then(|| half_quartiles / median);
    Some(Spread {
        n: sorted.len() as u32,
        median,
        min,
        max,
        relative_spread,
        values,
        latency,
    })
}

/// A machine compared with native in the rounds in which both gave a value: which way is better of a figure may not be known;
/// then the ratio is the machine's over native's. `None` as for [`paired`].
pub(crate) fn overhead(
    better: Option<Better>,
    native: &BTreeMap<u32, f64>,
    machine: &BTreeMap<u32, f64>,
) -> Option<Comparison> {
    let figures = paired(native, machine)?;
    let costs = if better == Some(Better::Higher) {
        paired(machine, native)?
    } else {
        figures
    };
    let is_other = matches!(costs.verdict, Verdict::Slower | Verdict::Faster);
    let verdict = if better.is_none() && is_other {
        Verdict::Differs
    } else {
        costs.verdict
    };
    Some(Comparison {
        difference: figures.difference,
        verdict,
        ..costs
    })
}

/// A cost beside a base's, of the same rounds. `None` when no round has both, or when a zero among them leaves its ratio
/// undefined: to drop just that round would favor the side that came to a standstill.
pub fn paired(base: &BTreeMap<u32, f64>, other: &BTreeMap<u32, f64>) -> Option<Comparison> {
    let pairs: Vec<(f64, f64)> = other
        .iter()
        .filter_map(|(round, value)| Some((*base.get(round)?, *value)))
        .collect();
    let ratios: Vec<f64> = pairs.iter().map(|(base, other)| other / base).collect();
    if ratios.is_empty() || ratios.iter().any(|r| !r.is_finite() || *r <= 0.0) {
        return None;
    }
    let difference = Some(estimate(
        pairs.iter().map(|(base, other)| other - base).collect(),
    ));
    let ratio = estimate(ratios);
    let verdict = Verdict::by_interval(&ratio, 1.0);
    Some(Comparison {
        ratio,
        difference,
        rounds: pairs.len() as u32,
        p: None,
        verdict,
    })
}

/// The median of what the rounds gave, with its interval where they are enough.
pub fn estimate(values: Vec<f64>) -> Estimate {
    let sorted = ascending(values);
    Estimate {
        median: median(&sorted),
        interval: median_interval(&sorted),
    }
}

/// Returns the ratio that an estimate of its logarithm means.
pub(crate) fn exp(of_logs: Estimate) -> Estimate {
    let interval = of_logs.interval.map(|i| Interval {
        low: i.low.exp(),
        high: i.high.exp(),
        coverage: i.coverage,
    });
    Estimate {
        median: of_logs.median.exp(),
        interval,
    }
}

/// Returns the values in ascending order.
pub(crate) fn ascending(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Returns the median of values in any order; 0 when there are none.
pub(crate) fn median_of(values: impl IntoIterator<Item = f64>) -> f64 {
    median(&ascending(values))
}

/// The median of values in ascending order; 0 when there are none.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    quantile(sorted, 0.5)
}

/// The quantile of values in ascending order, interpolated linearly between neighbors (Hyndman and Fan's type 7).
pub(crate) fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let at = q * last as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

/// Returns the interval for the median of what the values, in ascending order, were drawn from; `None` when they are too few.
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
    use vmtax_model::Metric;

    fn overhead(
        metric: Metric,
        native: &BTreeMap<u32, f64>,
        machine: &BTreeMap<u32, f64>,
    ) -> Option<Comparison> {
        super::overhead(Some(metric.better()), native, machine)
    }

    fn rounds(values: &[f64]) -> BTreeMap<u32, f64> {
        (0..).zip(values.iter().copied()).collect()
    }

    #[test]
    fn spread_by_hand() {
        let s = spread(vec![40.0, 10.0, 30.0, 20.0, 50.0], None).unwrap();
        assert_eq!((s.n, s.median, s.min, s.max), (5, 30.0, 10.0, 50.0));
        assert!((s.relative_spread.unwrap() - 10.0 / 30.0).abs() < 1e-12);
        assert_eq!(s.values, [40.0, 10.0, 30.0, 20.0, 50.0]);
        assert_eq!(spread(vec![1.0, 9.0], None).unwrap().median, 5.0);
        assert_eq!(spread(vec![1.0, 9.0], None).unwrap().relative_spread, None);
        assert_eq!(spread(vec![0.0; 4], None).unwrap().relative_spread, None);
        assert_eq!(spread(vec![], None), None);
    }

    #[test]
    fn above_one_is_slower_whichever_way_the_metric_counts() {
        let six = |value: f64| {
            rounds(&[
                value,
                value * 1.01,
                value * 0.99,
                value,
                value * 1.02,
                value,
            ])
        };
        let rate = overhead(Metric::CpuEvents, &six(1000.0), &six(500.0)).unwrap();
        assert!((rate.ratio.median - 2.0).abs() < 1e-12);
        assert_eq!((rate.verdict, rate.rounds), (Verdict::Slower, 6));
        assert!(rate.difference.unwrap().median < 0.0);
        let time = overhead(Metric::MutexTime, &six(1.0), &six(2.0)).unwrap();
        assert!((time.ratio.median - 2.0).abs() < 1e-12);
        assert!(time.difference.unwrap().median > 0.0);
        assert_eq!(time.verdict, Verdict::Slower);
        assert_eq!(
            overhead(Metric::MutexTime, &six(2.0), &six(1.0))
                .unwrap()
                .verdict,
            Verdict::Faster
        );
        assert_eq!(
            overhead(Metric::CpuEvents, &six(1.0), &six(2.0))
                .unwrap()
                .verdict,
            Verdict::Faster
        );
    }

    #[test]
    fn pairs_are_of_the_same_round() {
        // The host slows down fourfold over the rounds; paired, the machine costs exactly half more in each.
        let native = rounds(&[1.0, 1.5, 2.0, 2.5, 3.0, 4.0]);
        let machine = native.iter().map(|(r, v)| (*r, v * 1.5)).collect();
        let t = overhead(Metric::SyscallGetpid, &native, &machine).unwrap();
        let i = t.ratio.interval.unwrap();
        assert_eq!(
            (t.ratio.median, i.low, i.high, t.verdict),
            (1.5, 1.5, 1.5, Verdict::Slower)
        );
        // A round that one of them lacks does not count.
        let mut fewer = native.clone();
        fewer.remove(&3);
        let t = overhead(Metric::SyscallGetpid, &fewer, &machine).unwrap();
        assert_eq!((t.rounds, t.ratio.median, t.ratio.interval), (5, 1.5, None));
        assert_eq!(t.verdict, Verdict::TooFewRounds);
    }

    #[test]
    fn a_zero_leaves_no_ratio() {
        let good = rounds(&[1.0; 6]);
        let standstill = rounds(&[1.0, 1.0, 0.0, 1.0, 1.0, 1.0]);
        assert_eq!(overhead(Metric::FileioReads, &good, &standstill), None);
        assert_eq!(overhead(Metric::FileioReads, &standstill, &good), None);
        assert_eq!(
            overhead(Metric::FileioReads, &rounds(&[0.0; 6]), &rounds(&[0.0; 6])),
            None
        );
        assert_eq!(overhead(Metric::FileioReads, &good, &BTreeMap::new()), None);
    }

    #[test]
    fn the_interval_around_one_shows_no_difference() {
        let native = rounds(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
        let machine = rounds(&[1.1, 1.2, 1.3, 1.1, 0.99, 1.2]);
        assert_eq!(
            overhead(Metric::MutexTime, &native, &machine)
                .unwrap()
                .verdict,
            Verdict::Inconclusive
        );
    }

    /// The published figures of sysbench 1.0.11: native, KVM, TCG.
    #[test]
    fn the_published_report_as_arithmetic() {
        let ratio = |metric, native: f64, machine: f64| {
            overhead(metric, &rounds(&[native]), &rounds(&[machine]))
                .unwrap()
                .ratio
                .median
        };
        let close = |got: f64, expected: f64| {
            assert!((got / expected - 1.0).abs() < 1e-4, "{got} {expected}")
        };
        close(ratio(Metric::CpuEvents, 13_401.17, 10_497.41), 1.276_617);
        close(ratio(Metric::CpuEvents, 13_401.17, 400.44), 33.466_11);
        close(ratio(Metric::ThreadsEvents, 18_822.9, 4_918.4), 3.827_037);
        close(ratio(Metric::FileioReads, 32_091.67, 898.81), 35.704_62);
        close(
            ratio(Metric::MemoryBandwidth, 12_569.23, 6_925.14),
            1.815_014,
        );
        // mutex counts the other way: its figure is a time.
        close(ratio(Metric::MutexTime, 0.0255, 0.1245), 4.882_353);
        close(ratio(Metric::MutexTime, 0.0255, 0.9866), 38.690_196);
    }

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
