//! Tests of the promises that comparisons make: on simulated rounds; and on boots that differ by 20 % and drift, whose
//! variants take turns, from trials in the order of a plan's schedule. `-- --nocapture` prints the figures of
//! docs/statistics.md.

use super::figures::Figures;
use super::interim::{InterimAnalyses, rounds_needed};
use super::{cost, decide, holm};
use crate::coverage::normal;
use crate::estimate::estimate;
use fastrand::Rng;
use vmtax_findings::{Estimate, Verdict};
use vmtax_model::testing::{done, result};
use vmtax_model::{
    Compare, Machine, Measure, Metric, Plan, Study, TrialRecord, Variant, WithCommand,
    WorkloadName, WorkloadSpec,
};

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

const ROUNDS: u32 = MOST;
/// From boot to boot (log-normal): KVM guests with two CPUs show 10 to 30 % at a queue depth of 1.
const BOOTS: f64 = 0.2;
/// From turn to turn of a boot.
const TURNS: f64 = 0.02;

/// Changes of a boot's speed after its start.
#[derive(Debug, Clone, Copy)]
enum Drift {
    /// Not at all.
    None,
    /// By 3 % from turn to turn, in all boots.
    Steady,
    /// By up to 10 % from turn to turn, faster or slower.
    Uneven,
    /// The first turn takes 10 % more.
    WarmUp,
    /// Each turn's noise depends on the one before (0.8).
    Autocorrelated,
}

const DRIFTS: [Drift; 5] = [
    Drift::None,
    Drift::Steady,
    Drift::Uneven,
    Drift::WarmUp,
    Drift::Autocorrelated,
];

impl Drift {
    /// The logarithms of what the next turns of a boot cost.
    fn turns<'r>(self, random: &'r mut Rng) -> impl FnMut() -> f64 + 'r {
        let (boot, slope) = (BOOTS * normal(random), 0.2 * random.f64() - 0.1);
        let (mut turn, mut state) = (0.0, 0.0);
        move || {
            let noise = TURNS * normal(random);
            state = 0.8 * state + noise;
            let drift = match self {
                Drift::None => noise,
                Drift::Steady => noise + 0.03 * turn,
                Drift::Uneven => noise + slope * turn,
                Drift::WarmUp => noise + if turn == 0.0 { 0.1 } else { 0.0 },
                Drift::Autocorrelated => state,
            };
            turn += 1.0;
            boot + drift
        }
    }
}

fn plan(one_boot: bool, seed: u64) -> Plan {
    let variant = |name: &str| Variant {
        name: name.to_owned(),
        ..Variant::default()
    };
    let settings = Compare {
        min_effect: 0.02,
        budget_s: None,
        one_boot,
    };
    let study = Study::Compare(WithCommand {
        settings,
        command: None,
    });
    let variants = vec![variant("a"), variant("b")];
    let workloads = vec![WorkloadSpec::new(WorkloadName::Disk)];
    Plan {
        variants,
        study,
        seed,
        ..Plan::new("compare", ROUNDS, vec![Machine::TCG], workloads)
    }
}

/// The trials of all rounds; the second variant costs `effect` more, as logarithm.
fn trials(plan: &Plan, effect: f64, drift: Drift, random: &mut Rng) -> Vec<TrialRecord> {
    let mut trials = Vec::new();
    for boot in plan.schedule().chunk_by(|a, b| plan.share_boot(a, b)) {
        let mut next = drift.turns(random);
        for slot in boot {
            let cost = next() + if slot.variant == 1 { effect } else { 0.0 };
            let mut result = result(WorkloadSpec::new(WorkloadName::Disk));
            result.measures.push(Measure {
                metric: Metric::DiskMedian,
                value: 1e5 * cost.exp(),
            });
            let (variant, turn) = (
                plan.variants[slot.variant].name.clone(),
                (boot.len() > 1).then_some(slot.turn),
            );
            trials.push(TrialRecord {
                round: slot.round,
                variant,
                turn,
                ..done(Machine::TCG, result)
            });
        }
    }
    trials
}

