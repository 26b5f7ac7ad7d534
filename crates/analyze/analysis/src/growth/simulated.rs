//! How often does it err? Simulated, with noise of the kinds that measurements have. The figures in
//! `docs/statistics.md` are what these tests print: `cargo test -p vmtax-analysis simulated -- --nocapture`.

use super::points::Points;
use super::{Grown, grown};
use crate::coverage::normal;
use vmtax_model::Law;

/// Factors on the costs of one round, in the order in which its steps are measured.
#[derive(Debug, Clone, Copy)]
enum Noise {
    /// Log-normal, 5 %: a quiet machine.
    Quiet,
    /// Pareto, α = 1.2: no variance.
    HeavyTailed,
    /// 3 %, and the host gets slower all the while: 20 % within a round, 10 % from round to round.
    Drift,
    /// A first-order autoregression, 0.9 from trial to trial, 8 %.
    Autocorrelated,
    /// 2 %, half of the trials a third slower: a CPU has two states.
    Bimodal,
    /// What comes first in a round is up to three times as slow: caches, clocks and files are cold.
    WarmUp,
}

const KINDS: [Noise; 6] =
    [Noise::Quiet, Noise::HeavyTailed, Noise::Drift, Noise::Autocorrelated, Noise::Bimodal, Noise::WarmUp];

impl Noise {
    fn factors(self, round: usize, n: usize, r: &mut fastrand::Rng) -> Vec<f64> {
        let mut state = normal(r);
        let mut one = |i: usize| match self {
            Noise::Quiet => (0.05 * normal(r)).exp(),
            Noise::HeavyTailed => (1.0 - r.f64()).powf(-1.0 / 1.2),
            Noise::Drift => (0.03 * normal(r)).exp() * (1.0 + 0.2 * i as f64 / n as f64) * (1.0 + 0.1 * round as f64),
            Noise::Autocorrelated => {
                state = 0.9 * state + (1.0 - 0.81_f64).sqrt() * normal(r);
                (0.08 * state).exp()
            }
            Noise::Bimodal => (0.02 * normal(r)).exp() * if r.bool() { 1.33 } else { 1.0 },
            Noise::WarmUp => (0.03 * normal(r)).exp() * (1.0 + 2.0 * (-(i as f64)).exp()),
        };
        (0..n).map(&mut one).collect()
    }
}

/// A run: in each round the sizes in an order drawn at random, as `Plan::schedule` does.
fn run(noise: Noise, sizes: &[f64], rounds: usize, cost: &dyn Fn(f64) -> f64, r: &mut fastrand::Rng) -> Grown {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    let round = |round: usize| {
        r.shuffle(&mut order);
        let factors = noise.factors(round, sizes.len(), r);
        let mut costs = vec![None; sizes.len()];
        for (k, factor) in order.iter().zip(factors) {
            costs[*k] = Some(cost(sizes[*k]) * factor);
        }
        costs
    };
    grown(&Points { sizes: sizes.to_vec(), rounds: (0..rounds).map(round).collect() })
}

fn geometric_sizes(from: f64, to: f64, n: usize) -> Vec<f64> {
    (0..n).map(|i| (from * (to / from).powf(i as f64 / (n as f64 - 1.0))).round()).collect()
}

fn percent(hits: usize, of: usize) -> f64 {
    hits as f64 / of as f64 * 100.0
}

#[test]
fn a_flat_cost_is_seldom_taken_for_growth() {
    for (steps, rounds, runs) in [(8, 6, 2000), (4, 6, 1000), (6, 3, 1000)] {
        let sizes = geometric_sizes(1000.0, 278_000.0, steps);
        for noise in KINDS {
            let mut r = fastrand::Rng::with_seed(11);
            let grows = (0..runs).filter(|_| run(noise, &sizes, rounds, &|_| 500.0, &mut r).law != Some(Law::Constant));
            let false_growth = percent(grows.count(), runs);
            println!("{steps} steps, {rounds} rounds, {noise:?}: {false_growth:.1} % false growth");
            assert!(false_growth <= 6.0, "{noise:?} at {steps} steps, {rounds} rounds: {false_growth}");
        }
    }
}

/// What came out of runs with one planted growth law, in percent of them.
struct Found {
    /// It was named.
    named: f64,
    /// It was named or among those not distinguished.
    among: f64,
    /// Of those that named it, the interval holds what one more costs.
    covered: f64,
}

/// Costs that grow by `law` to `times` what they were, over a range from 1,000 to 278,000.
fn planted(law: Law, times: f64, noise: Noise, runs: usize) -> Found {
    let sizes = geometric_sizes(1000.0, 278_000.0, 8);
    let (low, high) = (law.at(sizes[0]), law.at(sizes[7]));
    let factor = 100.0 * (times - 1.0) / (high - times * low);
    let cost = |n: f64| 100.0 + factor * law.at(n);
    let mut r = fastrand::Rng::with_seed(12);
    // What is to be found is the cost under the usual disturbance, not under none.
    let usual = super::middle((0..6000).flat_map(|i| noise.factors(i % 6, 8, &mut r))).unwrap();
    let truth = factor * law.gain(sizes[7]) * usual;
    let all: Vec<Grown> = (0..runs).map(|_| run(noise, &sizes, 6, &cost, &mut r)).collect();
    let named: Vec<&Grown> = all.iter().filter(|g| g.law == Some(law)).collect();
    let holds = |g: &&&Grown| g.one_more.and_then(|e| e.interval).is_some_and(|i| i.low <= truth && truth <= i.high);
    Found {
        named: percent(named.len(), runs),
        among: percent(all.iter().filter(|g| g.law == Some(law) || g.or.contains(&law)).count(), runs),
        covered: percent(named.iter().filter(holds).count(), named.len().max(1)),
    }
}

#[test]
fn a_planted_law_is_found_and_its_slope_covered() {
    for (law, times) in [(Law::Logarithmic, 1.5), (Law::Linear, 4.0), (Law::Linearithmic, 4.0), (Law::Quadratic, 4.0)] {
        for noise in KINDS {
            let found = planted(law, times, noise, 400);
            println!(
                "{} to ×{times}, {noise:?}: named {:.0} %, among the named {:.0} %, slope covered {:.0} %",
                law.notation(),
                found.named,
                found.among,
                found.covered
            );
            // A cost that grows by half is not seen through noise that doubles it now and then.
            let moderate = matches!(noise, Noise::Quiet | Noise::Drift | Noise::Autocorrelated | Noise::Bimodal);
            if moderate && law != Law::Logarithmic {
                assert!(found.among >= 90.0, "{law:?} {noise:?}: {}", found.among);
            }
            if moderate && matches!(law, Law::Linear | Law::Quadratic) {
                assert!(found.named >= 90.0, "{law:?} {noise:?}: {}", found.named);
                assert!(found.covered >= 93.0, "{law:?} {noise:?}: {}", found.covered);
            }
        }
    }
    assert!(planted(Law::Logarithmic, 1.5, Noise::Quiet, 400).named >= 90.0);
}
