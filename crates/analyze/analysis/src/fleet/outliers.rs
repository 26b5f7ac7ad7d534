//! Search for outliers among the hosts of a class, and the probabilities that chance alone gives certain ranks, or a certain
//! distance from the others.

use crate::compare::{holm, normal};
use crate::estimate::{ascending, estimate, median, median_of};
use vmtax_findings::{Estimate, FLEET_LEVEL, HostVerdict};

/// Fewer hosts are not compared: of four the MAD says nothing.
pub const FEWEST_HOSTS: usize = 5;

/// A host of a class, and what its runs deviate from what is typical of the class: ln of the ratio of costs.
pub struct HostDeviations {
    pub id: usize,
    pub runs: Vec<f64>,
}

/// The verdict on a host.
pub struct Judged {
    pub id: usize,
    /// ln of the ratio to the class's median host.
    pub deviation: f64,
    pub ratio: Estimate,
    pub runs: u32,
    /// Corrected for all hosts.
    pub p: f64,
    pub verdict: HostVerdict,
}

/// Returns the median of values in any order, and their scaled MAD around it.
pub fn spread(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let sorted = ascending(values);
    let middle = median(&sorted);
    (
        middle,
        1.4826 * median_of(sorted.iter().map(|v| (v - middle).abs())),
    )
}

/// The hosts of all classes. One is an outlier where two tests agree, each corrected for all hosts (Holm): its runs have ranks
/// among all runs of its class that chance does not give (whatever the noise), and it is further from the class's median host
/// than normally distributed hosts are; and where the difference matters. `tests`: how often this question is asked, of other
/// figures.
pub fn judge(classes: &[Vec<HostDeviations>], min_effect: f64, tests: usize) -> Vec<Judged> {
    let mut all = Vec::new();
    let (mut by_rank, mut by_distance) = (Vec::new(), Vec::new());
    for class in classes.iter().filter(|class| class.len() >= FEWEST_HOSTS) {
        let medians = class
            .iter()
            .map(|host| median_of(host.runs.iter().copied()));
        let medians: Vec<f64> = medians.collect();
        let (middle, scale) = spread(medians.iter().copied());
        let sorted = ascending(class.iter().flat_map(|host| host.runs.iter().copied()));
        for (host, host_median) in class.iter().zip(medians) {
            let deviation = host_median - middle;
            by_rank.push(rank_chance(&host.runs, &sorted));
            by_distance.push(distance_chance(class.len(), deviation, scale));
            all.push(Judged {
                id: host.id,
                deviation,
                ratio: estimate(host.runs.iter().map(|v| (v - middle).exp()).collect()),
                runs: host.runs.len() as u32,
                p: 1.0,
                verdict: HostVerdict::Typical,
            });
        }
    }
    let ranks = by_rank.iter().zip(&by_distance);
    let both: Vec<f64> = ranks
        .map(|(rank, distance)| f64::max(*rank, *distance))
        .collect();
    let of_all = |p: f64| (p * tests as f64).min(1.0);
    for ((host, p), distance) in all.iter_mut().zip(holm(&both)).zip(holm(&by_distance)) {
        host.p = of_all(p);
        host.verdict = match host.deviation {
            d if d.abs() < min_effect.ln_1p() || of_all(distance) > FLEET_LEVEL => {
                HostVerdict::Typical
            }
            _ if host.p > FLEET_LEVEL => HostVerdict::TooFewRuns,
            d if d > 0.0 => HostVerdict::Slower,
            _ => HostVerdict::Faster,
        };
    }
    all
}

/// Returns the probability that one of `hosts` normally distributed ones deviates as much; `scale` is their scaled MAD.
fn distance_chance(hosts: usize, deviation: f64, scale: f64) -> f64 {
    let distance = if scale > 0.0 {
        deviation.abs() / scale
    } else {
        f64::INFINITY
    };
    if deviation == 0.0 {
        1.0
    } else {
        as_far(hosts, distance)
    }
}

/// Returns the probability that chance alone ranks runs so far up or down among all runs of the class, which are `sorted`; each
/// of its ties is the worst.
fn rank_chance(runs: &[f64], sorted: &[f64]) -> f64 {
    let count = sorted.len() as f64;
    let from_end = |rank: &dyn Fn(f64) -> usize| {
        let ranks = runs.iter().map(|v| rank(*v) as f64 / count);
        ranks.sum::<f64>()
    };
    let low = from_end(&|v| sorted.partition_point(|other| *other <= v));
    let high = from_end(&|v| sorted.len() - sorted.partition_point(|other| *other < v));
    (2.0 * sum_at_most(runs.len(), low.min(high))).min(1.0)
}

/// Above so many draws the normal distribution is as good.
const EXACT: usize = 20;

/// Returns the probability that the sum of `n` independent draws from 0 to 1 is at most `sum`: Irwin and Hall's
/// distribution. For ranks, each divided by the number of ranks, it is an upper bound: they are a little larger, and
/// no two are equal.
pub fn sum_at_most(n: usize, sum: f64) -> f64 {
    if sum <= 0.0 || sum >= n as f64 {
        return f64::from(u8::from(sum > 0.0));
    }
    if n > EXACT {
        // Its tails are lighter than those of the normal distribution.
        return normal((sum - n as f64 / 2.0) / (n as f64 / 12.0).sqrt());
    }
    // Σ (-1)^k C(n, k) (x - k)^n / n!
    let mut binomial = 1.0;
    let mut total = 0.0;
    for k in 0..=sum.floor() as usize {
        let power = (1..=n)
            .map(|i| (sum - k as f64) / i as f64)
            .product::<f64>();
        total += if k % 2 == 0 {
            binomial * power
        } else {
            -binomial * power
        };
        binomial *= (n - k) as f64 / (k + 1) as f64;
    }
    total.clamp(0.0, 1.0)
}

