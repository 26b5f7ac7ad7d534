//! Tests, on simulated rounds, of the promises that comparisons make. `-- --nocapture` prints the figures of
//! docs/statistics.md.

use super::interim::{InterimAnalyses, rounds_needed};
use super::{decide, holm};
use crate::coverage::normal;
use fastrand::Rng;
use vmtax_findings::{Estimate, Verdict};

const RUNS: u32 = 2000;
pub(super) const MOST: u32 = 40;
const DETECT: f64 = 0.02;

/// Noise of the host in the turns.
#[derive(Debug, Clone, Copy)]
enum Noise {
    /// Log-normal, 2 %.
    Quiet,
    /// Pareto, α = 1.2: no variance.
    HeavyTailed,
    /// 1 %, but one turn in eight half as slow again.
    Disturbed,
    /// 1 % around one of two levels 8 % apart, drawn for each boot.
    Bimodal,
    /// 1 %, and the host gets 1 % slower from turn to turn.
    Drift,
    /// Each turn depends on the one before it.
    Autocorrelated,
}

const ALL: [Noise; 6] = [
    Noise::Quiet,
    Noise::HeavyTailed,
    Noise::Disturbed,
    Noise::Bimodal,
    Noise::Drift,
    Noise::Autocorrelated,
];

/// A host on which turns are taken one after the other.
struct Host<'r> {
    noise: Noise,
    random: &'r mut Rng,
    turns: u32,
    state: f64,
}

