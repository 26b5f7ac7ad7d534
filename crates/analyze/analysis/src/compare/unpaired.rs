//! Two groups of values that were not measured in the same rounds.
//!
//! The shift between them is Hodges and Lehmann's (*Estimates of location based on rank tests*, Annals of Mathematical
//! Statistics 34, 1963): the median of all differences. Its interval is where Mann and Whitney's test does not reject
//! (D. F. Bauer, *Constructing confidence sets using rank statistics*, JASA 67, 1972), from the exact distribution.

use crate::estimate::ascending;
use vmtax_findings::Estimate;
use vmtax_model::Interval;

/// Above so many values in a group the normal distribution is as good.
const EXACT: usize = 60;

/// Returns the shift from `base` to `other`, with an interval that misses with probability `miss` at most; `None` if
/// one of them is empty.
pub fn shift(base: &[f64], other: &[f64], miss: f64) -> Option<Estimate> {
    let differences = Differences::new(base, other);
    let pairs = base.len() * other.len();
    if pairs == 0 {
        return None;
    }
    let below = Distribution::new(base.len(), other.len());
    // The most differences that may be cut off at each end.
    let (mut cut, mut too_many) = (0, pairs / 2);
    while cut < too_many {
        let middle = usize::midpoint(cut, too_many);
        if 2.0 * below.at_most(middle) <= miss {
            cut = middle + 1
        } else {
            too_many = middle
        }
    }
    let interval = cut.checked_sub(1).map(|last| Interval {
        low: differences.at(cut - 1),
        high: differences.at(pairs - cut),
        coverage: 1.0 - 2.0 * below.at_most(last),
    });
    let median = f64::midpoint(differences.at((pairs - 1) / 2), differences.at(pairs / 2));
    Some(Estimate { median, interval })
}

/// All differences between the values of two groups, in ascending order, without being written down: of two groups of 10,000
/// they are a hundred million.
struct Differences {
    base: Vec<f64>,
    other: Vec<f64>,
}

impl Differences {
    fn new(base: &[f64], other: &[f64]) -> Differences {
        Differences {
            base: ascending(base.iter().copied()),
            other: ascending(other.iter().copied()),
        }
    }

    /// The difference at this place, from 0: the least that so many others are not above. Found by halving the 2^64 floating-point
    /// numbers.
    fn at(&self, place: usize) -> f64 {
        let (mut low, mut high) = (u64::MIN, u64::MAX);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.at_most(ordered(middle)) > place {
                high = middle
            } else {
                low = middle + 1
            }
        }
        ordered(low)
    }

    fn at_most(&self, limit: f64) -> usize {
        let mut from = self.base.len();
        let mut count = 0;
        // The larger the other, the fewer of the base are so near below it.
        for o in &self.other {
            while from > 0
                && (o - self.base[self.base.len() - from])
                    .total_cmp(&limit)
                    .is_gt()
            {
                from -= 1;
            }
            count += from;
        }
        count
    }
}

/// The floating-point number at this place in the order of all.
fn ordered(place: u64) -> f64 {
    const SIGN: u64 = 1 << 63;
    f64::from_bits(if place & SIGN == 0 {
        !place
    } else {
        place ^ SIGN
    })
}

/// Mann and Whitney's U where both groups are from the same distribution.
struct Distribution {
    /// The chance of each U, where it was counted.
    chances: Vec<f64>,
    mean: f64,
    deviation: f64,
}

impl Distribution {
    fn new(m: usize, n: usize) -> Distribution {
        let (a, b) = (m as f64, n as f64);
        let chances = if m.max(n) <= EXACT {
            counted(m, n)
        } else {
            Vec::new()
        };
        Distribution {
            chances,
            mean: a * b / 2.0,
            deviation: (a * b * (a + b + 1.0) / 12.0).sqrt(),
        }
    }

    fn at_most(&self, u: usize) -> f64 {
        if self.chances.is_empty() {
            return normal((u as f64 + 0.5 - self.mean) / self.deviation);
        }
        self.chances.iter().take(u + 1).sum()
    }
}

/// The chance of each U, by the recurrence over which group the largest value is in.
fn counted(m: usize, n: usize) -> Vec<f64> {
    // ways[j][u] for groups of i and j.
    let mut ways: Vec<Vec<f64>> = vec![vec![1.0]; n + 1];
    for i in 1..=m {
        let mut next: Vec<Vec<f64>> = vec![vec![1.0]];
        for j in 1..=n {
            let share = i as f64 / (i + j) as f64;
            let mut sum = vec![0.0; i * j + 1];
            // The largest in the first group is above all j of the second.
            for (u, chance) in ways[j].iter().enumerate() {
                sum[u + j] += share * chance;
            }
            for (u, chance) in next[j - 1].iter().enumerate() {
                sum[u] += (1.0 - share) * chance;
            }
            next.push(sum);
        }
        ways = next;
    }
    ways.pop().unwrap_or_default()
}

