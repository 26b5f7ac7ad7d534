//! Search for outliers among the hosts of a class.

use super::chance::{as_far, sum_at_most};
use crate::compare::holm;
use crate::overhead::{estimate, median};
use vmtax_model::{Estimate, FLEET_LEVEL, HostVerdict};

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

/// The scaled MAD of values in any order around their median, and that median.
pub fn spread(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let sorted = ascending(values);
    let middle = median(&sorted);
    let distances = ascending(sorted.iter().map(|v| (v - middle).abs()));
    (middle, 1.4826 * median(&distances))
}

/// The hosts of all classes. One is an outlier where two tests agree, each corrected for all hosts (Holm): its runs have ranks
/// among all runs of its class that chance does not give (whatever the noise), and it is further from the class's median host
/// than normally distributed hosts are; and where the difference matters. `tests`: how often this question is asked, of other
/// figures.
pub fn judge(classes: &[Vec<HostDeviations>], min_effect: f64, tests: usize) -> Vec<Judged> {
    let mut all = Vec::new();
    let (mut by_rank, mut by_distance) = (Vec::new(), Vec::new());
    for class in classes.iter().filter(|class| class.len() >= FEWEST_HOSTS) {
        let medians: Vec<f64> = class
            .iter()
            .map(|host| median(&ascending(host.runs.iter().copied())))
            .collect();
        let (middle, scale) = spread(medians.iter().copied());
        let sorted = ascending(class.iter().flat_map(|host| host.runs.iter().copied()));
        let runs = sorted.len() as f64;
        for (host, host_median) in class.iter().zip(medians) {
            let deviation = host_median - middle;
            // Ranks from either end, each of its ties the worst.
            let from = |rank: &dyn Fn(f64) -> usize| {
                host.runs
                    .iter()
                    .map(|v| rank(*v) as f64 / runs)
                    .sum::<f64>()
            };
            let low = from(&|v| sorted.partition_point(|other| *other <= v));
            let high = from(&|v| sorted.len() - sorted.partition_point(|other| *other < v));
            by_rank.push((2.0 * sum_at_most(host.runs.len(), low.min(high))).min(1.0));
            let distance = if scale > 0.0 {
                deviation.abs() / scale
            } else {
                f64::INFINITY
            };
            by_distance.push(if deviation == 0.0 {
                1.0
            } else {
                as_far(class.len(), distance)
            });
            let ratios = host.runs.iter().map(|v| (v - middle).exp()).collect();
            let ratio = estimate(ratios);
            let verdict = HostVerdict::Typical;
            all.push(Judged {
                id: host.id,
                deviation,
                ratio,
                runs: host.runs.len() as u32,
                p: 1.0,
                verdict,
            });
        }
    }
    let both: Vec<f64> = by_rank
        .iter()
        .zip(&by_distance)
        .map(|(rank, distance)| rank.max(*distance))
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

pub fn ascending(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}
