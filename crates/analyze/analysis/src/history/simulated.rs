//! Tests of the promises of the search for changes, on simulated series. `-- --nocapture` prints the figures of
//! docs/history.md.

use super::breaks;
use crate::coverage::normal;
use fastrand::Rng;

/// Of each kind of step.
const SERIES: u32 = 400;

#[derive(Debug, Clone, Copy)]
enum Noise {
    /// Log-normal, 5 %.
    Quiet,
    /// Pareto, α = 1.2: no variance.
    HeavyTailed,
    /// 2 %, but one run in eight three times as slow.
    Disturbed,
    /// 2 % around one of two levels a third apart, drawn for each run.
    Bimodal,
    /// 2 %, to two digits: many runs are equal.
    Coarse,
}

const ALL: [Noise; 5] = [
    Noise::Quiet,
    Noise::HeavyTailed,
    Noise::Disturbed,
    Noise::Bimodal,
    Noise::Coarse,
];

impl Noise {
    fn draw(self, random: &mut Rng) -> f64 {
        match self {
            Noise::Quiet => (0.05 * normal(random)).exp(),
            Noise::HeavyTailed => 1.0 + 0.05 * ((1.0 - random.f64()).powf(-1.0 / 1.2) - 1.0),
            Noise::Disturbed => {
                (0.02 * normal(random)).exp() * if random.u8(..8) == 0 { 3.0 } else { 1.0 }
            }
            Noise::Bimodal => {
                (0.02 * normal(random)).exp() * if random.bool() { 1.33 } else { 1.0 }
            }
            Noise::Coarse => ((0.02 * normal(random)).exp() * 50.0).round() / 50.0,
        }
    }
}

/// The share of `count` series for which `says` holds.
fn share(count: u32, mut says: impl FnMut(&mut Rng) -> bool) -> f64 {
    let mut random = Rng::with_seed(77);
    f64::from(
        (0..count)
            .map(|_| u32::from(says(&mut random)))
            .sum::<u32>(),
    ) / f64::from(count)
}

#[test]
fn series_that_do_not_change_are_seldom_said_to() {
    for noise in ALL {
        for (runs, series) in [(8, 2000), (20, 2000), (50, 400)] {
            let said = share(series, |random| {
                let values: Vec<f64> = (0..runs).map(|_| noise.draw(random)).collect();
                !breaks(&values).is_empty()
            });
            println!("A/A {noise:?}, {runs} runs: {:.1} %", said * 100.0);
            let most = if series == 2000 { 0.06 } else { 0.08 };
            assert!(said <= most, "{noise:?}, {runs} runs: {said}");
        }
    }
}

#[test]
fn steps_are_found_where_they_are() {
    // Noise, size of the step, runs before and after; at least so often any change, and one within a run of the step.
    let cases = [
        (Noise::Quiet, 1.1, 10, 10, 0.75, 0.60),
        (Noise::Quiet, 1.15, 10, 10, 0.95, 0.90),
        (Noise::Quiet, 1.2, 10, 10, 0.98, 0.95),
        (Noise::Quiet, 1.2, 20, 5, 0.95, 0.88),
        (Noise::Quiet, 1.2, 20, 3, 0.10, 0.05),
        (Noise::Quiet, 1.3, 20, 3, 0.10, 0.05),
        (Noise::Quiet, 1.3, 4, 4, 0.98, 0.95),
        (Noise::HeavyTailed, 1.3, 10, 10, 0.80, 0.70),
        (Noise::HeavyTailed, 1.5, 10, 10, 0.90, 0.80),
        (Noise::Disturbed, 1.1, 10, 10, 0.70, 0.55),
        (Noise::Bimodal, 1.1, 10, 10, 0.20, 0.10),
        (Noise::Bimodal, 1.5, 10, 10, 0.95, 0.95),
        (Noise::Coarse, 1.1, 10, 10, 0.98, 0.95),
    ];
    for (noise, step, before, after, least_any, least) in cases {
        let mut any = 0.0;
        let found = share(SERIES, |random| {
            let level = |i: usize| if i < before { 1.0 } else { step };
            let values: Vec<f64> = (0..before + after)
                .map(|i| level(i) * noise.draw(random))
                .collect();
            let breaks = breaks(&values);
            any += f64::from(u8::from(!breaks.is_empty())) / f64::from(SERIES);
            breaks.iter().any(|b| b.at.abs_diff(before) <= 1)
        });
        println!(
            "step {noise:?} x{step}, {before}+{after}: any {:.0} %, there {:.0} %",
            any * 100.0,
            found * 100.0
        );
        assert!(
            any >= least_any && found >= least,
            "{noise:?} {step} {before}+{after}: {any} {found}"
        );
    }
}

/// Not a promise but its limit: what runs that depend on each other do to it.
#[test]
fn runs_that_depend_on_each_other_pass_for_changes() {
    for dependence in [0.2, 0.5, 0.8] {
        let said = share(400, |random| {
            let mut level = 0.0;
            let values: Vec<f64> = (0..20)
                .map(|_| {
                    level = dependence * level + normal(random);
                    (0.05 * level).exp()
                })
                .collect();
            !breaks(&values).is_empty()
        });
        println!("autocorrelation {dependence}: {:.1} %", said * 100.0);
        assert!(said > 0.05, "{dependence}: {said}");
    }
}
