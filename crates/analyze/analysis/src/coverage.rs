//! Does the interval hold what it promises? Simulated, with noise of the kinds that measurements have. The figures in
//! `docs/statistics.md` are what these tests print: `cargo test -p vmtax-analysis coverage -- --nocapture`.

use crate::estimate::median_interval;
use crate::estimate::{median, overhead};
use std::collections::BTreeMap;
use vmtax_findings::Verdict;
use vmtax_model::Better;

/// Positive noise factors. The ratio of a round's two has the median 1 exactly, whatever the kind.
#[derive(Debug, Clone, Copy)]
enum Noise {
    /// Log-normal, 5 %: a quiet machine.
    Quiet,
    /// Log-normal, σ = 1: heavily skewed.
    Skewed,
    /// Pareto, α = 1.2: no variance.
    HeavyTailed,
    /// 2 %, but one time in eight three times as slow: another load comes and goes.
    Disturbed,
    /// The noise itself differs from round to round by a factor of a hundred.
    Uneven,
    /// Native is still; the machine's noise is Pareto over its median.
    OneSided,
}

const KINDS: [Noise; 6] = [
    Noise::Quiet,
    Noise::Skewed,
    Noise::HeavyTailed,
    Noise::Disturbed,
    Noise::Uneven,
    Noise::OneSided,
];

/// A draw of the standard normal distribution (Box and Muller).
pub(crate) fn normal(r: &mut fastrand::Rng) -> f64 {
    (-2.0 * (1.0 - r.f64()).ln()).sqrt() * (std::f64::consts::TAU * r.f64()).cos()
}

impl Noise {
    /// A round's noise for native and for the machine.
    fn pair(self, r: &mut fastrand::Rng) -> (f64, f64) {
        let spread = 0.01 * 100_f64.powf(r.f64());
        let pareto = |r: &mut fastrand::Rng| (1.0 - r.f64()).powf(-1.0 / 1.2);
        if matches!(self, Noise::OneSided) {
            return (1.0, pareto(r) / 2_f64.powf(1.0 / 1.2));
        }
        let mut one = || match self {
            Noise::Quiet => (0.05 * normal(r)).exp(),
            Noise::Skewed => normal(r).exp(),
            Noise::HeavyTailed | Noise::OneSided => pareto(r),
            Noise::Disturbed => (0.02 * normal(r)).exp() * if r.f64() < 0.125 { 3.0 } else { 1.0 },
            Noise::Uneven => (spread * normal(r)).exp(),
        };
        (one(), one())
    }
}

/// The true overhead planted in every simulation.
const PLANTED: f64 = 1.3;