/// Returns the probability that one of `n` normal values is at least `distance` scaled MADs from the median of all, on
/// either side. The MAD of few values is uncertain: its relative variance is 1.36 / n, as that of a standard deviation
/// with n / 2.72 degrees of freedom, so that the distance has Student's t distribution with as many (P. J. Rousseeuw,
/// C. Croux, *Alternatives to the median absolute deviation*, JASA 88, 1993, for the variance).
pub fn as_far(n: usize, distance: f64) -> f64 {
    let n = n as f64;
    // The median is uncertain, too.
    student(
        distance / (1.0 + std::f64::consts::FRAC_PI_2 / n).sqrt(),
        n / 2.72,
    )
}

/// Student's t distribution: how often a value is at least so far from 0, either side.
fn student(t: f64, freedom: f64) -> f64 {
    if t.is_infinite() {
        return 0.0;
    }
    beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// The regularized incomplete beta function, as a continued fraction (NIST Digital Library of Mathematical Functions, 8.17.22,
/// by Lentz's method).
fn beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // Only for smaller x it converges fast.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta(1.0 - x, b, a);
    }
    const TINY: f64 = 1e-300;
    let nonzero = |v: f64| if v.abs() < TINY { TINY } else { v };
    let term = |i: usize| {
        let m = (i / 2) as f64;
        match i {
            0 => 1.0,
            i if i % 2 == 0 => m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
            _ => -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
        }
    };
    let (mut fraction, mut c, mut d) = (TINY, TINY, 0.0);
    for i in 0..500 {
        d = 1.0 / nonzero(1.0 + term(i) * d);
        c = nonzero(1.0 + term(i) / c);
        fraction *= c * d;
        if i > 0 && (c * d - 1.0).abs() < 1e-12 {
            break;
        }
    }
    let front = a * x.ln() + b * (1.0 - x).ln() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b);
    (front.exp() / a * fraction).clamp(0.0, 1.0)
}

/// ln Γ(x) for x above 0: Stirling's series (Abramowitz and Stegun 6.1.41), moved to where it is exact.
fn ln_gamma(mut x: f64) -> f64 {
    let mut shift = 0.0;
    while x < 10.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let series = 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)) + 1.0 / (1260.0 * x.powi(5));
    shift + (x - 0.5) * x.ln() - x + std::f64::consts::TAU.ln() / 2.0 + series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_draws_by_hand_and_in_the_limit() {
        assert_eq!(sum_at_most(1, 0.25), 0.25);
        assert!((sum_at_most(2, 0.5) - 0.125).abs() < 1e-15);
        assert!((sum_at_most(2, 1.5) - 0.875).abs() < 1e-15);
        assert!((sum_at_most(3, 1.0) - 1.0 / 6.0).abs() < 1e-15);
        assert!((sum_at_most(20, 10.0) - 0.5).abs() < 1e-9);
        assert_eq!((sum_at_most(4, 4.0), sum_at_most(4, -1.0)), (1.0, 0.0));
        // The normal approximation gives no smaller chance in the tail.
        let about = normal((5.0 - 10.0) / (20.0_f64 / 12.0).sqrt());
        assert!(
            sum_at_most(20, 5.0) < about && about < 3.0 * sum_at_most(20, 5.0),
            "{} {about}",
            sum_at_most(20, 5.0)
        );
    }

    #[test]
    fn ranks_are_no_rarer_than_it_says() {
        // All ways in which 3 of 12 ranks can be drawn: the bound is above the share of each sum.
        let n = 12_u32;
        let mut sums = Vec::new();
        for a in 1..=n {
            for b in a + 1..=n {
                sums.extend((b + 1..=n).map(|c| a + b + c));
            }
        }
        for most in 6..=15 {
            let share = sums.iter().filter(|sum| **sum <= most).count() as f64 / sums.len() as f64;
            let bound = sum_at_most(3, f64::from(most) / f64::from(n));
            assert!(bound >= share, "{most}: {bound} {share}");
        }
    }

    #[test]
    fn student_agrees_with_scipy() {
        // 2 * scipy.stats.t.sf(t, freedom)
        for (t, freedom, wanted) in [
            (2.0, 10.0, 0.073_388_034_770_740_36),
            (1.0, 1.0, 0.5),
            (5.0, 3.5, 0.010_515_37),
            (12.706_2, 1.0, 0.05),
        ] {
            let got = student(t, freedom);
            assert!((got / wanted - 1.0).abs() < 2e-2, "{t} {freedom}: {got}");
        }
        assert!((student(2.0, 10.0) - 0.073_388_034_770_740_36).abs() < 1e-9);
        assert!((student(4.0, 1e6) - 6.334e-5).abs() < 1e-7);
        assert_eq!((student(f64::INFINITY, 3.0), student(0.0, 3.0)), (0.0, 1.0));
        assert!((ln_gamma(0.5) - std::f64::consts::PI.sqrt().ln()).abs() < 1e-9);
        assert!((ln_gamma(7.0) - 720.0_f64.ln()).abs() < 1e-9);
    }
}