/// The logarithm of the ratio in each round.
fn logs(trials: &[TrialRecord]) -> Vec<f64> {
    let metric = Metric::DiskMedian;
    let figures = Figures::new(trials, &[(Machine::TCG, "a"), (Machine::TCG, "b")]);
    let [base, other] = ["a", "b"].map(|variant| figures.values((Machine::TCG, variant), metric));
    base.iter()
        .filter_map(|(round, value)| Some(cost(metric, *other.get(round)?) - cost(metric, *value)))
        .collect()
}

/// The share of differences reported, of intervals with the truth, and the mean of rounds.
fn simulated(one_boot: bool, effect: f64, drift: Drift, runs: u64) -> (f64, f64, f64) {
    let analyses = InterimAnalyses::new(ROUNDS, 0);
    let mut random = Rng::with_seed(6);
    let (mut differ, mut hold, mut all_rounds) = (0, 0, 0);
    for _ in 0..runs {
        let plan = plan(one_boot, random.u64(..));
        let logs = logs(&trials(&plan, effect, drift, &mut random));
        assert_eq!(logs.len(), ROUNDS as usize);
        let mut of_rounds = logs.into_iter();
        let (verdict, ratio, rounds) = compared(|| of_rounds.next().unwrap(), &analyses, ROUNDS);
        differ += u64::from(matches!(verdict, Verdict::Slower | Verdict::Faster));
        hold += u64::from(
            ratio
                .interval
                .is_some_and(|i| (i.low..=i.high).contains(&effect.exp())),
        );
        all_rounds += u64::from(rounds);
    }
    let share = |count: u64| count as f64 / runs as f64;
    (share(differ), share(hold), share(all_rounds))
}

#[test]
fn variants_of_one_boot_are_seldom_said_to_differ_from_themselves() {
    for drift in DRIFTS {
        let (wrong, held, _) = simulated(true, 0.0, drift, 2000);
        println!(
            "one boot, A/A, {drift:?}: {:.1} %, coverage {:.1} %",
            wrong * 100.0,
            held * 100.0
        );
        assert!(wrong <= 0.05, "{drift:?}: {wrong}");
        assert!(held >= 0.95, "{drift:?}: {held}");
    }
}

#[test]
fn one_boot_finds_what_fresh_boots_do_not() {
    for drift in DRIFTS {
        for effect in [0.03, 0.1] {
            let [one, fresh] =
                [true, false].map(|one_boot| simulated(one_boot, effect, drift, 300));
            println!(
                "{drift:?}, {:.0} %: one boot {:.0} % in {:.0} rounds, fresh boots {:.0} % in {:.0} rounds",
                effect * 100.0,
                one.0 * 100.0,
                one.2,
                fresh.0 * 100.0,
                fresh.2
            );
            assert!(
                one.0 >= 0.9 || matches!(drift, Drift::WarmUp),
                "{drift:?} {effect}: {}",
                one.0
            );
            assert!(
                fresh.0 <= 0.5 && one.0 > fresh.0,
                "{drift:?} {effect}: {}",
                fresh.0
            );
            assert!(one.1 >= 0.94, "{drift:?} {effect}: {}", one.1);
        }
    }
}

#[test]
fn a_round_that_lacks_a_turn_has_no_ratio() {
    let plan = plan(true, 1);
    let mut all = trials(&plan, 0.1, Drift::Steady, &mut Rng::with_seed(1));
    all.retain(|trial| (trial.round, trial.turn) != (3, Some(2)));
    let found = logs(&all);
    assert_eq!(found.len(), ROUNDS as usize - 1);
    // A steady drift cancels: with one turn of each the ratio is off by 3 or 9 %.
    assert!((estimate(found).median - 0.1).abs() < 0.015);
}