/// The standard normal distribution (Abramowitz and Stegun 26.2.17; off by less than 1e-7).
pub fn normal(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let series = [
        0.319_381_530,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    let sum = series.iter().rev().fold(0.0, |sum, c| (sum + c) * t);
    let above = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt() * sum;
    if z >= 0.0 { 1.0 - above } else { above }
}

/// Mann and Whitney's test, two-sided: how often groups that are alike are as far apart. Ties count for neither side.
pub fn p(base: &[f64], other: &[f64]) -> f64 {
    let above = other
        .iter()
        .flat_map(|o| base.iter().map(move |b| o.total_cmp(b)));
    let (mut more, mut less) = (0, 0);
    for order in above {
        more += usize::from(order.is_gt());
        less += usize::from(order.is_lt());
    }
    let pairs = base.len() * other.len();
    let few = pairs - more.max(less);
    (2.0 * Distribution::new(base.len(), other.len()).at_most(few)).min(1.0)
}

/// Returns the probability that a value of `other` is larger than one of `base`, ties counted half: Vargha and
/// Delaney's A.
pub fn superiority(base: &[f64], other: &[f64]) -> f64 {
    let pair_score = |o: &f64, b: &f64| {
        if o > b {
            1.0
        } else if o == b {
            0.5
        } else {
            0.0
        }
    };
    let sum: f64 = other
        .iter()
        .flat_map(|o| base.iter().map(move |b| pair_score(o, b)))
        .sum();
    sum / (base.len() * other.len()).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_is_that_of_all_orders() {
        // scipy.stats.mannwhitneyu(..., method='exact') of 4 and 4 values: p / 2 at U = 0, 1, 2 of 70 orders.
        let d = Distribution::new(4, 4);
        for (u, ways) in [
            (0, 1.0),
            (1, 2.0),
            (2, 4.0),
            (3, 7.0),
            (4, 12.0),
            (16, 70.0),
        ] {
            assert!((d.at_most(u) - ways / 70.0).abs() < 1e-12, "{u}");
        }
        assert!((counted(7, 3).iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let (exact, about) = (Distribution::new(60, 60), Distribution::new(61, 60));
        assert!((exact.at_most(1400) - about.at_most(1423)).abs() < 0.002);
        assert!(
            (normal(1.96) - 0.975_002_1).abs() < 1e-6 && (normal(-1.0) - 0.158_655_3).abs() < 1e-6
        );
    }

    #[test]
    fn differences_are_those_of_all_pairs() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut values = |n: usize| {
            (0..n)
                .map(|_| random.i32(-9..9).into())
                .collect::<Vec<f64>>()
        };
        for (m, n) in [(1, 1), (1, 7), (5, 4), (12, 30)] {
            let (base, other) = (values(m), values(n));
            let mut all: Vec<f64> = other
                .iter()
                .flat_map(|o| base.iter().map(move |b| o - b))
                .collect();
            all.sort_by(f64::total_cmp);
            let differences = Differences::new(&base, &other);
            assert_eq!(
                (0..all.len())
                    .map(|place| differences.at(place))
                    .collect::<Vec<_>>(),
                all
            );
        }
    }

    #[test]
    fn shift_by_hand() {
        let s = shift(&[1.0, 2.0, 3.0, 4.0, 5.0], &[2.5, 3.5, 4.5, 5.5, 6.5], 0.05).unwrap();
        assert_eq!(s.median, 1.5);
        // Tables: for 5 and 5 values U of at most 2 is rejected, so the third difference from either end bounds it.
        let i = s.interval.unwrap();
        assert_eq!((i.low, i.high), (-1.5, 4.5));
        assert!(
            (i.coverage - (1.0 - 2.0 * 4.0 / 252.0)).abs() < 1e-12,
            "{}",
            i.coverage
        );
        assert_eq!(shift(&[1.0], &[2.0], 0.05).unwrap().interval, None);
        assert_eq!(shift(&[], &[2.0], 0.05), None);
        // scipy.stats.mannwhitneyu([1, 2, 3, 4, 5], [2.5, 3.5, 4.5, 5.5, 6.5], method='exact').pvalue
        assert!(
            (p(&[1.0, 2.0, 3.0, 4.0, 5.0], &[2.5, 3.5, 4.5, 5.5, 6.5]) - 56.0 / 252.0).abs()
                < 1e-12
        );
        assert_eq!(superiority(&[1.0, 2.0], &[2.0, 3.0]), 0.875);
    }
}
