//! The spread of one metric on one machine, and its overhead against native, paired round by round.

use crate::interval::median_interval;
use std::collections::BTreeMap;
use vmtax_model::{Better, Comparison, Estimate, LatencySummary, Spread, Verdict};

/// The spread of a metric's values, given in the order of rounds; `None` when there are none.
pub(crate) fn spread(values: Vec<f64>, latency: Option<LatencySummary>) -> Option<Spread> {
    let sorted = ascending(values.clone());
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
    let verdict = Verdict::of(&ratio, 1.0);
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

fn ascending(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// The median of values in ascending order; 0 when there are none.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    quantile(sorted, 0.5)
}

/// The quantile of values in ascending order, interpolated linearly between neighbours (Hyndman and Fan's type 7).
pub(crate) fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let at = q * last as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
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

    /// Seed 004's figures (sysbench 1.0.11): native, KVM, TCG.
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
}