fn ratios(noise: Noise, n: usize, r: &mut fastrand::Rng) -> Vec<f64> {
    let mut ratios: Vec<f64> = (0..n)
        .map(|_| {
            let (native, machine) = noise.pair(r);
            PLANTED * machine / native
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    ratios
}

/// Of values in ascending order.
type Statistic = fn(&[f64]) -> f64;

/// The usual percentile bootstrap, for comparison.
fn bootstrap(sorted: &[f64], statistic: Statistic, r: &mut fastrand::Rng) -> (f64, f64) {
    const RESAMPLES: usize = 400;
    let mut found: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let mut again: Vec<f64> = sorted
                .iter()
                .map(|_| sorted[r.usize(..sorted.len())])
                .collect();
            again.sort_unstable_by(f64::total_cmp);
            statistic(&again)
        })
        .collect();
    found.sort_unstable_by(f64::total_cmp);
    (found[RESAMPLES / 40], found[RESAMPLES - 1 - RESAMPLES / 40])
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn share(hits: usize, of: usize) -> f64 {
    hits as f64 / of as f64
}

#[test]
fn coverage_holds_for_any_noise_at_any_n() {
    const RUNS: usize = 20_000;
    // Four standard errors of a share of 95 %.
    let error = 4.0 * (0.05_f64 * 0.95 / RUNS as f64).sqrt();
    let mut r = fastrand::Rng::with_seed(1);
    for n in [6, 7, 9, 12, 20] {
        for noise in KINDS {
            let holds = |sorted: Vec<f64>| {
                median_interval(&sorted).is_some_and(|i| i.low <= PLANTED && PLANTED <= i.high)
            };
            let coverage = share(
                (0..RUNS)
                    .filter(|_| holds(ratios(noise, n, &mut r)))
                    .count(),
                RUNS,
            );
            println!("n = {n:2}  {noise:11?}  {:.1} %", coverage * 100.0);
            assert!(coverage >= 0.95 - error, "{noise:?} at {n}: {coverage}");
        }
    }
}

#[test]
fn coverage_of_a_plain_bootstrap_does_not_hold_at_six() {
    const RUNS: usize = 6_000;
    // The very bound that our interval passes, at this number of runs.
    let bound = 0.95 - 4.0 * (0.05_f64 * 0.95 / RUNS as f64).sqrt();
    let mut r = fastrand::Rng::with_seed(2);
    // The mean of the ratio of two log-normal draws with σ is exp(σ²).
    let cases: [(&str, Statistic, Noise, f64); 5] = [
        ("median", median, Noise::Quiet, PLANTED),
        ("median", median, Noise::Skewed, PLANTED),
        ("median", median, Noise::HeavyTailed, PLANTED),
        ("mean", mean, Noise::Quiet, PLANTED * 0.0025_f64.exp()),
        ("mean", mean, Noise::Skewed, PLANTED * 1_f64.exp()),
    ];
    for (name, statistic, noise, truth) in cases {
        let holds = |r: &mut fastrand::Rng| {
            let (low, high) = bootstrap(&ratios(noise, 6, r), statistic, r);
            low <= truth && truth <= high
        };
        let coverage = share((0..RUNS).filter(|_| holds(&mut r)).count(), RUNS);
        println!(
            "bootstrap of the {name}  n = 6  {noise:11?}  {:.1} %",
            coverage * 100.0
        );
        assert!(
            coverage < bound,
            "{name}, {noise:?}: {coverage}: the bootstrap would do after all"
        );
    }
}

/// The interval of Hodges and Lehmann (Wilcoxon's signed ranks) on the logarithms, at 20 rounds: between the 53rd
/// smallest and the 53rd largest of the 210 means of two. Tighter than ours, and right only where noise is symmetric.
#[test]
fn coverage_of_signed_ranks_needs_symmetry() {
    const RUNS: usize = 2_000;
    let bound = 0.95 - 4.0 * (0.05_f64 * 0.95 / RUNS as f64).sqrt();
    let mut r = fastrand::Rng::with_seed(5);
    let mut coverage = |noise: Noise| {
        let holds = |r: &mut fastrand::Rng| {
            let logs: Vec<f64> = ratios(noise, 20, r).iter().map(|x| x.ln()).collect();
            let mut means: Vec<f64> = (0..20)
                .flat_map(|i| (i..20).map(move |j| (i, j)))
                .map(|(i, j)| (logs[i] + logs[j]) / 2.0)
                .collect();
            means.sort_unstable_by(f64::total_cmp);
            means[52] <= PLANTED.ln() && PLANTED.ln() <= means[means.len() - 53]
        };
        let coverage = share((0..RUNS).filter(|_| holds(&mut r)).count(), RUNS);
        println!(
            "signed ranks  n = 20  {noise:11?}  {:.1} %",
            coverage * 100.0
        );
        coverage
    };
    assert!(coverage(Noise::Skewed) >= bound);
    assert!(coverage(Noise::OneSided) < bound);
}

fn verdict(native: &[f64], machine: &[f64]) -> Verdict {
    let rounds = |v: &[f64]| (0..).zip(v.iter().copied()).collect::<BTreeMap<u32, f64>>();
    overhead(Some(Better::Lower), &rounds(native), &rounds(machine))
        .unwrap()
        .verdict
}

#[test]
fn coverage_means_that_a_machine_against_itself_is_seldom_called_different() {
    const RUNS: usize = 20_000;
    let error = 4.0 * (0.05_f64 * 0.95 / RUNS as f64).sqrt();
    let mut r = fastrand::Rng::with_seed(3);
    for n in [6, 9, 12, 20] {
        for noise in KINDS {
            let called = |r: &mut fastrand::Rng| {
                let (native, machine): (Vec<f64>, Vec<f64>) = (0..n).map(|_| noise.pair(r)).unzip();
                verdict(&native, &machine) != Verdict::Inconclusive
            };
            let false_calls = share((0..RUNS).filter(|_| called(&mut r)).count(), RUNS);
            println!("A/A  n = {n:2}  {noise:11?}  {:.1} %", false_calls * 100.0);
            assert!(
                false_calls <= 0.05 + error,
                "{noise:?} at {n}: {false_calls}"
            );
        }
    }
}

/// A machine against itself on a host that gets 10 % slower over the run: interleaved as vmtax does, and one machine
/// after the other.
#[test]
fn coverage_under_drift_needs_interleaved_rounds() {
    const RUNS: usize = 5_000;
    let mut r = fastrand::Rng::with_seed(4);
    for n in [6_usize, 12] {
        let (mut interleaved, mut in_blocks) = (0, 0);
        for _ in 0..RUNS {
            let mut time_at = |position: usize| {
                (1.0 + 0.1 * position as f64 / (2 * n - 1) as f64) * (0.02 * normal(&mut r)).exp()
            };
            let times: Vec<f64> = (0..2 * n).map(&mut time_at).collect();
            in_blocks += usize::from(verdict(&times[..n], &times[n..]) != Verdict::Inconclusive);
            let (native, machine): (Vec<f64>, Vec<f64>) = times
                .chunks(2)
                .map(|turns| {
                    if r.bool() {
                        (turns[0], turns[1])
                    } else {
                        (turns[1], turns[0])
                    }
                })
                .unzip();
            interleaved += usize::from(verdict(&native, &machine) != Verdict::Inconclusive);
        }
        let (interleaved, in_blocks) = (share(interleaved, RUNS), share(in_blocks, RUNS));
        println!(
            "drift  n = {n:2}  interleaved {:.1} %  in blocks {:.1} %",
            interleaved * 100.0,
            in_blocks * 100.0
        );
        assert!(
            interleaved <= 0.05 + 4.0 * (0.05_f64 * 0.95 / RUNS as f64).sqrt(),
            "{interleaved}"
        );
        assert!(in_blocks > 0.5, "{in_blocks}");
    }
}