impl<'r> Host<'r> {
    fn new(noise: Noise, random: &'r mut Rng) -> Host<'r> {
        Host {
            noise,
            random,
            turns: 0,
            state: 0.0,
        }
    }

    /// The logarithm of a turn's cost.
    fn turn(&mut self) -> f64 {
        self.turns += 1;
        let random = &mut *self.random;
        match self.noise {
            Noise::Quiet => 0.02 * normal(random),
            Noise::HeavyTailed => (1.0 + 0.02 * ((1.0 - random.f64()).powf(-1.0 / 1.2) - 1.0)).ln(),
            Noise::Disturbed => 0.01 * normal(random) + if random.u8(..8) == 0 { 0.4 } else { 0.0 },
            Noise::Bimodal => 0.01 * normal(random) + if random.bool() { 0.08 } else { 0.0 },
            Noise::Drift => 0.01 * normal(random) + 0.01 * f64::from(self.turns),
            Noise::Autocorrelated => {
                self.state = 0.8 * self.state + 0.02 * normal(random);
                self.state
            }
        }
    }

    /// A round: both sides, in an order drawn at random; the variant's cost over the baseline's, as logarithm.
    fn round(&mut self, effect: f64) -> f64 {
        let base_first = self.random.bool();
        let (one, two) = (self.turn(), self.turn());
        effect + if base_first { two - one } else { one - two }
    }
}

/// A comparison that stops when it has decided; `round` gives the logarithm of the ratio in the next round.
pub(super) fn compared(
    mut round: impl FnMut() -> f64,
    analyses: &InterimAnalyses,
    most: u32,
) -> (Verdict, Estimate, u32) {
    let mut logs = Vec::new();
    loop {
        logs.push(round());
        let rounds = logs.len() as u32;
        if analyses.at(rounds) {
            let ratio = analyses.ratio(&logs);
            let shown = decide(&ratio, analyses.p(&logs), DETECT);
            if shown.is_decided() || rounds >= most {
                return (shown, ratio, rounds);
            }
        }
    }
}

fn compared_on(
    host: &mut Host<'_>,
    effect: f64,
    analyses: &InterimAnalyses,
    most: u32,
) -> (Verdict, Estimate) {
    let (shown, ratio, _) = compared(|| host.round(effect), analyses, most);
    (shown, ratio)
}

fn share(what: impl Iterator<Item = bool>) -> f64 {
    let (mut all, mut yes) = (0.0, 0.0);
    for one in what {
        all += 1.0;
        yes += f64::from(u8::from(one));
    }
    yes / all
}

#[test]
fn a_machine_is_seldom_said_to_differ_from_itself() {
    let analyses = InterimAnalyses::new(MOST, 0);
    for noise in ALL {
        let mut random = Rng::with_seed(1);
        let wrong = share((0..RUNS).map(|_| {
            let (shown, _) = compared_on(&mut Host::new(noise, &mut random), 0.0, &analyses, MOST);
            matches!(shown, Verdict::Faster | Verdict::Slower)
        }));
        println!("A/A {noise:?}: {:.1} %", wrong * 100.0);
        assert!(wrong <= 0.06, "{noise:?}: {wrong}");
    }
}

#[test]
fn a_family_of_metrics_is_seldom_said_to_differ() {
    let analyses = InterimAnalyses::new(MOST, 0);
    let mut random = Rng::with_seed(2);
    let wrong = share((0..500).map(|_| {
        let p: Vec<f64> = (0..8)
            .map(|_| {
                let mut host = Host::new(Noise::Quiet, &mut random);
                analyses.p(&(0..MOST).map(|_| host.round(0.0)).collect::<Vec<_>>())
            })
            .collect();
        holm(&p).iter().any(|p| *p <= 0.05)
    }));
    println!("family of 8: {:.1} %", wrong * 100.0);
    assert!(wrong <= 0.07, "{wrong}");
}

#[test]
fn intervals_hold_the_truth() {
    for noise in ALL {
        for effect in [0.0, 0.03] {
            let analyses = InterimAnalyses::new(MOST, 0);
            let mut random = Rng::with_seed(3);
            let held = share((0..RUNS).map(|_| {
                let (_, ratio) =
                    compared_on(&mut Host::new(noise, &mut random), effect, &analyses, MOST);
                ratio
                    .interval
                    .is_some_and(|i| (i.low..=i.high).contains(&effect.exp()))
            }));
            println!("coverage {noise:?}, {effect}: {:.1} %", held * 100.0);
            assert!((0.94..=0.999).contains(&held), "{noise:?} {effect}: {held}");
        }
    }
}

#[test]
fn what_was_foretold_to_be_enough_is() {
    for noise in ALL {
        let mut random = Rng::with_seed(4);
        let mut rounds_sum = 0.0;
        let mut told = 0.0;
        let found = share((0..300).filter_map(|_| {
            let mut host = Host::new(noise, &mut random);
            let pilot: Vec<f64> = (0..8).map(|_| host.round(0.03)).collect();
            let rounds = rounds_needed(&pilot, 0.03, MOST)?;
            told += 1.0;
            rounds_sum += f64::from(rounds);
            let analyses = InterimAnalyses::new(rounds.max(MOST), rounds);
            let (shown, _) =
                compared_on(&mut Host::new(noise, host.random), 0.03, &analyses, rounds);
            Some(shown == Verdict::Slower)
        }));
        println!(
            "power {noise:?}: {:.0} % at {:.0} rounds on average, {told} of 300",
            found * 100.0,
            rounds_sum / told
        );
        assert!(found >= 0.80, "{noise:?}: {found}");
    }
}

/// One look before the budget ends it is no other comparison.
#[test]
fn a_budget_that_ends_between_looks_keeps_the_promise() {
    let mut random = Rng::with_seed(5);
    let analyses: Vec<InterimAnalyses> = (8..=MOST)
        .map(|ended| InterimAnalyses::new(MOST, ended))
        .collect();
    let wrong = share((0..RUNS).map(|_| {
        let ended = random.u32(8..=MOST);
        let (shown, _) = compared_on(
            &mut Host::new(Noise::Quiet, &mut random),
            0.0,
            &analyses[ended as usize - 8],
            ended,
        );
        matches!(shown, Verdict::Faster | Verdict::Slower)
    }));
    println!("A/A with a budget: {:.1} %", wrong * 100.0);
    assert!(wrong <= 0.06, "{wrong}");
}
